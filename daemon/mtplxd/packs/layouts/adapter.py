"""Our own trained heads, `adapter`: one block of the llama family fed from several taps of a body of any family."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mtplxd.packs.layouts.row import SINGLE_LAYER_DEPTH, Config, Layout, Seen, Shapes, under

BLOCK = "block"
"""In the metadata: the sizes of a block that is not of the body's own kind, as JSON."""
_MOST = 1 << 31


@dataclass(frozen=True)
class BlockSizes:
    """A block of the llama family beside a body of another one; of a body of the same it has the body's own sizes."""

    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    eps: float

    def text(self) -> str:
        """As the metadata has it."""
        return json.dumps(asdict(self), sort_keys=True)

    def config(self) -> dict[str, Any]:
        """What of a body's config it stands in for."""
        return {
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "attention_bias": False,
            "mlp_bias": False,
        }


def parse_block(metadata: Mapping[str, str]) -> BlockSizes | None:
    """The sizes that an adapter's metadata states, None without any. Raises ValueError for what are none."""
    if BLOCK not in metadata:
        return None
    try:
        sizes = BlockSizes(**json.loads(metadata[BLOCK]))
        counts = (sizes.heads, sizes.kv_heads, sizes.head_dim)
        possible = (
            all(type(count) is int and 1 <= count <= _MOST for count in counts)
            and sizes.heads % sizes.kv_heads == 0
            and all(type(one) in (int, float) and 0 < one < _MOST for one in (sizes.rope_theta, sizes.eps))
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"its {BLOCK} states no sizes") from error
    if not possible:
        raise ValueError(f"its {BLOCK} states impossible sizes")
    return sizes


def llama_block(config: Config, prefix: str, mlp_width: int) -> Shapes:
    """Tensors of one block of the llama family, with an MLP of `mlp_width`."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    queries, keys = heads * head_dim, (config.get("num_key_value_heads") or heads) * head_dim
    linear = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (mlp_width, hidden),
        "mlp.up_proj": (mlp_width, hidden),
        "mlp.down_proj": (hidden, mlp_width),
    }
    shapes: Shapes = {f"{prefix}{name}.weight": shape for name, shape in linear.items()}
    for name, shape in linear.items():
        if config.get("attention_bias" if name.startswith("self_attn") else "mlp_bias"):
            shapes[f"{prefix}{name}.bias"] = shape[:1]
    shapes[f"{prefix}input_layernorm.weight"] = (hidden,)
    shapes[f"{prefix}post_attention_layernorm.weight"] = (hidden,)
    return shapes


def parse_taps(metadata: Mapping[str, str]) -> tuple[int, ...]:
    """The layer counts after which an adapter's taps are taken, () when it does not say them."""
    text = metadata.get("taps", "")
    return tuple(map(int, text.split(","))) if re.fullmatch(r"\d+(,\d+)*", text) else ()


def _adapter_expected(seen: Seen) -> Shapes:
    sizes, tensors = parse_block(seen.metadata), seen.tensors
    config = {**seen.config, **(sizes.config() if sizes else {})}
    hidden, taps = config["hidden_size"], len(parse_taps(seen.metadata))
    gate = tensors.get("mtp.layers.0.mlp.gate_proj.weight")
    mlp_width = gate.shape[0] if gate and gate.shape else config["intermediate_size"]
    shapes = llama_block(config, "mtp.layers.0.", mlp_width)
    shapes |= {f"mtp.hnorm.{tap}.weight": (hidden,) for tap in range(taps)}
    shapes |= {f"mtp.absent.{tap}": (hidden,) for tap in range(taps - 1)}
    shapes |= {"mtp.enorm.weight": (hidden,), "mtp.norm.weight": (hidden,)}
    shapes["mtp.fc.weight"] = (hidden, (1 + taps) * hidden)
    if draft := tensors.get("mtp.draft_vocab"):
        shapes["mtp.draft_vocab"] = (draft.size,)
    return shapes


def _adapter_problems(seen: Seen) -> list[str]:
    config, metadata = seen.config, seen.metadata
    found = []
    for key, accepted in (("format", "1"), ("recursion", "post"), ("concat", "embed_first")):
        if metadata.get(key) != accepted:
            found.append(f"{key} is {metadata.get(key)}, this build reads {accepted}")
    taps, layers = parse_taps(metadata), config["num_hidden_layers"]
    if not taps or list(taps) != sorted(set(taps)) or taps[0] < 1 or taps[-1] != layers:
        found.append(f"taps are {metadata.get('taps')}, not rising layer counts up to {layers}")
    if not re.fullmatch(r"[1-9]\d?", metadata.get("depth_max", str(SINGLE_LAYER_DEPTH))):
        found.append(f"depth_max is {metadata.get('depth_max')}, not a number from 1 to 99")
    return found


def _adapter_depth(seen: Seen) -> int:
    text = seen.metadata.get("depth_max", "")
    return int(text) if re.fullmatch(r"[1-9]\d?", text) else SINGLE_LAYER_DEPTH


def _adapter_layers(seen: Seen) -> int:
    return len({name.split(".")[2] for name in seen.tensors if name.startswith("mtp.layers.")})


ROWS = (
    Layout(
        name="adapter",
        kind="adapter",
        families=frozenset({"llama"}),
        owns=under("mtp."),
        signature=("mtp.hnorm.0.weight",),
        expected=_adapter_expected,
        problems=_adapter_problems,
        depth=_adapter_depth,
        layers=_adapter_layers,
        any_family=lambda seen: BLOCK in seen.metadata,
    ),
)
