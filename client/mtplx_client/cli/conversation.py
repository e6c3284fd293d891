"""The loop of a chat: messages, commands that begin with a slash, and what has been said.

Owns the conversation's memory in this process, where nothing is kept unless the user saves it; of a session the
daemon has the memory, and keeps it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

from mtplxd.packs.gate import REFUSED

from mtplx_client.cli import records
from mtplx_client.cli.answering import failure, show_answer
from mtplx_client.cli.app import App
from mtplx_client.cli.lineinput import LineInput
from mtplx_client.cli.render import talks, views
from mtplx_client.cli.render.words import counted
from mtplx_client.cli.usage import nearest
from mtplx_client.client import Client
from mtplx_client.errors import FailedPrecondition, InvalidArgument, MtplxError, NotFound, Unavailable
from mtplx_client.events import Collector, Reply
from mtplx_client.names import model_ref

HELP = """\
/stats        numbers of the last answer
/depth N      tokens to draft a round from now on; 0 = plain decoding, auto = the model's
/reset        forget what was said; a session is deleted
/save FILE    write the conversation to FILE
/exit         end the chat (or Ctrl-D)
A line that ends in \\ goes on; \"\"\" begins and ends a message of several lines. Ctrl-C stops an answer."""


class Conversation:
    """One chat. Ends with EOF, /exit, a daemon that is gone, or a model that may not answer."""

    def __init__(self, app: App, client: Client, lines: LineInput, options: dict[str, Any]) -> None:
        self._app = app
        self._client = client
        self._lines = lines
        self._options = options
        self._said: list[dict[str, str]] = []
        self._last: Reply | None = None
        self._commands: dict[str, Callable[[str], None]] = {
            "/stats": self._stats,
            "/depth": self._depth,
            "/reset": self._reset,
            "/save": self._save,
            "/help": lambda _: self._tell(HELP),
        }

    def run(self) -> None:
        """Read and answer until the end."""
        self._client.hello()
        if self._session:
            self._tell(self._welcome())
        while True:
            try:
                message = self._lines.message()
            except EOFError:
                return
            except KeyboardInterrupt:
                self._app.output.note("")
                continue
            except InvalidArgument as error:
                if not self._lines.interactive:
                    raise
                self._app.output.error(error)
                continue
            if message.strip() == "/exit":
                return
            try:
                self._take(message)
            except Unavailable:
                raise
            except MtplxError as error:
                if error.details.get("reason") == REFUSED:  # so would be every further message
                    raise
                self._app.output.error(error)

    def _take(self, message: str) -> None:
        if message.startswith("/"):
            self._command(message)
        elif message.strip():
            self._answer(message)

    def _command(self, message: str) -> None:
        name, _, rest = message.partition(" ")
        command = self._commands.get(name)
        if command is None:
            hint = nearest(name, [*self._commands, "/exit"]) or "/help lists them"
            raise InvalidArgument("no such command", name, hint)
        command(rest.strip())

    @property
    def _session(self) -> str:
        """Its name, empty where nothing is kept."""
        return self._options.get("session") or ""

    def _welcome(self) -> str:
        try:
            found = self._client.session(self._session).session
        except NotFound:
            return f"session {self._session} begins"
        notices = "".join(f"\n{found.name}: {notice}" for notice in found.notices)
        turns = counted(found.turns, "turn")
        return f"session {found.name} goes on: {turns} so far, the last with {found.model}{notices}"

    def _answer(self, message: str) -> None:
        messages = [*self._said, {"role": "user", "content": message}]
        answer = Collector()
        said = messages[-1:] if self._session else messages
        events = self._client.generate(messages=said, **self._options)
        try:
            reply = show_answer(self._app, events, answer)
        except KeyboardInterrupt:
            if answer.text:
                self._remember(messages, answer.text)
            self._app.output.note("(stopped)")
            return
        self._last = reply
        if reply.session is not None and reply.session.kept:  # a fork goes on by its own name
            self._options["session"] = reply.session.name
        if reply.text:
            self._remember(messages, reply.text)
        wrong = failure(reply)
        if wrong is not None:
            self._app.output.note(f"error: {wrong}")

    def _remember(self, messages: list[dict[str, str]], text: str) -> None:
        self._said = [*messages, {"role": "assistant", "content": text}]

    def _stats(self, rest: str) -> None:
        del rest
        if self._last is None:
            self._tell("no answer yet")
            return
        reply = self._last
        plain = records.plain_note(self._app.home, self._client, reply.model, reply.stats.depth)
        self._tell(views.stats(reply, plain))

    def _depth(self, rest: str) -> None:
        if rest == "auto":
            self._options["depth"] = rest
        elif rest.isascii() and rest.isdigit():
            self._check_depth(int(rest))
            self._options["depth"] = int(rest)
        else:
            wanted = "a depth is a whole number or auto"
            raise InvalidArgument(wanted, rest or "nothing", "say for instance /depth 2")
        self._tell(f"depth {rest} from now on")

    def _check_depth(self, depth: int) -> None:
        """Raises where the model cannot draft that far; a model that only the daemon knows is judged there."""
        if self._options.get("plain") and depth:
            raise InvalidArgument("this chat decodes plainly", depth, "start one without --plain")
        limit = self._limit() if depth else None
        if limit is not None and depth > limit:
            todo = f"its head drafts up to {limit}" if limit else "the model is without an MTP head"
            raise InvalidArgument("depth is above the head's limit", depth, todo)

    def _limit(self) -> int | None:
        """The model's deepest depth as it is loaded, else as its pack says; None when it is not known."""
        name = model_ref(self._options.get("model") or self._app.settings.model or "")
        models = [model for model in self._client.status().models if model.state == "ready"]
        loaded = [model for model in models if name in (model.name, model.path)] if name else models
        if len(loaded) == 1:
            return loaded[0].depth_max
        if not name:
            return None
        packs = [pack for pack in self._client.ls() if name in (pack.name, pack.path)]
        return (packs[0] if packs else self._client.show(name).pack).depth_max

    def _reset(self, rest: str) -> None:
        del rest
        self._said.clear()
        if self._session:
            with contextlib.suppress(NotFound):
                self._client.remove_session(self._session)
        self._tell("forgotten")

    def _save(self, rest: str) -> None:
        if not rest:
            raise InvalidArgument("no file", None, "say /save FILE")
        path = os.path.expanduser(rest)
        text, count = self._written()
        try:
            with open(
                os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
            ) as file:
                file.write(text)
        except OSError as error:
            raise FailedPrecondition("cannot write", path, error.strerror or "choose another file") from None
        self._tell(f"{count} messages written to {path}")

    def _written(self) -> tuple[str, int]:
        """The conversation as Markdown, and its messages."""
        if self._session:
            found = self._client.session(self._session)
            return talks.markdown(found), len(found.messages)
        sections = (f"## {message['role']}\n\n{message['content']}\n\n" for message in self._said)
        return "".join(sections), len(self._said)

    def _tell(self, text: str) -> None:
        """Say something that is not an answer."""
        self._app.output.note(text)
