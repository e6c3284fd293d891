"""Converts a llama-architecture GGUF file to the files of a pack, with numpy alone.

The bytes written depend only on the source, never on the platform, so the fingerprint of a converted pack is
the same everywhere. It does not fetch anything and does not rename the result into place: `pull` does.

As a program (`python -m mtplxd.packs.gguf SOURCE OUT_DIR`) it prints one JSON object a line: `{"done",
"total"}` while it works, and `{"error": {...}}` with exit status 1 when it cannot.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, ReaderTensor
from gguf.quants import dequantize

from mtplxd.errors import DataLoss, InvalidArgument, MtplxError, NotFound, ResourceExhausted
from mtplxd.files import is_full
from mtplxd.packs.gguf_tokenizer import tokenizer_config, tokenizer_json
from mtplxd.packs.headers import write_tensors
from mtplxd.packs.workers import say, say_error

Report = Callable[[int, int], None]
"""Called with tensors done and tensors in all."""

_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_BLOCK_NAMES = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}


@dataclass(frozen=True)
class Shape:
    """The sizes of a llama model, as its GGUF states them."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int


def convert_gguf(source: Path, out_dir: Path, progress: Report | None = None) -> None:
    """Writes config, tokenizer and `model.safetensors` (float16) of `source` into the folder `out_dir`.

    Raises InvalidArgument for an architecture or tensor it does not know, DataLoss for a damaged file.
    """
    reader = _open(source)
    meta = {name: field.contents() for name, field in reader.fields.items()}
    if meta.get("general.architecture") != "llama":
        raise InvalidArgument(
            "architecture of this GGUF", meta.get("general.architecture"), "only llama files convert"
        )
    shape = _shape(meta)
    tensors = {_target_name(tensor.name, shape): tensor for tensor in reader.tensors}
    _check_complete(tensors, shape, source)
    out_dir.mkdir(parents=True, exist_ok=True)
    _write_json(out_dir / "config.json", _config(meta, shape, tied="lm_head.weight" not in tensors))
    _write_json(out_dir / "generation_config.json", _generation_config(meta))
    _write_json(out_dir / "tokenizer.json", tokenizer_json(meta))
    _write_json(out_dir / "tokenizer_config.json", tokenizer_config(meta))
    layout = {name: ("F16", _row_major(tensors[name])) for name in sorted(tensors)}
    contents = _contents(tensors, shape, progress or (lambda _done, _total: None))
    write_tensors(out_dir / "model.safetensors", layout, contents, {"format": "mlx"})


def unpermute(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rows of a q or k projection from llama.cpp's order (rotary pairs interleaved) to halves."""
    rows = weight.shape[0]
    pairs = weight.reshape(heads, rows // heads // 2, 2, *weight.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def _open(source: Path) -> GGUFReader:
    if not source.is_file():
        raise NotFound("no such GGUF file", source, "check the path")
    try:
        return GGUFReader(source)
    # The reader meets damage as whatever numpy or struct raises at that byte.
    except (ValueError, KeyError, IndexError, OverflowError, UnicodeDecodeError) as error:
        raise DataLoss("damaged GGUF file", source, "fetch it again") from error


def _shape(meta: dict[str, Any]) -> Shape:
    heads = int(meta["llama.attention.head_count"])
    hidden = int(meta["llama.embedding_length"])
    head_dim = int(meta.get("llama.attention.key_length", hidden // heads))
    return Shape(
        layers=int(meta["llama.block_count"]),
        hidden=hidden,
        intermediate=int(meta["llama.feed_forward_length"]),
        heads=heads,
        kv_heads=int(meta.get("llama.attention.head_count_kv", heads)),
        head_dim=head_dim,
        vocab=len(meta["tokenizer.ggml.tokens"]),
    )


def _target_name(name: str, shape: Shape) -> str:
    if name in _TOP_NAMES:
        return _TOP_NAMES[name]
    block, _, rest = name.removeprefix("blk.").partition(".")
    if name.startswith("blk.") and block.isdecimal() and int(block) < shape.layers and rest in _BLOCK_NAMES:
        return f"model.layers.{int(block)}.{_BLOCK_NAMES[rest]}"
    raise InvalidArgument("tensor of this GGUF", name, "a llama model has no such part, convert it elsewhere")


def _expected(shape: Shape) -> dict[str, tuple[int, ...]]:
    hidden, queries, keys = shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    block = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (shape.intermediate, hidden),
        "mlp.up_proj.weight": (shape.intermediate, hidden),
        "mlp.down_proj.weight": (hidden, shape.intermediate),
    }
    expected: dict[str, tuple[int, ...]] = {
        f"model.layers.{layer}.{name}": size for layer in range(shape.layers) for name, size in block.items()
    }
    return expected | {"model.embed_tokens.weight": (shape.vocab, hidden), "model.norm.weight": (hidden,)}


def _check_complete(tensors: dict[str, ReaderTensor], shape: Shape, source: Path) -> None:
    expected = _expected(shape)
    if missing := sorted(expected.keys() - tensors.keys()):
        raise DataLoss(
            f"tensors missing from a GGUF file, {', '.join(missing[:3])}", source, "fetch it again"
        )
    for name, tensor in tensors.items():
        wanted = expected.get(name, (shape.vocab, shape.hidden))
        if _row_major(tensor) != wanted:
            raise DataLoss(f"shape of {name} is {_row_major(tensor)}, not {wanted}", source, "fetch it again")


def _row_major(tensor: ReaderTensor) -> tuple[int, ...]:
    return tuple(int(size) for size in reversed(tensor.shape))


def _contents(
    tensors: dict[str, ReaderTensor], shape: Shape, progress: Report
) -> Iterator[tuple[str, bytes]]:
    for done, name in enumerate(sorted(tensors)):
        progress(done, len(tensors))
        yield name, _halves(name, tensors[name], shape).tobytes()
    progress(len(tensors), len(tensors))


def _halves(name: str, tensor: ReaderTensor, shape: Shape) -> np.ndarray[Any, Any]:
    try:
        values = dequantize(tensor.data, tensor.tensor_type).reshape(_row_major(tensor))
    except (NotImplementedError, KeyError) as error:
        raise InvalidArgument(
            "tensor type of this GGUF", tensor.tensor_type.name, "it cannot be dequantised"
        ) from error
    if name.endswith("q_proj.weight"):
        values = unpermute(values, shape.heads)
    elif name.endswith("k_proj.weight"):
        values = unpermute(values, shape.kv_heads)
    with np.errstate(over="ignore"):
        halves = values.astype("<f2")
    if not np.isfinite(halves).all():
        raise DataLoss("weights that are not finite numbers in float16", name, "fetch the file again")
    return np.asarray(halves)


def _config(meta: dict[str, Any], shape: Shape, *, tied: bool) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": meta.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": meta.get("tokenizer.ggml.eos_token_id"),
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "max_position_embeddings": int(meta["llama.context_length"]),
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "pad_token_id": meta.get("tokenizer.ggml.padding_token_id"),
        "rms_norm_eps": _shortest(meta["llama.attention.layer_norm_rms_epsilon"]),
        "rope_theta": _shortest(meta.get("llama.rope.freq_base", 10000.0)),
        "tie_word_embeddings": tied,
        "torch_dtype": "float16",
        "vocab_size": shape.vocab,
    }


def _shortest(value: float) -> float:
    """The decimal that a float32 of the metadata was written from."""
    return float(str(np.float32(value)))


def _generation_config(meta: dict[str, Any]) -> dict[str, Any]:
    keys = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    found = {name: meta.get(f"tokenizer.ggml.{key}_token_id") for name, key in keys.items()}
    return {name: value for name, value in found.items() if value is not None}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_bytes(json.dumps(content, ensure_ascii=False, indent=1).encode() + b"\n")


def main(arguments: list[str]) -> int:
    """Entry of the child process that `pull` starts, so that the daemon's memory stays small."""
    source, out_dir = (Path(argument) for argument in arguments)
    try:
        convert_gguf(source, out_dir, lambda done, total: say({"done": done, "total": total}))
    except MtplxError as error:
        say_error(error)
        return 1
    except OSError as error:
        if not is_full(error):
            raise
        say_error(ResourceExhausted("the disk is full", out_dir, "free some space and pull again"))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
