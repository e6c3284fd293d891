"""A model that says what a test tells it to: its next token follows a script, its head is right or wrong at will.

Slots of its caches hold token ids. Logits are so far apart that sampling says the same as greedy decoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from mtplxd.families.caches import RowCache
from mtplxd.families.load import LoadedModel
from mtplxd.families.protocols import LayerCache
from mtplxd.platform.mlx import Array, mx
from support.table_model import write_slots

VOCAB = 300
SURE = 60.0


class ScriptedTarget:
    """After position i comes script[i + 1], whatever the text; NaN logits where `broken` names the position to come."""

    vocab_size = VOCAB

    def __init__(self, script: Sequence[int], broken: Iterable[int] = ()) -> None:
        self._table = _table(script, broken)

    def make_cache(self, rows: int) -> list[LayerCache]:
        return [RowCache(rows)]

    def run(self, tokens: Array, cache: list[LayerCache]) -> tuple[Array, tuple[Array, ...]]:
        _, own = write_slots(cache[0], tokens)
        hidden = own[..., None].astype(mx.float32)
        return hidden, (hidden,)

    def logits(self, hidden: Array) -> Array:
        return self._table[hidden[..., 0].astype(mx.int32) + 1]


class ScriptedHead:
    """Drafts the script, but another token at `wrong` positions and NaN logits at `broken` ones."""

    depth_max = 8
    draft_vocab = None

    def __init__(self, script: Sequence[int], wrong: Iterable[int] = (), broken: Iterable[int] = ()) -> None:
        drafted = list(script)
        for place in wrong:
            drafted[place] = (drafted[place] + 1) % VOCAB
        self._table = _table(drafted, broken)

    def make_cache(self, rows: int, _body_cache: Sequence[LayerCache]) -> list[LayerCache]:
        return [RowCache(rows)]

    def absorb(self, tokens: Array, taps: tuple[Array, ...], cache: list[LayerCache]) -> Array:
        write_slots(cache[0], tokens)
        return taps[0] + 1

    def extend(self, tokens: Array, state: Array, cache: list[LayerCache]) -> Array:
        write_slots(cache[0], tokens)
        return state + 1

    def logits(self, state: Array) -> Array:
        return self._table[state[..., 0].astype(mx.int32) + 1]


def scripted_model(
    tokenizer: Any,
    script: Sequence[int],
    *,
    wrong: Iterable[int] = (),
    broken: Iterable[int] = (),
    head_broken: Iterable[int] = (),
    context: int = 400,
    eos: Iterable[int] = (2,),
) -> LoadedModel:
    """A loaded model whose text is `script`, prompt included, and then token 0 for ever."""
    whole = [*script, *[0] * (context + 16 - len(script))]
    return LoadedModel(
        name="scripted",
        pack=None,  # type: ignore[arg-type]
        target=ScriptedTarget(whole, broken),
        head=ScriptedHead(whole, wrong, head_broken),
        tokenizer=tokenizer,
        bytes_body=0,
        bytes_head=0,
        depth_max=8,
        context=context,
        eos_ids=frozenset(eos),
    )


def _table(script: Sequence[int], broken: Iterable[int]) -> Array:
    table = np.zeros((len(script), VOCAB), np.float32)
    table[np.arange(len(script)), script] = SURE
    for place in broken:
        table[place] = np.nan
    made = mx.array(table)
    mx.eval(made)
    return made
