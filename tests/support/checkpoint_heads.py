"""Random heads under the names and shapes their families publish; which those are is `published_keys`'."""

from __future__ import annotations

from typing import Any

import numpy as np
from support import published_keys as keys
from support.checkpoint_bodies import ZERO_CENTRED, Arrays, norm_factors, rounded, text_of, value_of
from support.tiny_configs import GEMMA_ASSISTANT

Config = dict[str, Any]

_JOINTS = ("fc.weight", "eh_proj.weight", "input_proj.weight", "mtp_linear_proj.0.weight")
_EMBED_NORMS = ("pre_fc_norm_embedding", "enorm", "enorm.m", "token_layernorm", "mtp_emb_norm.0")
_OUTPUT_NORMS = ("mtp.norm", "shared_head.norm", "final_layernorm")


def head_keys(config: Config, *, copies: bool = True, numbered: bool = False) -> keys.Keys:
    """Names and shapes of a family's head, empty where it has none. `copies` of the body's matrices: DeepSeek, GLM.

    `numbered` experts where they are fused otherwise: Qwen's FP8 releases.
    """
    family, text = config["model_type"], text_of(config)
    if family in ("deepseek_v3", "glm4_moe", "glm4_moe_lite"):
        return keys.appended(text, copies=copies)
    if family in ("deepseek_v32", "glm_moe_dsa"):
        return keys.appended(text, copies=copies, indexer=True)
    makers = {
        "qwen3_next": lambda c: keys.qwen(c, fused=False), "qwen3_5": keys.qwen, 
        "qwen3_5_moe": lambda c: keys.qwen(c, fused=not numbered),
        "nemotron_h": keys.nemotron, "mimo": keys.mimo, "ernie4_5_moe": keys.ernie, "step3p5": keys.step,
        "longcat_flash": keys.longcat, "mimo_v2_flash": keys.mimo_v2,
        "gemma4": lambda _: keys.gemma_assistant(GEMMA_ASSISTANT),
    }  # fmt: skip
    return makers[family](text) if family in makers else {}


def head_values(
    config: Config,
    body: Arrays,
    rng: np.random.Generator,
    *,
    easy: bool,
    copies: bool | str,
    numbered: bool = False,
) -> Arrays:
    """The head's tensors as published. `copies` is True (as published), False (left out) or "other" (not the body's).

    With `easy` the block adds little to the embedding of the token just seen: what an easy body goes by as well.
    """
    family = config["model_type"]
    embed, output = _matrices(body)
    out: Arrays = {}
    for name, shape in head_keys(config, copies=bool(copies), numbered=numbered).items():
        copied = _copied(name, embed, output) if copies is True and family != "longcat_flash" else None
        if copied is not None and copied.shape == shape:
            out[name] = copied
        elif name.endswith("token_ordering"):
            out[name] = rng.permutation(shape[0]).astype(np.int64)
        elif _is_norm(name, shape):
            out[name] = norm_factors(rng, shape, -0.4, 0.5)
        else:
            out[name] = value_of(name, shape, rng, easy=easy)
    if easy:
        out |= _guessing(config, out, body)
    if family in ZERO_CENTRED:
        out = {name: value - 1.0 if _is_norm(name, value.shape) else value for name, value in out.items()}
    return out


def _copied(name: str, embed: np.ndarray, output: np.ndarray) -> np.ndarray | None:
    """The body's matrix that a tensor of this name repeats as published."""
    ends = {"embed_tokens.weight": embed, "shared_head.head.weight": output}
    return next((matrix for end, matrix in ends.items() if name.endswith(end)), None)


def _is_norm(name: str, shape: tuple[int, ...]) -> bool:
    return "norm" in name and name.endswith(".weight") and len(shape) == 1


def _matrices(body: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Embedding and output matrix of a body by mlx-lm's names."""
    embed = next(
        v for n, v in body.items() if n.endswith(("embed_tokens.weight", "backbone.embeddings.weight"))
    )
    return embed, next((v for n, v in body.items() if n.endswith("lm_head.weight")), embed)


def _guessing(config: Config, head: Arrays, body: Arrays) -> Arrays:
    """The joint passes the embedding on, a little of the hidden beside it; the output norm is the body's."""
    final = next(v for n, v in body.items() if n.endswith(("model.norm.weight", "norm_f.weight")))
    embed, output = _matrices(body)
    changed: Arrays = {}
    for name, value in head.items():
        stem = name.removesuffix(".weight")
        if name.endswith(_JOINTS):
            eye, rest = np.eye(len(value), dtype=np.float32), 0.2 * value[:, : len(value)]
            halves = [rest, eye] if config["model_type"] == "mimo" else [eye, rest]
            changed[name] = rounded(np.concatenate(halves, axis=1))
        elif stem.endswith(_EMBED_NORMS):
            changed[name] = final if config["model_type"] == "ernie4_5_moe" else _nearly_one(value)
        elif stem.endswith(_OUTPUT_NORMS):
            changed[name] = final
        elif name.endswith("shared_head.output.weight"):
            changed[name] = output
        elif name == "model.mtp.embed_tokens.weight":
            changed[name] = embed
    return changed


def _nearly_one(like: np.ndarray) -> np.ndarray:
    """Not 1: less one, it would be all zeros, as of a tensor that nobody filled."""
    return np.full_like(like, 1 + 1 / 64)
