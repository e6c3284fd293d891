"""Makes a tiny random llama pack, with or without an adapter head, for tests that need a real model.

It needs numpy and the mlx-free `mtplxd.packs` only, and gives the same bytes for the same arguments.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

HIDDEN = 64
HEADS = 4
KV_HEADS = 2
HEAD_DIM = 16
MLP = 128
VOCAB = 300
DRAFT_VOCAB = 240
CONTEXT = 2048

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
EOS = SPECIAL.index("<|im_end|>")

CHAT_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

Tensors = dict[str, np.ndarray]


def make_tiny_pack(
    folder: Path, *, head: bool = True, seed: int = 0, layers: int = 4, context: int = CONTEXT
) -> Path:
    """Write the pack into `folder` (made if absent) and return it.

    Body tensors are float16 and tied to the output; the head's are bfloat16 with two taps, after half of the
    layers and after the final norm. Weights are wide enough that greedy choices are not near-ties.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    _write_json(folder / "config.json", _config(layers, context))
    _write_json(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": EOS})
    write_tokenizer(folder)
    body = _body(rng, layers)
    _write_tensors(folder / "model.safetensors", body, "F16", {"format": "pt"})
    if head:
        _write_head(folder, rng, layers, body)
    return folder


def _config(layers: int, context: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB,
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 1,
        "eos_token_id": EOS,
        "torch_dtype": "float16",
    }


def _matrix(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    return rng.normal(0.0, 1.0 / np.sqrt(columns), (rows, columns)).astype(np.float32)


def _norm(rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(0.8, 1.2, HIDDEN).astype(np.float32)


def _block(rng: np.random.Generator, prefix: str) -> Tensors:
    return {
        f"{prefix}.input_layernorm.weight": _norm(rng),
        f"{prefix}.post_attention_layernorm.weight": _norm(rng),
        f"{prefix}.self_attn.q_proj.weight": _matrix(rng, HEADS * HEAD_DIM, HIDDEN),
        f"{prefix}.self_attn.k_proj.weight": _matrix(rng, KV_HEADS * HEAD_DIM, HIDDEN),
        f"{prefix}.self_attn.v_proj.weight": _matrix(rng, KV_HEADS * HEAD_DIM, HIDDEN),
        f"{prefix}.self_attn.o_proj.weight": _matrix(rng, HIDDEN, HEADS * HEAD_DIM),
        f"{prefix}.mlp.gate_proj.weight": _matrix(rng, MLP, HIDDEN),
        f"{prefix}.mlp.up_proj.weight": _matrix(rng, MLP, HIDDEN),
        f"{prefix}.mlp.down_proj.weight": _matrix(rng, HIDDEN, MLP),
    }


def _body(rng: np.random.Generator, layers: int) -> Tensors:
    """Mostly the last block's MLP decides the next token, from the current one: a head can learn that."""
    tensors: Tensors = {"model.embed_tokens.weight": rng.normal(0.0, 0.3, (VOCAB, HIDDEN)).astype(np.float32)}
    for layer in range(layers):
        block = _block(rng, f"model.layers.{layer}")
        last = layer == layers - 1
        block[f"model.layers.{layer}.self_attn.o_proj.weight"] *= 0.15
        block[f"model.layers.{layer}.mlp.down_proj.weight"] *= 3.0 if last else 0.1
        tensors |= block
    return tensors | {"model.norm.weight": _norm(rng)}


def _head(rng: np.random.Generator, taps: int, body: Tensors, layers: int) -> Tensors:
    """Imitates the last block from the token alone, with some noise: drafts are often, not always, right."""
    tensors: Tensors = {
        "mtp.enorm.weight": np.ones(HIDDEN, np.float32),
        "mtp.norm.weight": body["model.norm.weight"],
    }
    for tap in range(taps):
        tensors[f"mtp.hnorm.{tap}.weight"] = _norm(rng)
    for tap in range(taps - 1):
        tensors[f"mtp.absent.{tap}"] = rng.normal(0.0, 1.0, HIDDEN).astype(np.float32)
    of_taps = 0.05 * _matrix(rng, HIDDEN, taps * HIDDEN)
    tensors["mtp.fc.weight"] = np.concatenate([0.3 * np.eye(HIDDEN, dtype=np.float32), of_taps], axis=1)
    for name, weight in body.items():
        if name.startswith(f"model.layers.{layers - 1}."):
            noise = rng.normal(0.0, 0.1 * weight.std(), weight.shape)
            tensors["mtp.layers.0." + name.split(".", 3)[3]] = (weight + noise).astype(np.float32)
    return tensors


def _write_head(folder: Path, rng: np.random.Generator, layers: int, body: Tensors) -> None:
    from mtplxd.packs.fingerprint import body_fingerprint
    from mtplxd.packs.pack import read_pack

    taps = (layers // 2, layers)
    draft = np.sort(rng.choice(VOCAB, DRAFT_VOCAB, replace=False)).astype(np.int32)
    metadata = {
        "layout": "adapter",
        "taps": ",".join(str(tap) for tap in taps),
        "recursion": "post",
        "concat": "embed_first",
        "body_fingerprint": body_fingerprint(read_pack(folder)),
        "format": "1",
        "depth_max": "8",
    }
    tensors = _head(rng, len(taps), body, layers) | {"mtp.draft_vocab": draft}
    _write_tensors(folder / "mtp.safetensors", tensors, "BF16", metadata)


def _write_tensors(path: Path, tensors: Tensors, dtype: str, metadata: dict[str, str]) -> None:
    """Store floats as `dtype` (F16 or BF16, rounded to nearest even) and integers as they are."""
    header: dict[str, object] = {"__metadata__": metadata}
    blobs: list[bytes] = []
    begin = 0
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        kind = "I32" if array.dtype == np.int32 else dtype
        stored = {"I32": lambda a: a, "F16": lambda a: a.astype(np.float16), "BF16": _bfloat16}[kind](array)
        blobs.append(stored.tobytes())
        end = begin + len(blobs[-1])
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


def _bfloat16(array: np.ndarray) -> np.ndarray:
    bits = array.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _byte_alphabet() -> list[str]:
    """GPT-2's printable character for each of the 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shifted = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(shifted)) for byte in range(256)]


MERGES = (
    "t h", "th e", "i n", "a n", "e r", "o n", "r e", "a t", "e n", "o r", "e s", "i s", "i t", "o u",
    "a l", "s t", "a r", "n d", "in g", "an d", "Ġ t", "Ġ a", "Ġ s", "Ġ w", "Ġt h", "Ġth e", "Ġ o", "Ġ c",
    "Ġ b", "Ġ f", "Ġ p", "Ġ m", "Ġa nd", "Ġo f", "Ġt o", "l l", "v e", "l e", "s e", "m e", "c h",
)  # fmt: skip


def write_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer: every text has tokens, and a character may take several of them."""
    tokens = [*SPECIAL, *_byte_alphabet()]
    tokens += [merge.replace(" ", "") for merge in MERGES]
    assert len(set(tokens)) == len(tokens) == VOCAB
    added = [
        {"id": index, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for index, text in enumerate(SPECIAL)
    ]  # fmt: skip
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    _write_json(
        folder / "tokenizer.json",
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": None,
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": {text: index for index, text in enumerate(tokens)},
                "merges": [merge.split(" ") for merge in MERGES],
            },
        },
    )
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "unk_token": "<|endoftext|>",
            "pad_token": "<|im_end|>",
            "add_prefix_space": False,
            "clean_up_tokenization_spaces": False,
            "model_max_length": CONTEXT,
            "chat_template": CHAT_TEMPLATE,
        },
    )
