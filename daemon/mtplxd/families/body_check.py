"""Compares a body as it is driven here with mlx-lm's own class on its own caches, over a few tokens, at load.

What is driven here differs in its caches, in layers that were opened, and in how logits are made of a hidden state;
whatever of that goes wrong with a class shows here before anybody reads its text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mtplxd.errors import FailedPrecondition
from mtplxd.families.anatomy import find_anatomy
from mtplxd.families.body import Body
from mtplxd.families.protocols import LayerCache
from mtplxd.platform.mlx import Array, mx

PARTS = (6, 1, 1, 4)
"""Positions of the forwards that are compared; before the last one, other tokens are driven and rolled back."""
TOLERANCES = {mx.float32: 1e-3, mx.float16: 5e-2, mx.bfloat16: 5e-2}
"""Largest difference by dtype, as a share of the logits' spread. Half of a forward's positions may be beyond it:
where two experts score the same, rounding picks one."""


def stock_logits(model: Any) -> list[Array]:
    """Logits [L, V] of each part, by the class itself."""
    from mlx_lm.models.cache import make_prompt_cache

    cache = make_prompt_cache(model)
    found = []
    for tokens in checked_parts(find_anatomy(model).vocab_size):
        found.append(model(mx.array([tokens]), cache=cache)[0])
        mx.eval(found[-1])
    return found


def check_body(body: Body, expected: Sequence[Array]) -> list[list[LayerCache]]:
    """Raises FailedPrecondition where the body's logits are not those of `stock_logits`.

    Gives copies of its caches, as they were behind each part but the last.
    """
    behind: list[list[LayerCache]] = []
    for place, (found, logits) in enumerate(zip(_driven_logits(body, behind), expected, strict=True)):
        wrong = difference(found, logits[-len(found) :])
        if wrong > tolerance(logits):
            kind = getattr(body.model, "model_type", type(body.model).__name__)
            raise FailedPrecondition(
                "this body does not compute what its class does",
                f"{kind}, forward {place + 1} is {wrong:.1%} off",
                "use another model",
            )
    return behind


def _driven_logits(body: Body, behind: list[list[LayerCache]]) -> Iterator[Array]:
    """Logits of each part; of the last one those behind its first position, once other tokens were there."""
    cache, begin = body.make_cache(1), 0
    *parts, last = checked_parts(body.vocab_size)
    for tokens in parts:
        yield _forward(body, tokens, cache)
        begin += len(tokens)
        behind.append([layer.copy_row(0) for layer in cache])
    _forward(body, [last[0], *reversed(last[1:])], cache)
    for layer in cache:
        layer.roll_back([begin + 1])
    yield _forward(body, last[1:], cache)


def _forward(body: Body, tokens: Sequence[int], cache: list[LayerCache]) -> Array:
    logits = body.logits(body.run(mx.array([tokens]), cache)[0])[0]
    mx.eval(logits)
    return logits


def checked_parts(vocab: int) -> Iterator[list[int]]:
    """Token ids of each forward, all different where the vocabulary allows."""
    begin = 0
    for count in PARTS:
        yield [(place + 1) * 61 % vocab for place in range(begin, begin + count)]
        begin += count


def tolerance(logits: Array) -> float:
    """The largest difference of logits of their dtype."""
    return TOLERANCES.get(logits.dtype, TOLERANCES[mx.bfloat16])


def difference(found: Array, expected: Array) -> float:
    """The middle one of the positions' differences [L, V], each as a share of its logits' spread.

    A class whose own logits are no numbers is not what is checked here.
    """
    if not bool(mx.all(mx.isfinite(expected)).item()):
        return 0.0
    found, expected = found.astype(mx.float32), expected.astype(mx.float32)
    spread = mx.sqrt(mx.var(expected, axis=-1)) + 1e-6
    wrong = mx.sqrt(mx.mean(mx.square(found - expected), axis=-1)) / spread
    middle = mx.sort(wrong)[(len(wrong) - 1) // 2]
    return float(mx.where(mx.isfinite(middle), middle, mx.inf).item())
