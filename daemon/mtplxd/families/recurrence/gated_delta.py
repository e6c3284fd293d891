"""The gated delta rule with one decay a head: Qwen3-Next, Qwen3.5 and what follows them, OLMo hybrid.

On the CPU, where mlx-lm takes one operation after the other, this takes the same ones and keeps each position's
correction, so that a replay needs not read the state to find it: the same bits for half the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mtplxd.families.recurrence.update import Call, Traced, Update
from mtplxd.platform.mlx import Array, mx

MIXERS = ("qwen3_next.Qwen3NextGatedDeltaNet", "qwen3_5.GatedDeltaNet", "olmo_hybrid.GatedDeltaNet")


@dataclass(frozen=True, slots=True)
class Corrections:
    """What the rule writes: by position the decay, [B, heads, 1 or key], the key [B, heads, key], and the correction of
    the value there [B, heads, value]."""

    decays: list[Array]
    keys: list[Array]
    values: list[Array]

    def state_after(self, before: Array | None, count: int) -> Array:
        """The state [B, heads, value, key] once only the first `count` positions have followed `before`."""
        state = _empty(self.values[0], self.keys[0]) if before is None else before
        for place in range(count):
            state = state * self.decays[place][..., None, :]
            state = state + self.keys[place][..., None, :] * self.values[place][..., None]
        return state

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(int(array.nbytes) for array in (*self.decays, *self.keys, *self.values))


def trace_corrections(call: Call) -> Traced | None:
    """Computes the stretch as mlx-lm's operations do; None where it has a kernel or compiles them."""
    if mx.default_device().type != mx.DeviceType.cpu or call.arguments.get("mask") is not None:
        return None
    q, k, v = (call.arguments[name] for name in ("q", "k", "v"))
    decay, strength = _gates(call.arguments)
    repeats = v.shape[2] // k.shape[2]
    q, k = (mx.repeat(some, repeats, axis=2) if repeats > 1 else some for some in (q, k))
    begin = call.arguments.get("state")
    state = _empty(v[:, 0], k[:, 0]) if begin is None else begin
    left, outputs = Corrections([], [], []), []
    for place in range(call.count):
        now, key = decay[:, place], k[:, place]
        state = state * now[..., None, :]
        recalled = (state * key[..., None, :]).sum(axis=-1)
        value = (v[:, place] - recalled) * strength[:, place][..., None]
        state = state + key[..., None, :] * value[..., None]
        outputs.append((state * q[:, place][..., None, :]).sum(axis=-1).astype(q.dtype))
        left.decays.append(now)
        left.keys.append(key)
        left.values.append(value)
    return mx.stack(outputs, axis=1), state, left


def _gates(arguments: dict[str, Any]) -> tuple[Array, Array]:
    """How much stays, [B, L, heads, 1 or key], and how strongly a value is written, [B, L, heads]."""
    from mlx_lm.models.gated_delta import compute_g, compute_lower_bound_g

    strength = mx.sigmoid(arguments["b"])
    if arguments.get("allow_neg_eigval"):
        strength = strength * 2.0
    rates, bound = (arguments["A_log"], arguments["a"], arguments["dt_bias"]), arguments.get("lower_bound")
    decay = compute_g(*rates) if bound is None else compute_lower_bound_g(*rates, bound)
    return decay if decay.ndim == 4 else decay[..., None], strength


def _empty(value: Array, key: Array) -> Array:
    """The state before anything is written, for a value [B, heads, value] and a key [B, heads, key]."""
    return mx.zeros((*value.shape, key.shape[-1]), mx.float32)


UPDATE = Update(
    name="gated_delta_update",
    along={"q": 1, "k": 1, "v": 1, "a": 1, "b": 1},
    state="state",
    sequential=True,
    trace=trace_corrections,
)
