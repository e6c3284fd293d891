"""Heads that are known by name but that no module drives yet, and why: they are refused, never guessed at."""

from __future__ import annotations

from mtplxd.packs.layouts.row import Layout, appended, under

_STREAMS = "its head feeds back several residual streams, no module drives that yet"


def _row(
    name: str, families: str, why: str, signature: tuple[str, ...] = (), *, kind: str = "prefix"
) -> Layout:
    owns = {"prefix": under("mtp."), "namespace": under("mtp.", "mtp_layers."), "appended": appended}[kind]
    return Layout(
        name=name,
        kind="appended" if kind == "appended" else "namespace" if kind == "namespace" else "prefix",
        families=frozenset(families.split()),
        owns=owns,
        signature=signature,
        home="" if kind == "prefix" else "model.",
        prefix="layers.{N}." if kind == "appended" else "mtp.",
        unsupported=f"{name}: {why}",
    )


ROWS = (
    _row("qwen4_exp", "qwen4_exp qwen4_exp_text", _STREAMS, ("mtp.fc_embedding.weight",)),
    _row(
        "deepseek_v41",
        "deepseek_v41 deepseek_v41_text",
        "its mtp.* tensors are DSpark stages, which are no multi-token-prediction head",
    ),
    _row("deepseek_v4", "deepseek_v4", _STREAMS, ("mtp.0.e_proj.weight",)),
    _row(
        "minimax_m3",
        "minimax_m3_vl minimax_m3_vl_text minimax_m3",
        "no module drives its sparse attention block yet",
        ("mtp.layers.0.transformer_layer.input_layernorm.weight",),
        kind="namespace",
    ),
    _row("hunyuan_v4", "hy_v4 hy_v4_vl hy_v4_vl_text hy4", "no module drives its head yet", kind="namespace"),
    _row(
        "inkling",
        "inkling inkling_mm_model inkling_text inkling2 inkling2_text inkling2_loop inkling2_loop_text",
        "no module drives its head yet",
        kind="namespace",
    ),
    _row("hunyuan_v3", "hy_v3 hy3", "no module drives its head yet", kind="appended"),
    _row("exaone", "exaone_moe exaone4_5 exaone_4_5", "no module drives its head yet"),
    _row("mellum", "mellum", "no module drives its sliding-window head yet"),
    _row("bailing", "bailing_hybrid bailing_moe_v3", "no module drives its head yet", kind="appended"),
    _row("glm5_next", "glm5_next glm5_next_text", "no module drives its head yet", kind="appended"),
    _row("glm_ocr", "glm_ocr glm_ocr_text", "no module drives its head yet", kind="appended"),
)
