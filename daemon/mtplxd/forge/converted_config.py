"""The config of a converted body: the source's, with what the conversion made untrue replaced. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PACKING = ("quantization", "quantization_config", "compression_config")
_PLACES = ("_name_or_path", "name_or_path")
"""Where on somebody's disk it once lay."""
_DTYPES = ("torch_dtype", "dtype")
_WORDS = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}


def converted_config(source: Mapping[str, Any], packing: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """`packing` is mlx-lm's word for how the matrices are packed now, empty for floats; `dtype` may be `auto`."""
    config = _cleaned(source, dtype)
    if isinstance(nested := source.get("text_config"), dict):
        config["text_config"] = _cleaned(nested, dtype)
    if packing:
        config["quantization"] = dict(packing)
        config["quantization_config"] = dict(packing)  # the Hub's pages look for this name
    return config


def _cleaned(table: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    kept = {name: value for name, value in table.items() if name not in (*_PACKING, *_PLACES)}
    return {
        name: _WORDS[dtype] if name in _DTYPES and dtype in _WORDS else value for name, value in kept.items()
    }
