"""Progress of long work: a bar on a terminal, a line now and then elsewhere, events with --json.

Owns how progress is shown, on stderr; what progresses is told by the daemon.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from mtplx_client.cli.render.words import duration, size
from mtplx_client.events import Progress

if TYPE_CHECKING:
    from mtplx_client.cli.app import App

_QUARTERS = 4


class Reporter(ABC):
    """Shows progress until it is closed; calling it takes one step."""

    @abstractmethod
    def __call__(self, step: Progress) -> None:
        """Show one step."""

    def close(self) -> None:
        """Leave the terminal clean."""
        return

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def reporter(app: App, events: bool = True) -> Reporter:
    """What fits this run. With --json: events if the command streams, else nothing."""
    if app.json:
        return _Events(app) if events else _Silent()
    return _Bar(app) if sys.stderr.isatty() else _Lines(app)


class _Silent(Reporter):
    def __call__(self, step: Progress) -> None:
        del step


class _Events(Reporter):
    def __init__(self, app: App) -> None:
        self._app = app

    def __call__(self, step: Progress) -> None:
        from mtplx_client.cli.render.documents import event

        self._app.output.event(event(step))


class _Lines(Reporter):
    """A line when a stage begins and after each quarter of it; a stage that is done at once says nothing."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._stage = ""
        self._quarter = 0

    def __call__(self, step: Progress) -> None:
        quarter = _QUARTERS * step.done // step.total if step.total else 0
        if step.stage != self._stage:
            self._stage, self._quarter = step.stage, quarter
            if step.total == 0 or step.done < step.total:
                self._app.output.note(_line(step))
        elif quarter > self._quarter:
            self._quarter = quarter
            self._app.output.note(_line(step))


class _Bar(Reporter):
    """One bar, drawn by rich; a new stage starts it again."""

    def __init__(self, app: App) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bars

        console = Console(file=sys.stderr, no_color=app.no_color or None)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[amount]}"))
        self._bars = Bars(*columns, console=console, transient=True)
        self._task = None if not console.is_terminal else self._bars.add_task("", amount="")
        self._stage = ""

    def __call__(self, step: Progress) -> None:
        if self._task is None:
            return
        if step.stage != self._stage:
            self._stage = step.stage
            self._bars.reset(self._task)
            self._bars.start()
        self._bars.update(
            self._task,
            description=step.stage,
            completed=step.done,
            total=step.total or None,
            amount=_amount(step),
        )

    def close(self) -> None:
        self._bars.stop()
        self._stage = ""


def _line(step: Progress) -> str:
    return f"{step.stage}: {_amount(step)}" if _amount(step) else step.stage


def _amount(step: Progress) -> str:
    """`45.1 MiB of 90.2 MiB, 12 s left`, as far as it is known."""
    show = size if step.unit == "bytes" else str
    parts = []
    if step.total:
        unit = f" {step.unit}" if step.unit not in ("", "bytes") else ""
        parts.append(f"{show(step.done)} of {show(step.total)}{unit}")
    if step.eta_s:
        parts.append(f"{duration(step.eta_s)} left")
    if step.message:
        parts.append(step.message)
    return ", ".join(parts)
