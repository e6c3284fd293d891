"""Nemotron-H: `mtp.layers.{i}.*`, an attention block and a block of experts that together make one step."""

from __future__ import annotations

from mtplxd.packs.layouts.blocks import attention, count, glue, linears, norms, routed, router, size
from mtplxd.packs.layouts.row import Config, Layout, Seen, Shapes, Tensors, under

_KINDS = {"attention": "*", "moe": "E", "full_attention": "*"}
_STACK = {"up_proj": "fc1", "down_proj": "fc2"}


def _pattern(config: Config) -> list[str]:
    """One letter a block; raises ValueError for a block that no head has."""
    stated = config.get("mtp_hybrid_override_pattern") or config.get("mtp_layers_block_type") or "*E"
    if not isinstance(stated, str | list):
        raise ValueError(f"mtp_hybrid_override_pattern is {stated!r}")
    letters = [_KINDS.get(str(kind), str(kind)) for kind in stated]
    if not 0 < len(letters) <= 8 or not set(letters) <= {"*", "E"}:
        raise ValueError(f"mtp_hybrid_override_pattern is {stated!r}")
    return letters


def _expected(seen: Seen) -> Shapes:
    config, tensors = seen.config, seen.tensors
    hidden, pattern = size(config, "hidden_size"), _pattern(config)
    shapes = glue("mtp.layers.0.", hidden, ("enorm", "hnorm"))
    shapes |= norms(f"mtp.layers.{len(pattern) - 1}.", ("final_layernorm",), hidden)
    for index, letter in enumerate(pattern):
        prefix = f"mtp.layers.{index}."
        shapes |= norms(prefix, ("norm",), hidden)
        if letter == "*":
            shapes |= attention(config, f"{prefix}mixer.")
        else:
            shapes |= _experts(config, tensors, f"{prefix}mixer.")
    return shapes


def _experts(config: Config, tensors: Tensors, prefix: str) -> Shapes:
    hidden, width = size(config, "hidden_size"), size(config, "moe_intermediate_size")
    experts, shared = count(config, "n_routed_experts"), size(config, "moe_shared_expert_intermediate_size")
    latent = size(config, "moe_latent_size") if config.get("moe_latent_size") else 0
    inner = latent or hidden
    shapes = router(prefix, experts, hidden)
    if latent:
        shapes |= linears(prefix, {"fc1_latent_proj": (latent, hidden), "fc2_latent_proj": (hidden, latent)})
    shapes |= routed(
        prefix, tensors, experts, {"up_proj": (width, inner), "down_proj": (inner, width)}, _STACK
    )
    both = {"up_proj": (shared, hidden), "down_proj": (hidden, shared)}
    return shapes | linears(f"{prefix}shared_experts.", both)


ROWS = (
    Layout(
        name="nemotron_h",
        kind="prefix",
        families=frozenset({"nemotron_h"}),
        owns=under("mtp."),
        signature=("mtp.layers.0.eh_proj.weight", "mtp.layers.0.mixer.q_proj.weight"),
        expected=_expected,
    ),
)
