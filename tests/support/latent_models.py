"""Random models of mlx-lm with latent attention, two layers each. The smallest that have it."""

from __future__ import annotations

import copy
from importlib import import_module
from typing import Any

from mtplxd.platform.mlx import mx, nn, tree
from support.recurrent import CONFIGS
from support.tiny_configs import TINY, Config

MISTRAL: Config = {
    **TINY["glm4_moe_lite"],
    "rope_interleave": True,
    "rope_parameters": {
        "rope_type": "yarn",
        "type": "yarn",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 16,
        "llama_4_scaling_beta": 0.1,
    },
}
LATENT: dict[str, Config] = {
    **{name: TINY[name] for name in ("deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa")},
    "longcat_flash": TINY["longcat_flash"],
    **{name: CONFIGS[name] for name in ("kimi_linear", "kimi_k3", "bailing_hybrid", "bailing_moe_v3")},
    "mistral4": MISTRAL,
}


def make_model(family: str, *, bits: int | None = None) -> Any:
    """The same random model for the same arguments."""
    room = import_module(f"mlx_lm.models.{family}")
    model = room.Model(room.ModelArgs.from_dict({**copy.deepcopy(LATENT[family]), "model_type": family}))
    weights = tree.tree_flatten(model.parameters())
    keys = mx.random.split(mx.random.key(5), len(weights))
    drawn = [
        (name, mx.random.normal(held.shape, key=key) * 0.1 + (held.ndim == 1))
        for (name, held), key in zip(weights, keys, strict=True)
    ]
    model.load_weights(drawn)
    if bits is not None:
        nn.quantize(model, group_size=32, bits=bits, class_predicate=_divides)
    return model.eval()


def _divides(_: str, module: Any) -> bool:
    return hasattr(module, "to_quantized") and module.weight.shape[-1] % 32 == 0
