"""What residency asks of others: the engine thread, a loader, packs on disk, memory readings. Interfaces."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from mtplxd.packs.pack import Pack
from mtplxd.residency.plan import Need

if TYPE_CHECKING:
    from mtplxd.families.load import LoadedModel

T = TypeVar("T")


@dataclass(frozen=True)
class Verdict:
    """What a pack is worth: its tier with reasons, and whether its head is there and complete.

    `depth_max` is how far its head drafts: 0 without a head, None where its head cannot be bound; `depth_limit` is how
    far a user may raise that, None where nothing is known.
    """

    tier: str
    reasons: tuple[str, ...]
    head_whole: bool
    depth_max: int | None = None
    depth_limit: int | None = None


@dataclass(frozen=True)
class Backend:
    """What MLX computes on. `widens`: halves compute in float32; `limit`: bytes it can keep resident, if it says."""

    widens: bool
    limit: int | None = None


class EngineCalls(Protocol):
    """The part of the engine that loads and unloads use."""

    def call(self, fn: Callable[[], T], reason: str) -> Future[T]:
        """Runs fn on the engine thread between requests."""


class Loader(Protocol):
    """Makes and frees models. Every method runs on the engine thread."""

    def backend(self) -> Backend:
        """What computes here."""

    def load(
        self,
        pack: Pack,
        *,
        plain: bool,
        depth_max: int | None,
        progress: Callable[[int, int], None],
        cancelled: Callable[[], bool],
    ) -> LoadedModel:
        """Reads the weights. Raises MemoryError when the machine has no more to give."""

    def free(self, models: list[LoadedModel | None]) -> None:
        """Empties the list, the last reference to each model, and gives the memory back."""


class Catalog(Protocol):
    """The packs on disk."""

    def resolve(self, name: str) -> Pack:
        """The pack of a name, path or repository. Raises NotFound."""

    def verdict(self, pack: Pack) -> Verdict:
        """Tier and head of a pack."""

    def need(self, pack: Pack, *, headless: bool, widen: bool) -> Need:
        """Its part of the memory plan, from file headers alone."""

    def fingerprint(self, pack: Pack) -> None:
        """Makes sure that what its weights are is known; reads them once. Never on the engine thread."""


class Memory(Protocol):
    """Readings in bytes."""

    total: int

    def free(self) -> int: ...

    def used(self) -> int: ...

    def cheap_free(self) -> int | None: ...
