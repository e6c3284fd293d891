"""What tests of the engine's thread share: a model loaded by it, and a call that keeps it busy."""

from __future__ import annotations

import threading

from mtplxd.engine.engine import Engine
from mtplxd.families.load import LoadedModel, load_model
from mtplxd.packs.pack import Pack
from support.listening import PATIENCE_S


def load_on(engine: Engine, pack: Pack) -> LoadedModel:
    """A model loaded by the thread that uses it."""
    return engine.call(lambda: load_model(pack), "loading").result(PATIENCE_S)


class Held:
    """Keeps the engine busy with a call until released, so that what is submitted meanwhile waits."""

    def __init__(self, engine: Engine) -> None:
        self._open, begun = threading.Event(), threading.Event()

        def wait() -> None:
            begun.set()
            assert self._open.wait(PATIENCE_S)

        self.future = engine.call(wait, "measuring")
        assert begun.wait(PATIENCE_S)

    def release(self) -> None:
        self._open.set()
