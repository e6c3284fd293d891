"""A request in service, and how those who decide by policy see it. Moves nothing, runs nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from mtplxd.engine.batch import Batch
from mtplxd.engine.prefill import Prefill
from mtplxd.engine.prefixes import Sought
from mtplxd.engine.request import BACKGROUND, Request
from mtplxd.engine.restoring import Restoring
from mtplxd.engine.scheduling.admission import row_need
from mtplxd.engine.scheduling.footprint import RowHold
from mtplxd.engine.scheduling.preemption import AsideView, RowView
from mtplxd.engine.scheduling.turns import PrefillView
from mtplxd.engine.stream import Stream
from mtplxd.engine.ticket import Ticket
from mtplxd.families.load import LoadedModel


@dataclass(slots=True)
class Served:
    """One request. `batch` is its own row's while its prompt is read or it is set aside, None while it shares another
    or while what it held has to be computed again. `prefill` is None until reading begins, and again afterwards;
    `restoring` is there while what is kept of the prompt comes back.

    `spent` are seconds that went into a chunk computed in part so far. `came_in` is what it had made when it last came
    in; `owed` says that it came back after it was set aside.
    """

    ticket: Ticket
    stream: Stream
    batch: Batch | None
    sought: Sought | None = None
    prefill: Prefill | None = None
    spent: float = 0.0
    came_in: int = 0
    owed: bool = False
    out_since: float = 0.0
    bytes_aside: int = field(default=0)
    restoring: Restoring | None = None

    def lose(self) -> None:
        """Lets go of all that it held; nothing of its prompt is kept from here on."""
        self.stop_restoring()
        self.batch = self.prefill = self.sought = None
        self.bytes_aside, self.spent = 0, 0.0

    def stop_restoring(self) -> None:
        """Nothing more of what is kept comes back."""
        if self.restoring is not None:
            self.restoring.close()
            self.restoring = None

    @property
    def can_go_on(self) -> bool:
        """Whether there is something to do for its prompt now."""
        return self.prefill is not None or (self.restoring is not None and self.restoring.ready)

    @property
    def request(self) -> Request:
        """What was asked."""
        return self.stream.request

    @property
    def background(self) -> bool:
        """Whether nobody waits for the text."""
        return self.request.priority == BACKGROUND

    @property
    def model_name(self) -> str:
        """Names the model in memory, not the pack."""
        return model_name(self.request)

    @property
    def batch_name(self) -> str:
        """Names the batch its rounds are played in."""
        return batch_name(self.request)


def model_name(request: Request) -> str:
    """Names the model in memory that a request is for."""
    return name_of(request.model)


def name_of(model: LoadedModel) -> str:
    """What a model in memory is called here."""
    return f"model {id(model)}"


def batch_name(request: Request) -> str:
    """The model's shared batch, or one of the request's own where it must not share rounds: a reproducible one, whose
    forwards have one shape, or one of a model whose rows cannot."""
    apart = request.sampler.reproducible or bool(request.model.apart)
    return f"request {request.id}" if apart else model_name(request)


def hold_of(request: Request, length: int) -> RowHold:
    """A request's row as memory sees it, at `length` positions."""
    need = row_need(len(request.prompt), request.max_tokens, request.model.context)
    name = batch_name(request)
    return RowHold(request.id, name, request.model.footprint, length, max(need.most, length))


def view_row(served: Served) -> RowView:
    """A row as those see it who choose whom to set aside."""
    return RowView(
        hold_of(served.request, len(served.stream.row.tokens)),
        served.ticket.submitted,
        served.background,
        served.owed,
        served.stream.made - served.came_in,
    )


def view_aside(served: Served) -> AsideView:
    """A row that was set aside."""
    return AsideView(served.ticket.id, served.ticket.submitted, served.out_since, served.background)


def view_prefill(served: Served) -> PrefillView:
    """A prompt as those who choose turns see it: its reading has begun, or its row is on its way to others."""
    left = served.prefill.total - served.prefill.done if served.prefill else 0
    return PrefillView(served.ticket.id, left, served.ticket.submitted, served.background)
