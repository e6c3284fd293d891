"""The steps of quickstart, in order, and what is said about each."""

from __future__ import annotations

from typing import Any

from mtplx_client.cli.answering import failure, show_answer
from mtplx_client.cli.app import App
from mtplx_client.cli.processes import start_daemon, wait_gone
from mtplx_client.cli.progress import reporter
from mtplx_client.cli.render import documents, tunings, views
from mtplx_client.client import Client
from mtplx_client.errors import NoDaemon, NotFound
from mtplx_client.events import Reply
from mtplx_client.replies import Status
from mtplx_client.tunings import Tuning

PROMPT = "Explain in a few sentences why the sky is blue."
ANSWER_TOKENS = 128
STOP_S = 45.0
READY_S = 30.0


class Tour:
    """One quickstart. A daemon that it started is stopped again unless it is kept."""

    def __init__(self, app: App, model: str, measure: bool, keep: bool) -> None:
        self._app = app
        self._model = model
        self._measure = measure
        self._keep = keep

    def run(self) -> None:
        """Take every step; the first that fails raises, after a daemon that is not kept was stopped."""
        daemon, started = self._find_daemon()
        with self._app.client() as client:
            try:
                self._fetch(client)
                answer = self._try(client)
                found = self._tune(client) if self._measure else None
            finally:
                if started and not self._keep:
                    client.stop()
                    wait_gone(daemon.pid, self._app.timeout or STOP_S)
        self._tell_next(daemon, answer, found, running=self._keep or not started)

    def _find_daemon(self) -> tuple[Status, bool]:
        try:
            with self._app.client() as client:
                client.status()
                found = client.wait_ready(self._app.timeout or READY_S)
        except NoDaemon:
            found = start_daemon(self._app.home, self._app.socket_path)
            self._say("daemon", f"started a daemon (pid {found.pid})")
            return found, True
        self._say("daemon", f"a daemon is running (pid {found.pid})")
        return found, False

    def _fetch(self, client: Client) -> None:
        with reporter(self._app) as progress:
            try:
                client.show(self._model)
            except NotFound:
                pack = client.pull(self._model, on_progress=progress)
                self._say("pull", f"fetched {pack.name} to {pack.path}")
            client.load(self._model, force=True, on_progress=progress)
        self._say("load", f"{self._model} is in memory")

    def _try(self, client: Client) -> Reply:
        self._say("answer", f"> {PROMPT}")
        events = client.generate(
            PROMPT, model=self._model, max_tokens=ANSWER_TOKENS, temperature=0.6, top_p=0.95, force=True
        )
        reply = show_answer(self._app, events, last=False)
        wrong = failure(reply)
        if wrong is not None:
            raise wrong
        self._say("stats", views.stats(reply, ""))
        return reply

    def _tune(self, client: Client) -> Tuning:
        self._say(
            "measure", "measuring which depth pays here, on the same prompts and seeds: a minute or two …"
        )
        with reporter(self._app) as progress:
            found = client.tune(self._model, quick=True, on_progress=progress)
        if self._app.json:
            self._say("verdict", found.decision.message)
        else:
            self._app.output.line(tunings.view(found, self._app.color))
        return found

    def _tell_next(self, daemon: Status, answer: Reply, found: Tuning | None, running: bool) -> None:
        if self._app.json:
            measured = None if found is None else tunings.document(found)
            fields: dict[str, Any] = {"answer": documents.reply(answer), "tuning": measured}
            state = {"pid": daemon.pid, "socket": daemon.socket, "running": running}
            self._app.output.final({**fields, "daemon": state, "verdict": found and found.decision.message})
            return
        lines = [
            "",
            f"next:  mtplx chat --model {self._model}",
            f"       mtplx tune {self._model}",
            "       mtplx --help",
        ]
        lines.append("the daemon goes on: `mtplx stop` ends it" if running else "the daemon has stopped")
        self._app.output.line("\n".join(lines))

    def _say(self, step: str, text: str) -> None:
        if self._app.json:
            self._app.output.event({"event": "step", "step": step, "message": text})
        else:
            self._app.output.line(text)
