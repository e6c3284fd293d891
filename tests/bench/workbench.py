"""A model on an engine of its own, for commands that decode in this process. Nothing is timed here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from mtplxd.engine.engine import Engine
from mtplxd.engine.events import Event, Finished, Text
from mtplxd.engine.request import Request, SamplerSettings
from mtplxd.packs.pack import Pack
from mtplxd.tune.prompts import Suite, render_prompts

T = TypeVar("T")


class Workbench:
    """Loads a pack; runs functions and requests on the engine thread, as the daemon does."""

    def __init__(self, pack: Pack, *, plain: bool) -> None:
        self.engine = Engine()
        self.engine.start()
        self.model = self.call(lambda: _load(pack, plain))

    def call(self, fn: Callable[[], T]) -> T:
        """Runs `fn` on the engine thread."""
        return self.engine.call(fn, "measuring").result()

    def render(self, suite: Suite) -> list[list[int]]:
        """Each prompt's token ids."""
        return render_prompts(suite, self.model.tokenizer)

    def decode(
        self,
        prompt: list[int],
        sampler: SamplerSettings,
        depth: int,
        max_tokens: int,
        sink: Callable[[Event], None] = lambda _: None,
        **extra: Any,
    ) -> Finished:
        """One answer, stop tokens ignored; only for a function that `call` runs. `extra` are the request's own."""
        request = Request(
            id="bench",
            client="bench",
            model=self.model,
            prompt=list(prompt),
            sampler=sampler,
            max_tokens=max_tokens,
            ignore_eos=True,
            depth=depth,
            **extra,
        )
        return self.engine.run_inline(request, sink)


def collect_tokens(into: list[int]) -> Callable[[Event], None]:
    """A sink that keeps an answer's token ids."""

    def sink(event: Event) -> None:
        if isinstance(event, Text):
            into.extend(event.tokens)

    return sink


def _load(pack: Pack, plain: bool) -> Any:
    from mtplxd.families.load import load_model

    return load_model(pack, plain=plain)
