"""What a model takes in memory and what a machine may give: arithmetic over sizes in bytes, from headers and config.

It reads nothing and knows no system; the one plan of `inspect` and of the daemon.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mtplxd.packs.headers import TensorInfo
from mtplxd.packs.pack import Pack

MIB = 1 << 20
GIB = 1 << 30

KV_FLOOR_TOKENS = 4096
"""Tokens of context a model must have room for before it is loaded."""
PREFILL_TOKENS = 512
"""Positions of the largest forward; its activations are the transient part."""
ROUND_ROWS = 16
"""Rows of logits a round holds at once, target and head together."""
RUNTIME_BYTES = 200 * MIB
"""Interpreter, libraries and tokenizer tables, once a process."""
_WIDENED = {"F16": 2, "BF16": 2, "F8_E4M3": 4}
_DEQUANTISED = {"F8_E4M3": 2}
"""How many times its stored bytes a tensor takes in memory, where halves compute in float32 and where they do not."""
_RESERVE_LOW, _RESERVE_HIGH = 2 * GIB, 16 * GIB
_MARGIN_LOW, _MARGIN_HIGH = 512 * MIB, 4 * GIB
_CACHE_LOW, _CACHE_HIGH = 32 * MIB, GIB


@dataclass(frozen=True)
class Need:
    """What one model takes: body and head in the compute dtype, KV of the floor, transients; bytes."""

    body: int
    head: int = 0
    kv: int = 0
    transients: int = 0

    @property
    def total(self) -> int:
        return self.body + self.head + self.kv + self.transients


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a row of a loaded model takes, bytes.

    `position`: a slot of the caches that keep every position, body's and head's; `windows`: the most slots of each
    cache that keeps only the newest, and bytes a slot; `row`: whatever its length.
    """

    position: int = 0
    row: int = 0
    windows: tuple[tuple[int, int], ...] = ()

    def bytes(self, rows: int, slots: int) -> int:
        """Of `rows` rows with `slots` slots each."""
        windows = sum(min(most, slots) * each for most, each in self.windows)
        return rows * (self.row + slots * self.position + windows)


def budget_bytes(total: int, explicit: int | None = None, device_limit: int | None = None) -> int:
    """What the daemon may use of a machine with `total` bytes.

    Without an explicit budget a quarter is left to others, at least 2 and at most 16 GiB. An explicit one
    plans both up and down, but never into the machine's margin or above the device's own limit.
    """
    ceiling = total - margin_bytes(total)
    if device_limit is not None:
        ceiling = min(ceiling, device_limit)
    if explicit is not None:
        return max(0, min(explicit, ceiling))
    reserve = min(max(total // 4, _RESERVE_LOW), _RESERVE_HIGH)
    return max(0, min(total - reserve, ceiling))


def margin_bytes(total: int) -> int:
    """Free memory that a load must leave, whatever the budget says."""
    return min(max(total // 16, _MARGIN_LOW), _MARGIN_HIGH)


def cache_bytes(budget: int) -> int:
    """What the allocator may keep for the next arrays of what the daemon may use."""
    return min(max(budget // 16, _CACHE_LOW), _CACHE_HIGH)


def need_of(
    config: Mapping[str, Any],
    body: Iterable[TensorInfo],
    head: Iterable[TensorInfo],
    *,
    widen: bool,
    context: int,
) -> Need:
    """The plan of one model from config and headers. `widen`: halves compute in float32 (CPU backend)."""
    text = _text_of(config)
    return Need(
        body=tensor_bytes(body, widen),
        head=tensor_bytes(head, widen),
        kv=kv_bytes_per_token(config, widen) * min(context, KV_FLOOR_TOKENS),
        transients=_transients(text, 4 if widen else 2),
    )


def need_of_pack(pack: Pack, *, headless: bool, widen: bool) -> Need:
    """`need_of` for a pack, with or without its head."""
    body = [info for _, info in pack.body_tensors.values()]
    head = [] if headless else [info for _, info in pack.head_tensors.values()]
    return need_of(pack.config, body, head, widen=widen, context=pack.context)


def tensor_bytes(tensors: Iterable[TensorInfo], widen: bool) -> int:
    """Bytes in memory of tensors on disk; with `widen`, half-precision ones double. FP8 is never kept as it is."""
    factors = _WIDENED if widen else _DEQUANTISED
    return sum(tensor.nbytes * factors.get(tensor.dtype, 1) for tensor in tensors)


def kv_bytes_per_token(config: Mapping[str, Any], widen: bool) -> int:
    """Keys and values of one position over all layers and one head layer."""
    text = _text_of(config)
    heads = int(text.get("num_attention_heads", 1))
    width = int(text.get("head_dim") or int(text.get("hidden_size", 0)) // max(heads, 1))
    kv_heads = int(text.get("num_key_value_heads") or heads)
    layers = int(text.get("num_hidden_layers", 0)) + 1
    return 2 * layers * kv_heads * width * (4 if widen else 2)


def _transients(text: Mapping[str, Any], itemsize: int) -> int:
    """Activations of one prefill chunk (stream, projections, MLP) and the logits of one round."""
    hidden, mlp = int(text.get("hidden_size", 0)), int(text.get("intermediate_size") or 0)
    logits = ROUND_ROWS * int(text.get("vocab_size", 0))
    return itemsize * (PREFILL_TOKENS * (8 * hidden + 3 * mlp) + logits)


def _text_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part that describes the language model."""
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config
