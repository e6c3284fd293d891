"""The real loader: `families`, on the engine thread, which imports model libraries after the start."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mtplxd.packs.memory import margin_bytes
from mtplxd.packs.pack import Pack
from mtplxd.platform.heap import give_back_freed
from mtplxd.residency.collaborators import Backend
from mtplxd.residency.depth_memory import DepthMemory
from mtplxd.residency.manager import default_depth

if TYPE_CHECKING:
    from mtplxd.families.load import LoadedModel

_OUT_OF_MEMORY = ("unable to allocate", "insufficient memory", "bad_alloc", "out of memory")


class ModelLoader:
    """Loads through `families` and gives memory back through MLX's allocator. Holds no model.

    `beat` hears of every step of a load, so that a long one is not taken for an engine that stalls; `forget` of every
    model that goes. `depths` keeps what is learnt of depths beyond the model's time in memory.
    """

    def __init__(
        self,
        beat: Callable[[], None],
        forget: Callable[[LoadedModel], None],
        depths: DepthMemory | None = None,
    ) -> None:
        self._beat, self._forget, self._depths = beat, forget, depths

    def backend(self) -> Backend:
        """The CPU backend computes in float32; Metal says how much it keeps resident."""
        from mtplxd.platform.mlx import compute_dtype, mx

        limit = device_limit(mx)
        return Backend(widens=compute_dtype() is not None, limit=limit or None)

    def load(
        self,
        pack: Pack,
        *,
        plain: bool,
        depth_max: int | None,
        progress: Callable[[int, int], None],
        cancelled: Callable[[], bool],
    ) -> LoadedModel:
        """Raises the typed errors of `families`, and MemoryError when the allocator gives up."""
        from mtplxd.engine.choosing import controller_of
        from mtplxd.engine.footprint import measure_footprint
        from mtplxd.engine.identity import FREE, facts_of
        from mtplxd.families.load import load_model
        from mtplxd.platform.mlx import compute_dtype

        def step(done: int, total: int) -> None:
            self._beat()
            progress(done, total)

        model: LoadedModel | None = None
        try:
            model = load_model(pack, plain=plain, depth_max=depth_max, progress=step, cancelled=cancelled)
            model.footprint = measure_footprint(model)
            facts_of(model, FREE)  # what is kept of its prompts goes by them: the first of them need not wait
            controller_of(model, start=default_depth(pack, model))
            if self._depths is not None:
                self._depths.loaded(model, "gpu" if compute_dtype() is None else "cpu")
            give_back()  # what weights were read and widened in: as much as a tenth of the model
            return model
        except BaseException as error:
            model = None
            _let_go(error)
            if isinstance(error, RuntimeError) and any(text in str(error).lower() for text in _OUT_OF_MEMORY):
                raise MemoryError(str(error)) from None
            raise

    def free(self, models: list[LoadedModel | None]) -> None:
        """Drops the models and empties the allocator's cache."""
        for model in models:
            if model is not None:
                self._forget(model)
                if self._depths is not None:
                    self._depths.leaving(model)
        model = None  # nothing here may keep it
        models.clear()
        gc.collect()
        give_back()


def device_limit(mx: Any) -> int:
    """Bytes that may be planned with of what the device keeps resident, 0 where it does not say: at its very limit,
    Metal takes whole machines down.
    """
    most = int(mx.device_info().get("max_recommended_working_set_size", 0))
    return most - margin_bytes(most) if most else 0


def _let_go(error: BaseException | None) -> None:
    """Frees what a load had read before it failed: the frames that an error passed through keep it for as long as
    anybody keeps the error, and who waits for the load and whoever looks at status do."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
    gc.collect()
    give_back()


def give_back() -> None:
    """Empties the allocator's cache, and gives what the C library keeps to the system.

    Layers are made with random weights that are never computed, as the pack's take their place; but each draw hangs on
    the one before. Computing the last one's state lets go of a chain that grows with every load.
    """
    from mtplxd.platform.mlx import mx

    mx.eval(mx.random.state)
    mx.clear_cache()
    give_back_freed()
