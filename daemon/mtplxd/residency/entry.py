"""One model in memory, or on its way in or out: its record, its public view, and the lease that keeps it.

Records only: who loads, evicts and counts is the manager's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from mtplxd.engine.depth import DepthController
from mtplxd.errors import MtplxError
from mtplxd.packs.pack import Pack
from mtplxd.residency.plan import Need
from mtplxd.tune.tuned import TunedDepth

if TYPE_CHECKING:
    from mtplxd.families.load import LoadedModel

State = Literal["loading", "ready", "unloading", "failed"]
OnProgress = Callable[[int, int], None]
"""Takes tensors done and tensors in all; called on the engine thread."""


@dataclass(frozen=True, slots=True)
class ResidentView:
    """What status shows of an entry. Seconds and bytes; `keep_alive_s` -1 = until memory is needed, `keep_alive_from`
    who said so: a setting's source, `load` or `request`. A `pinned` one stays whoever needs memory and however long it
    idles.

    `apart` says why its requests are decoded in turn, "" where they are decoded together. `tuned` is what tuning chose,
    `tuned_used` whether requests that name no depth have it; `traffic` is a depth controller's state, as far as known.
    """

    name: str
    path: str
    family: str
    state: State
    tier: str
    bytes_body: int
    bytes_head: int
    depth: int
    depth_max: int
    keep_alive_s: float
    in_use: int
    idle_s: float
    degraded: tuple[str, ...] = ()
    error: str = ""
    apart: str = ""
    store: str = ""
    tuned: TunedDepth | None = None
    tuned_used: bool = False
    traffic: Mapping[str, Any] = field(default_factory=dict)
    keep_alive_from: str = "default"
    pinned: bool = False


@dataclass(slots=True)
class Waiter:
    """One caller waiting for a load."""

    future: Future[Lease]
    progress: OnProgress | None

    @property
    def gone(self) -> bool:
        return self.future.cancelled()


@dataclass(slots=True)
class Entry:
    """A pack's place in memory; `key` is its real path, `names` every name it was asked for by.

    `depth` and `auto` are the pack's, or with `chosen` those it was loaded with.
    """

    key: str
    pack: Pack
    tier: str
    reasons: tuple[str, ...]
    headless: bool
    depth_max: int | None
    keep_alive_s: float
    keep_alive_from: str = "default"
    pinned: bool = False
    state: State = "loading"
    need: Need = field(default_factory=lambda: Need(0))
    depth: int = 0
    auto: bool = True
    chosen: bool = False
    tuned: TunedDepth | None = None
    store: str | None = None
    model: LoadedModel | None = None
    in_use: int = 0
    idle_since: float = 0.0
    names: set[str] = field(default_factory=set)
    waiters: list[Waiter] = field(default_factory=list)
    error: MtplxError | None = None
    progress: tuple[int, int] = (0, 0)

    @property
    def abandoned(self) -> bool:
        """Nobody waits for this load any more."""
        return all(waiter.gone for waiter in self.waiters)

    @property
    def idle(self) -> bool:
        return self.state == "ready" and self.in_use == 0

    @property
    def default(self) -> tuple[int, bool]:
        """The depth of requests that name none, and whether it is chosen as their text goes: what it was loaded with,
        else what tuning chose, else the pack's.
        """
        if self.chosen or self.tuned is None or self.model is None or self.model.head is None:
            return self.depth, self.auto
        if self.tuned.auto:
            return self.depth, True
        return min(self.tuned.depth, self.model.depth_max), False

    def keep(self, seconds: float, source: str) -> None:
        """Stays so long while nobody uses it; who says so takes back that it was to stay whatever comes."""
        self.keep_alive_s, self.keep_alive_from, self.pinned = seconds, source, False

    def report(self, done: int, total: int) -> None:
        """Hands a load's progress to everybody who waits for it."""
        self.progress = (done, total)
        for waiter in tuple(self.waiters):
            if waiter.progress is not None and not waiter.gone:
                waiter.progress(done, total)

    def view(self, now: float) -> ResidentView:
        model = self.model
        headed = model is not None and model.head is not None
        held = Need(0) if self.state == "failed" else self.need
        return ResidentView(
            name=self.pack.name,
            path=str(self.pack.path),
            family=self.pack.family,
            state=self.state,
            tier=self.tier,
            bytes_body=model.bytes_body if model else held.body,
            bytes_head=model.bytes_head if model else held.head,
            depth=self.default[0],
            depth_max=model.depth_max if model else 0,
            keep_alive_s=self.keep_alive_s,
            in_use=self.in_use,
            idle_s=now - self.idle_since if self.idle else 0.0,
            degraded=model.troubles if model else (),
            error=str(self.error) if self.error else "",
            apart=model.apart if model else "",
            store=self.store or "",
            tuned=self.tuned if headed else None,
            tuned_used=not self.chosen,
            traffic=self._traffic() if headed else {},
            keep_alive_from=self.keep_alive_from,
            pinned=self.pinned,
        )

    def _traffic(self) -> Mapping[str, Any]:
        """What the controller said last; before that, what was tuned."""
        controller = getattr(self.model, "depths", None)
        latest = controller.latest if isinstance(controller, DepthController) else {}
        return latest or (self.tuned.curve if self.tuned else {})


class Lease:
    """Keeps a model in memory until released. `depth` is the model's default depth, with `auto` where it begins, and
    `store` what its requests have to do with the disk, None where it was not said.

    `release` may be called from any thread and more than once; `model` must not be used after it.
    """

    def __init__(
        self,
        model: LoadedModel,
        depth: int,
        give_back: Callable[[], None],
        *,
        auto: bool = True,
        store: str | None = None,
    ) -> None:
        self._model: LoadedModel | None = model
        self._give_back = give_back
        self.depth, self.auto, self.store = depth, auto, store

    @property
    def model(self) -> LoadedModel:
        if self._model is None:
            raise RuntimeError("the lease was released")
        return self._model

    def release(self) -> None:
        model, self._model = self._model, None
        if model is not None:
            del model
            self._give_back()
