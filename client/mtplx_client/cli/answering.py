"""Shows one answer as it arrives: text for people, a stream of events with --json.

Owns the order of what is shown; where the events come from is the client's business.
"""

from __future__ import annotations

from collections.abc import Generator

from mtplx_client.cli.app import App
from mtplx_client.cli.progress import reporter
from mtplx_client.cli.render import documents
from mtplx_client.errors import Cancelled, DeadlineExceeded, Internal, MtplxError
from mtplx_client.events import Collector, Event, Logprobs, Progress, Reply, Text


def show_answer(
    app: App, events: Generator[Event, None, None], answer: Collector | None = None, last: bool = True
) -> Reply:
    """Print an answer to its end and return it; `last` = the stream of events ends with it.

    A KeyboardInterrupt cancels the request, ends what was printed properly, and goes on to the caller.
    """
    answer = answer or Collector()
    try:
        with reporter(app) as progress:
            for event in events:
                answer.add(event)
                if isinstance(event, Progress):
                    progress(event)
                elif isinstance(event, Text):
                    progress.close()
                    _show_text(app, event)
                elif isinstance(event, Logprobs) and app.json:
                    app.output.event(documents.event(event))
    except KeyboardInterrupt:
        events.close()
        _end_interrupted(app, answer)
        raise
    except MtplxError:
        _end_line(app, answer)
        raise
    if answer.final is None:
        raise Internal("the answer ended early", None, "see `mtplx logs`")
    _end_line(app, answer)
    reply = answer.reply()
    if reply.session is not None and not app.json:
        for notice in reply.session.notices:
            app.output.note(f"session {reply.session.name}: {notice}")
    if app.json:
        fields = documents.reply(reply)
        app.output.final({"event": "final", **fields}) if last else app.output.event(
            {"event": "answer", **fields}
        )
    return reply


def failure(reply: Reply) -> MtplxError | None:
    """The error of an answer that did not end well, None otherwise."""
    if reply.finish_reason == "error":
        return Internal("the answer failed", reply.stop_origin, reply.message or "see `mtplx logs`")
    if reply.finish_reason == "cancelled" and reply.stop_origin == "deadline":
        return DeadlineExceeded("the answer was cut at the deadline", None, "allow more with --timeout")
    if reply.finish_reason == "cancelled":
        return Cancelled("the answer was cancelled", reply.stop_origin)
    return None


def _show_text(app: App, event: Text) -> None:
    if app.json:
        app.output.event(documents.event(event))
    else:
        app.output.text(event.text)


def _end_line(app: App, answer: Collector) -> None:
    if not app.json and answer.text and not answer.text.endswith("\n"):
        app.output.text("\n")


def _end_interrupted(app: App, answer: Collector) -> None:
    if app.json:
        app.output.final({"event": "final", **documents.interrupted(answer)})
    else:
        _end_line(app, answer)
