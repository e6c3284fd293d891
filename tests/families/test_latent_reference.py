"""Stepwise absorbed decoding agrees with the attention's equations, written in numpy over the whole text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mtplxd.families.latent import absorb_latent
from mtplxd.platform.mlx import mx, tree
from reference.latent import Floats, Latent, attend_latent
from support.latent_attention import (
    HEADS,
    HIDDEN,
    KINDS,
    NOPE,
    RANK,
    ROPE,
    VALUE,
    Kind,
    call,
    draw,
    make_attention,
    make_cache,
    position_factor,
)

ALLOWED = 1e-4
LENGTH, WARM, CHUNK = 37, 20, 4
INDEX_HEADS = 8
"""So many that no score is zero for want of a positive product, which would leave the choice open."""


def layer_of(kind: Kind, attention: Any) -> Latent:
    """The switches of a kind, as its checkpoints have them."""
    longcat = kind.name == "longcat_flash"
    eps = attention.kv_a_layernorm.eps
    return Latent(
        heads=HEADS,
        rank=RANK,
        nope=NOPE,
        rope=ROPE,
        value=VALUE,
        theta=None if kind.name.startswith("kimi") else 10000.0,
        eps=eps,
        query_norm_eps=attention.q_a_layernorm.eps if "q_a_layernorm" in attention else eps,
        query_factor=(HIDDEN / 32) ** 0.5 if longcat else 1.0,
        latent_factor=(HIDDEN / RANK) ** 0.5 if longcat else 1.0,
        position_factors=np.array(position_factor(mx.arange(LENGTH))) if kind.scaled else None,
        gated=kind.name in ("kimi_k3", "bailing_moe_v3"),
        top_k=12 if kind.sparse else None,
        index_heads=INDEX_HEADS if kind.sparse else 0,
        output="dense" if kind.name.startswith("bailing") else "o_proj",
    )


def published_weights(attention: Any) -> dict[str, Floats]:
    """In float64, with the two latent projections joined to the checkpoint's `kv_b_proj`."""
    weights = {name: np.array(held, np.float64) for name, held in tree.tree_flatten(attention.parameters())}
    up, out = weights.pop("embed_q.weight"), weights.pop("unembed_out.weight")
    weights["kv_b_proj.weight"] = np.concatenate([up.swapaxes(1, 2), out], axis=1).reshape(-1, RANK)
    return weights


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("chunk", [1, CHUNK], ids=["steps", "chunks"])
def test_decoding_agrees_with_the_equations(kind: Kind, chunk: int) -> None:
    plain = {"rope_scaling": None, "rope_parameters": {"rope_type": "default"}, "index_n_heads": INDEX_HEADS}
    attention = make_attention(kind, **plain)
    x = draw(1, LENGTH)
    wanted = attend_latent(
        np.array(x[0], np.float64), published_weights(attention), layer_of(kind, attention)
    )
    assert absorb_latent(attention) == []
    cache = make_cache(kind)
    parts = [call(kind, attention, x[:, :WARM], cache)]
    for begin in range(WARM, LENGTH, chunk):
        parts.append(call(kind, attention, x[:, begin : begin + chunk], cache))
    found = np.array(mx.concatenate(parts, axis=1)[0])
    assert np.abs(found - wanted).max() <= ALLOWED
