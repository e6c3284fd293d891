"""Shows a build as it goes and how it ended. It ends nothing: whoever stops watching leaves the build at work."""

from __future__ import annotations

from collections.abc import Generator

from mtplxd.errors import (
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    MtplxError,
    ResourceExhausted,
    Unavailable,
)

from mtplx_client.builds import BuildOutcome, BuildStep
from mtplx_client.cli.app import App
from mtplx_client.cli.progress import Reporter, reporter
from mtplx_client.cli.render import forges
from mtplx_client.events import Progress


def follow(
    app: App, events: Generator[BuildStep | BuildOutcome, None, None], *, detach: bool = False
) -> None:
    """Shows news until the outcome, whose exit code is 0 for a win and 3 without; with `detach` only what has begun.

    Raises Cancelled, with the way back, where the user stops watching, and Unavailable where the daemon goes.
    """
    step: BuildStep | None = None
    try:
        with reporter(app, events=False) as progress:
            for event in events:
                if isinstance(event, BuildOutcome):
                    progress.close()
                    _end(app, event)
                    return
                step = event
                if detach:
                    break
                _show(app, event, progress)
    except KeyboardInterrupt:
        if step is None:
            raise
        fix = f"`mtplx forge runs --follow` shows it, `mtplx forge cancel {step.run}` ends it"
        raise Cancelled("the build goes on", step.run, fix) from None
    except (Unavailable, ResourceExhausted, DeadlineExceeded) as error:
        if step is None:
            raise
        raise _with_way_back(error, step.run) from None
    finally:
        events.close()
    if step is None or not detach:
        raise Internal("the build's stream ended early", None, "see `mtplx forge runs` and `mtplx logs`")
    _detached(app, step)


def _with_way_back(error: MtplxError, run: str) -> MtplxError:
    """The error with what to do about this build; one of the connection's says nothing of the build."""
    if run in error.fix:
        return error
    of_connection = "reason" not in error.details and not isinstance(error, ResourceExhausted)
    if of_connection and isinstance(error, DeadlineExceeded):
        fix = f"`mtplx forge runs --follow` shows it, `mtplx forge cancel {run}` ends it"
        return DeadlineExceeded("the build goes on, it is watched no longer", run, fix)
    if of_connection:
        fix = f"start it with `mtplxd`, then `mtplx forge resume {run}`"
        return Unavailable("the daemon is gone", run, fix)
    error.fix = f"{error.fix}, then `mtplx forge resume {run}`"
    return error


def _show(app: App, step: BuildStep, progress: Reporter) -> None:
    if app.json:
        app.output.event(forges.step_document(step))
    else:
        told = f"{step.step} ({step.stage})" if step.stage not in ("", step.step) else step.step
        progress(
            Progress(stage=told, done=step.done, total=step.total, message=step.message, eta_s=step.eta_s)
        )


def _detached(app: App, step: BuildStep) -> None:
    if app.json:
        app.output.final({"run": step.run, "step": step.step, "detached": True})
    else:
        app.output.line(f"{step.run} has begun: `mtplx forge runs --follow` shows it")


def _end(app: App, outcome: BuildOutcome) -> None:
    if app.json:
        app.output.final(forges.document(outcome))
    else:
        app.output.line(forges.view(outcome, app.color))
    if not outcome.won:
        reasons = "; ".join(outcome.failure_reasons)
        app.fail(FailedPrecondition("no pack was made", outcome.verdict, reasons or "see the rows"))
