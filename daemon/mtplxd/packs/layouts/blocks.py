"""Shapes of the blocks that published heads are built from, computed from a body's config.

Names are those of the published checkpoints, weights as in a plain one: `stored` knows of scales and packing.
"""

from __future__ import annotations

from typing import Any

from mtplxd.packs.layouts.row import Config, Shapes, Tensors

MAX_SIZE = 1 << 31
MAX_COUNT = 1 << 12
"""No head has more experts; a config that says so must not make a loop of it."""


def size(config: Config, name: str, default: Any = None) -> int:
    """A dimension of the config. Raises KeyError without one, ValueError when it cannot be one."""
    value = config.get(name)
    value = default if value is None else value
    if value is None:
        raise KeyError(name)
    if type(value) is not int or not 0 < value < MAX_SIZE:
        raise ValueError(f"{name} is {value!r}")
    return value


def count(config: Config, *names: str) -> int:
    """How many experts there are, under the first of these names; 0 when none is set."""
    name = next((name for name in names if config.get(name)), None)
    found = size(config, name) if name else 0
    if found > MAX_COUNT:
        raise ValueError(f"{name} is {found}")
    return found


def linears(prefix: str, shapes: dict[str, tuple[int, int]], biases: tuple[str, ...] = ()) -> Shapes:
    """`weight` of every linear layer, and `bias` of those named."""
    found: Shapes = {f"{prefix}{name}.weight": shape for name, shape in shapes.items()}
    return found | {f"{prefix}{name}.bias": shapes[name][:1] for name in biases}


def norms(prefix: str, names: tuple[str, ...], width: int) -> Shapes:
    return {f"{prefix}{name}.weight": (width,) for name in names}


def glue(prefix: str, hidden: int, names: tuple[str, ...], projection: str = "eh_proj") -> Shapes:
    """The head's norms and the projection of two hidden sizes to one."""
    return norms(prefix, names, hidden) | {f"{prefix}{projection}.weight": (hidden, 2 * hidden)}


BLOCK_NORMS = ("input_layernorm", "post_attention_layernorm")


def mlp(prefix: str, hidden: int, width: int, *, bias: bool = False) -> Shapes:
    """A gated MLP."""
    shapes = {"gate_proj": (width, hidden), "up_proj": (width, hidden), "down_proj": (hidden, width)}
    return linears(prefix, shapes, tuple(shapes) if bias else ())


def head_dim_of(config: Config) -> int:
    """As stated, else the hidden size shared out."""
    shared = size(config, "hidden_size") // size(config, "num_attention_heads")
    return size(config, "head_dim", shared or None)


def attention(config: Config, prefix: str, biases: tuple[str, ...] = (), *, qk_norm: bool = False) -> Shapes:
    """Grouped-query attention as in llama."""
    hidden, heads, dim = size(config, "hidden_size"), size(config, "num_attention_heads"), head_dim_of(config)
    keys = size(config, "num_key_value_heads", heads) * dim
    shapes = {
        "q_proj": (heads * dim, hidden),
        "k_proj": (keys, hidden),
        "v_proj": (keys, hidden),
        "o_proj": (hidden, heads * dim),
    }
    found = linears(prefix, shapes, biases)
    return found | norms(prefix, ("q_norm", "k_norm"), dim) if qk_norm else found


def latent_attention(config: Config, tensors: Tensors, prefix: str, *, indexer: bool = False) -> Shapes:
    """Multi-head latent attention, with the indexer of its sparse form on demand.

    `kv_b_proj` may be there as its two halves, as MLX's classes hold it.
    """
    hidden, heads, rank = (size(config, n) for n in ("hidden_size", "num_attention_heads", "kv_lora_rank"))
    rope, nope, value = (size(config, n) for n in ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
    biased = bool(config.get("attention_bias"))
    shapes, biases = {}, ["kv_a_proj_with_mqa", "o_proj"]
    found: Shapes = {}
    if config.get("q_lora_rank") is None:
        shapes["q_proj"] = (heads * (nope + rope), hidden)
    else:
        low = size(config, "q_lora_rank")
        shapes |= {"q_a_proj": (low, hidden), "q_b_proj": (heads * (nope + rope), low)}
        biases.append("q_a_proj")
        found |= norms(prefix, ("q_a_layernorm",), low)
    shapes["kv_a_proj_with_mqa"] = (rank + rope, hidden)
    if f"{prefix}embed_q.weight" in tensors or f"{prefix}unembed_out.weight" in tensors:
        found |= {
            f"{prefix}embed_q.weight": (heads, rank, nope),
            f"{prefix}unembed_out.weight": (heads, value, rank),
        }
    else:
        shapes["kv_b_proj"] = (heads * (nope + value), rank)
    shapes["o_proj"] = (hidden, heads * value)
    found |= norms(prefix, ("kv_a_layernorm",), rank)
    found |= linears(prefix, shapes, tuple(biases) if biased else ())
    return found | (_indexer(config, f"{prefix}indexer.") if indexer else {})


def _indexer(config: Config, prefix: str) -> Shapes:
    heads, dim = size(config, "index_n_heads"), size(config, "index_head_dim")
    hidden, low = size(config, "hidden_size"), size(config, "q_lora_rank")
    shapes = {"wq_b": (heads * dim, low), "wk": (dim, hidden), "weights_proj": (heads, hidden)}
    return linears(prefix, shapes) | {f"{prefix}k_norm.weight": (dim,), f"{prefix}k_norm.bias": (dim,)}


def routed(
    prefix: str, tensors: Tensors, experts: int, shapes: dict[str, tuple[int, int]], stack: dict[str, str]
) -> Shapes:
    """Expert weights as the tensors have them: stacked under the names of `stack`, else one by one."""
    if any(name.startswith(f"{prefix}switch_mlp.") for name in tensors):
        return {f"{prefix}switch_mlp.{stack[n]}.weight": (experts, *shape) for n, shape in shapes.items()}
    return {
        f"{prefix}experts.{expert}.{name}.weight": shape
        for expert in range(experts)
        for name, shape in shapes.items()
    }


GATED = {"gate_proj": "gate_proj", "up_proj": "up_proj", "down_proj": "down_proj"}


def gated_experts(prefix: str, tensors: Tensors, experts: int, hidden: int, width: int) -> Shapes:
    shapes = {"gate_proj": (width, hidden), "up_proj": (width, hidden), "down_proj": (hidden, width)}
    return routed(prefix, tensors, experts, shapes, GATED)


def router(prefix: str, experts: int, hidden: int) -> Shapes:
    """A router with the bias that balances its experts."""
    return {f"{prefix}gate.weight": (experts, hidden), f"{prefix}gate.e_score_correction_bias": (experts,)}
