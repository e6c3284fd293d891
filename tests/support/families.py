"""Writes a full synthetic checkpoint of any family, body, head and tokenizer, in the layout its publisher uses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from support import published_keys as keys
from support.checkpoint_bodies import Arrays, body_values, publish_body
from support.checkpoint_files import Stored, store, store_blocks, write_tensors
from support.checkpoint_heads import head_keys, head_values
from support.tiny_configs import GEMMA_ASSISTANT, TINY, VOCAB, Config
from support.tiny_pack import EOS, write_tokenizer

__all__ = ["FAMILIES", "GEMMA_ASSISTANT", "TINY", "VOCAB", "Config", "head_keys", "write_checkpoint"]

FAMILIES = tuple(name for name in TINY if name not in ("kimi_k2", "minimax_m2"))
"""The fifteen with a head."""

_FP8 = {
    "deepseek_v3": keys.fp8_deepseek,
    "deepseek_v32": keys.fp8_deepseek,
    "glm_moe_dsa": keys.fp8_deepseek,
    "longcat_flash": keys.fp8_longcat,
    "mimo_v2_flash": keys.fp8_mimo_v2,
    "qwen3_next": keys.fp8_experts,
    "qwen3_5_moe": keys.fp8_experts,
}
_DEQUANTISED_BODIES = ("deepseek_v3", "deepseek_v32", "glm_moe_dsa", "mimo_v2_flash")
"""Those whose mlx-lm class undoes FP8 blocks when it loads."""
_FLOAT32 = ("e_score_correction_bias", "router_bias", "A_log")


def write_checkpoint(
    folder: Path,
    family: str,
    *,
    head: bool = True,
    seed: int = 0,
    body: Literal["hf", "mlx"] = "hf",
    place: str = "last_shard",
    wrap: str = "",
    copies: bool | str = True,
    fp8: bool = False,
    easy: bool = False,
    config: Config | None = None,
    manifest: dict[str, Any] | None = None,
    edit: Callable[[dict[str, Stored]], None] | None = None,
) -> Path:
    """Writes into `folder` (made if absent) and returns it; the same bytes for the same arguments.

    `body="mlx"` stores it as mlx-lm saves it. The head lies in the `place`: "last_shard" of two with an index,
    its "own_shard", one "single" file without an index, or a file of this name beside the body's. `wrap` stands
    before the head's names. `copies` of the body's matrices are as published, left out (False) or "other" than it.
    `fp8` stores what the family's FP8 release does so. With `easy` drafts are often, not always, right.
    `config` overrides fields; `manifest` is the contract file; `edit` may spoil the head's tensors. Gemma 4 becomes
    a pair of `target` and `assistant`.
    """
    rng = np.random.default_rng(seed)
    full = _config(family, config, fp8=fp8)
    values = body_values(full, rng, easy=easy)
    own = head_values(full, values, rng, easy=easy, copies=copies, numbered=fp8) if head else {}
    published = publish_body(full, values) if body == "hf" else values
    folder.mkdir(parents=True, exist_ok=True)
    if manifest is not None:
        _write_json(folder / "mtplx_runtime.json", manifest)
    scaled_body = fp8 and body == "hf" and family in _DEQUANTISED_BODIES
    stored = _stored(published, family, fp8=scaled_body)
    of_head = {wrap + name: one for name, one in _stored(own, family, fp8=fp8).items()}
    if edit is not None:
        edit(of_head)
    if family == "gemma4" and head:
        _write_pair(folder, full, stored, of_head)
    else:
        _write_one(folder, full, stored, of_head, place)
    return folder


def _config(family: str, changes: Config | None, *, fp8: bool) -> Config:
    full = json.loads(json.dumps({**TINY[family], **(changes or {})}))
    if fp8:
        full["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
    return full


def _stored(arrays: Arrays, family: str, *, fp8: bool) -> dict[str, Stored]:
    shapes = {name: array.shape for name, array in arrays.items()}
    scaled = _FP8[family](shapes) if fp8 else shapes
    out: dict[str, Stored] = {}
    for name, array in arrays.items():
        if f"{name}_scale_inv" in scaled:
            out[name], out[f"{name}_scale_inv"] = store_blocks(array)
        else:
            wide = name.endswith(_FLOAT32) and not (family == "qwen3_next" and name.endswith("A_log"))
            out[name] = store(array, "F32" if wide else "BF16")
    return out


def _write_one(
    folder: Path, config: Config, body: dict[str, Stored], head: dict[str, Stored], place: str
) -> None:
    _write_about(folder, config)
    names = sorted(body)
    half = len(names) // 2
    first, second = ({name: body[name] for name in part} for part in (names[:half], names[half:]))
    if place == "single":
        write_tensors(folder / "model.safetensors", body | head)
        return
    files = {"model-00001-of-00002.safetensors": first, "model-00002-of-00002.safetensors": second}
    if place == "last_shard":
        files["model-00002-of-00002.safetensors"] = second | head
    elif place == "own_shard":
        files = {
            f"model-0000{i}-of-00003.safetensors": part for i, part in enumerate((first, second, head), 1)
        }
    for name, part in files.items():
        write_tensors(folder / name, part)
    size = sum(len(one.data) for part in files.values() for one in part.values())
    index = {name: file for file, part in files.items() for name in part}
    _write_json(
        folder / "model.safetensors.index.json", {"metadata": {"total_size": size}, "weight_map": index}
    )
    if place not in ("last_shard", "own_shard") and head:
        write_tensors(folder / place, head)


def _write_pair(folder: Path, config: Config, body: dict[str, Stored], head: dict[str, Stored]) -> None:
    _write_json(folder / "mtplx_pair.json", {"target": "target", "assistant": "assistant"})
    for part, about, tensors in (("target", config, body), ("assistant", GEMMA_ASSISTANT, head)):
        (folder / part).mkdir(exist_ok=True)
        _write_about(folder / part, about)
        write_tensors(folder / part / "model.safetensors", tensors)


def _write_about(folder: Path, config: Config) -> None:
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": EOS})
    write_tokenizer(folder)


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
