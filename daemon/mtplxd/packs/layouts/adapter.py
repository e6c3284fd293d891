"""Our own trained heads, `adapter`: one block of the llama family fed from several taps of the body."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mtplxd.packs.layouts.row import SINGLE_LAYER_DEPTH, Config, Layout, Seen, Shapes, under


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
    config, tensors = seen.config, seen.tensors
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
    ),
)
