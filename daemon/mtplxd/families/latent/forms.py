"""What differs between mlx-lm's attention classes that keep a latent cache. Everything else they do alike.

Whether there is a low-rank query, a rotary embedding or LongCat's two factors is read off the instance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mtplxd.platform.mlx import Array, mx

Gate = Callable[[Any, Array, Array], Array]
"""Takes the attention, its input [B, L, H] and what the heads found [B, L, n, V]; gives that, gated."""


@dataclass(frozen=True, slots=True)
class Form:
    """One class's ways. `output` names its last projection; `sparse` says that an indexer narrows the slots.

    `query_factor` says that the forward's second argument multiplies the queries.
    """

    output: str = "o_proj"
    gate: Gate | None = None
    sparse: bool = False
    query_factor: bool = False


def form_of(kind: type) -> Form | None:
    """The form of one of mlx-lm's classes, None for a class that is not known here."""
    package, _, module = kind.__module__.rpartition(".")
    return _FORMS.get((module, kind.__name__)) if package == "mlx_lm.models" else None


def keeps_latents(module: Any) -> bool:
    """Whether a module has the two projections that a latent cache needs, known class or not."""
    return hasattr(module, "embed_q") and hasattr(module, "unembed_out")


def _gate_widely(attention: Any, x: Array, found: Array) -> Array:
    """A gate for each value dimension of each head, where the checkpoint has one."""
    return found * mx.sigmoid(attention.g_proj(x)).reshape(found.shape) if attention.use_gate else found


def _gate_heads(attention: Any, x: Array, found: Array) -> Array:
    """A gate for each head, computed in float32 as mlx-lm does."""
    gate = mx.sigmoid(attention.g_proj(x).astype(mx.float32)).astype(found.dtype)
    return found * gate[..., None]


_FORMS = {
    ("deepseek_v3", "DeepseekV3Attention"): Form(),
    ("deepseek_v32", "DeepseekV32Attention"): Form(sparse=True),
    ("glm4_moe_lite", "Glm4MoeLiteAttention"): Form(),
    ("kimi_linear", "KimiMLAAttention"): Form(),
    ("kimi_k3", "KimiK3MLAAttention"): Form(gate=_gate_widely),
    ("longcat_flash", "LongcatFlashMLA"): Form(),
    ("bailing_hybrid", "MultiLatentAttention"): Form(output="dense"),
    ("bailing_moe_v3", "BailingMLA"): Form(output="dense", gate=_gate_heads),
    ("mistral4", "Mistral4Attention"): Form(query_factor=True),
}
"""By mlx-lm's module and class. GLM-5 (`glm_moe_dsa`) and the Kimi K2 line use DeepSeek's classes."""
