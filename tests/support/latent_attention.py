"""Small instances of every mlx-lm attention class that keeps a latent cache, called alike. Asserts nothing.

Sizes are such that absorbing pays for up to eight positions behind a warm cache.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from mtplxd.families.caches import PairCache, RowCache
from mtplxd.platform.mlx import Array, mx, nn, tree

HIDDEN, HEADS, RANK, NOPE, ROPE, VALUE = 64, 4, 64, 32, 8, 24
TOP_K = 12
"""Slots that the indexers choose."""

YARN = {
    "rope_type": "yarn",
    "type": "yarn",
    "factor": 40.0,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 10000.0,
}


@dataclass(frozen=True)
class Kind:
    """A model type, where its attention class is, and what its config has besides the common sizes."""

    name: str
    module: str
    attention: str
    fields: tuple[tuple[str, Any], ...] = ()

    @property
    def sparse(self) -> bool:
        return self.module == "deepseek_v32"

    @property
    def scaled(self) -> bool:
        return self.module == "mistral4"

    def __str__(self) -> str:
        return self.name


DSA = (("index_n_heads", 2), ("index_head_dim", 16), ("index_topk", TOP_K), ("indexer_rope_interleave", True))
KINDS = (
    Kind("deepseek_v3", "deepseek_v3", "DeepseekV3Attention", (("rope_scaling", YARN),)),
    Kind("deepseek_v32", "deepseek_v32", "DeepseekV32Attention", DSA),
    Kind("glm_moe_dsa", "deepseek_v32", "DeepseekV32Attention", (*DSA, ("attention_bias", True))),
    Kind("glm4_moe_lite", "glm4_moe_lite", "Glm4MoeLiteAttention", (("q_lora_rank", None),)),
    Kind("kimi_linear", "kimi_linear", "KimiMLAAttention"),
    Kind("kimi_k3", "kimi_k3", "KimiK3MLAAttention"),
    Kind("longcat_flash", "longcat_flash", "LongcatFlashMLA"),
    Kind("bailing_hybrid", "bailing_hybrid", "MultiLatentAttention", (("use_qkv_bias", True),)),
    Kind("bailing_moe_v3", "bailing_moe_v3", "BailingMLA", (("rope_scaling", YARN),)),
    Kind("mistral4", "mistral4", "Mistral4Attention"),
)


def make_attention(kind: Kind, *, seed: int = 0, **fields: Any) -> Any:
    """An instance with random parameters, norms and biases included, so that none is hidden by its default."""
    values = {**_common(), **dict(kind.fields), **fields}
    module = importlib.import_module(f"mlx_lm.models.{kind.module}")
    attention = getattr(module, kind.attention)(SimpleNamespace(**values))
    keys = iter(mx.random.split(mx.random.key(seed), 64))
    attention.update(
        tree.tree_map_with_path(lambda name, held: _drawn(name, held, keys), attention.parameters())
    )
    mx.eval(attention.parameters())
    return attention


def quantise(attention: Any) -> Any:
    """The same attention with its two latent projections and its linears in 8 bits."""
    nn.quantize(attention, group_size=32, bits=8, class_predicate=_is_quantised)
    return attention


def make_cache(kind: Kind, rows: int = 1) -> Any:
    """The cache of one such layer."""
    return PairCache(RowCache(rows), RowCache(rows)) if kind.sparse else RowCache(rows)


def call(kind: Kind, attention: Any, x: Array, cache: Any, *, fixed: Any = None) -> Array:
    """One forward of x [B, L, hidden], masked as the model classes mask it; `fixed` is the mask to use instead."""
    length = x.shape[1]
    layer = cache[0] if kind.sparse else cache
    mask = layer.make_mask(length, return_array=not kind.scaled) if fixed is None else fixed
    return attention(x, *_factor(kind, layer, length), mask, cache)


def position_factor(places: Array) -> Array:
    """Stands in for Mistral's growth of queries with their place."""
    return 1.0 + 0.2 * mx.log(1.0 + places.astype(mx.float32) / 16)


def draw(rows: int, length: int, seed: int = 1) -> Array:
    """Hidden states [rows, length, hidden] of unit size."""
    return mx.random.normal((rows, length, HIDDEN), key=mx.random.key(seed))


def _factor(kind: Kind, layer: Any, length: int) -> tuple[Array, ...]:
    """What multiplies the query of each position, [B, 1, L, 1]."""
    if not kind.scaled:
        return ()
    places = mx.array(layer.lengths)[:, None] + mx.arange(length)
    return (position_factor(places)[:, None, :, None],)


def _common() -> dict[str, Any]:
    return {
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "q_lora_rank": 32,
        "kv_lora_rank": RANK,
        "qk_nope_head_dim": NOPE,
        "qk_rope_head_dim": ROPE,
        "v_head_dim": VALUE,
        "head_dim": NOPE,
        "max_position_embeddings": 512,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "rope_parameters": YARN,
        "rope_interleave": True,
        "rms_norm_eps": 1e-6,
        "attention_bias": False,
        "use_qkv_bias": False,
        "mla_use_nope": True,
        "mla_use_output_gate": True,
        "mla_scale_q_lora": True,
        "mla_scale_kv_lora": True,
    }


def _drawn(name: str, held: Array, keys: Iterator[Array]) -> Array:
    drawn = mx.random.normal(held.shape, key=next(keys))
    if held.ndim == 1:
        return 1.0 + 0.2 * drawn if "norm" in name and name.endswith("weight") else 0.1 * drawn
    return drawn / math.sqrt(held.shape[-1])


def _is_quantised(name: str, module: Any) -> bool:
    return hasattr(module, "to_quantized") and not name.endswith("weights_proj")
