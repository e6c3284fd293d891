"""A table model as the engine loads models, heads of every kind for it, and coupled texts from the equations alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mtplxd.engine.request import SamplerSettings
from mtplxd.families.load import LoadedModel
from mtplxd.families.protocols import LayerCache, Taps
from mtplxd.platform.mlx import Array
from support.reference_laws import reference_law, shaped_logits
from support.table_matcher import TableLanguage
from support.table_model import TableHead, TableTarget

IDS = 24


def table_model(
    tokenizer: Any, target: TableTarget, head: object, *, eos: frozenset[int] = frozenset(), width: int = 5
) -> LoadedModel:
    """A loaded model of a table; nothing of a pack is behind it."""
    return LoadedModel(
        name="table",
        pack=None,  # type: ignore[arg-type]
        target=target,
        head=head,  # type: ignore[arg-type]
        tokenizer=tokenizer,
        bytes_body=0,
        bytes_head=0,
        depth_max=8,
        context=1000,
        eos_ids=eos,
        fixed_width=width,
    )


class FailingHead:
    """A table head that raises at the n-th call of one of its methods."""

    depth_max = 8

    def __init__(self, head: TableHead, method: str, call: int) -> None:
        self._head, self._method, self._left = head, method, call
        self.draft_vocab = head.draft_vocab

    def make_cache(self, rows: int, body_cache: Sequence[LayerCache]) -> list[LayerCache]:
        return self._head.make_cache(rows, body_cache)

    def absorb(self, tokens: Array, taps: Taps, cache: list[LayerCache]) -> Array:
        self._count("absorb")
        return self._head.absorb(tokens, taps, cache)

    def extend(self, tokens: Array, state: Array, cache: list[LayerCache]) -> Array:
        self._count("extend")
        return self._head.extend(tokens, state, cache)

    def logits(self, state: Array) -> Array:
        self._count("logits")
        return self._head.logits(state)

    def _count(self, method: str) -> None:
        if method == self._method:
            self._left -= 1
            if self._left < 0:
                raise RuntimeError(f"{method} does not work")


def race_times(seed: int, position: int, size: int) -> np.ndarray:
    """The exponential times [size] of a position, float32, as documented: Philox, stream 1, through float64."""
    generator = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, 1, position]))
    bits = generator.integers(0, 1 << 32, size, np.uint32)
    return (-np.log((bits + 0.5) * 2.0**-32)).astype(np.float32)


def coupled_text(
    target: TableTarget,
    prompt: Sequence[int],
    sampler: SamplerSettings,
    count: int,
    grammar: TableLanguage | None = None,
) -> list[int]:
    """The text of a seed: at each position the largest of log p + Gumbel noise, nothing else."""
    text: tuple[int, ...] = ()
    while len(text) < count:
        state = grammar.state(text) if grammar else None
        allowed = None if grammar is None or state is None else frozenset(grammar.moves[state])
        logits = target.logits_after([*prompt, *text])
        law = reference_law(shaped_logits(logits, sampler, tuple(prompt), text, allowed), sampler)
        gumbel = -np.log(
            race_times(sampler.seed, len(prompt) + len(text), target.vocab_size).astype(np.float64)
        )
        with np.errstate(divide="ignore"):
            text = (*text, int(np.argmax(np.log(law) + gumbel)))
    return list(text)
