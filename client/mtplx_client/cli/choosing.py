"""Shows several answers to one prompt: one after the other for people, as they come with --json.

Owns the order of what is shown; `answering` shows a single answer.
"""

from __future__ import annotations

from collections.abc import Generator

from mtplx_client.cli.app import App
from mtplx_client.cli.progress import reporter
from mtplx_client.cli.render import documents
from mtplx_client.errors import Internal, MtplxError
from mtplx_client.events import Choices, Collector, Event, Progress, Reply


def show_choices(app: App, events: Generator[Event, None, None], count: int) -> Reply:
    """Print `count` answers to their end and return the first, with all of them as its choices.

    A KeyboardInterrupt cancels the request, ends what was printed properly, and goes on to the caller.
    """
    answers = Choices(count)
    page = _Page(app, answers.answers)
    try:
        with reporter(app) as progress:
            for event in events:
                answers.add(event)
                if app.json:
                    app.output.event(documents.choice_event(event))
                elif isinstance(event, Progress):
                    progress(event)
                else:
                    progress.close()
                    page.show()
    except KeyboardInterrupt:
        events.close()
        if app.json:
            cut = documents.interrupted_choices(answers.answers)
            app.output.final({"event": "final", **cut})
        page.end_line()
        raise
    except MtplxError:
        page.end_line()
        raise
    if not answers.complete:
        raise Internal("the answers ended early", None, "see `mtplx logs`")
    reply = answers.reply()
    if app.json:
        app.output.final({"event": "final", **documents.choices(reply)})
    return reply


class _Page:
    """Prints answers in their order: the first that is not over as it comes, a later one when its turn is."""

    def __init__(self, app: App, answers: list[Collector]) -> None:
        self._app, self._answers = app, answers
        self._at = 0
        self._shown = ""
        self._titled = False

    def show(self) -> None:
        """Print what has become due."""
        while self._at < len(self._answers):
            answer = self._answers[self._at]
            self._print(answer.text)
            if answer.final is None:
                return
            self.end_line()
            self._at, self._shown, self._titled = self._at + 1, "", False

    def end_line(self) -> None:
        """End the line that an answer left open."""
        if not self._app.json and self._shown and not self._shown.endswith("\n"):
            self._app.output.text("\n")

    def _print(self, text: str) -> None:
        if not self._titled and (text or self._answers[self._at].final):
            gap = "\n" if self._at else ""
            self._app.output.text(f"{gap}--- {self._at + 1} of {len(self._answers)} ---\n")
            self._titled = True
        if len(text) > len(self._shown):
            self._app.output.text(text[len(self._shown) :])
            self._shown = text
