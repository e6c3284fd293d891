"""The converted model computes what an independent numpy forward, written from llama's equations, computes.

The forward reads the pack's bytes itself. That the bytes are the source's, rows in order, is shown in tests/packs.
"""

from __future__ import annotations

import json

import numpy as np
from mtplxd.packs.headers import read_headers
from mtplxd.packs.pack import Pack

PROMPT = [1, 9690, 198, 2683, 359, 260, 5356, 5646, 11173, 3365]


def read_tensors(pack: Pack) -> dict[str, np.ndarray]:
    """The pack's float16 tensors, read from the bytes."""
    [file] = pack.body_files
    raw = file.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    header.pop("__metadata__", None)
    assert header.keys() == read_headers(file).keys()
    return {
        name: np.frombuffer(raw[start + t["data_offsets"][0] : start + t["data_offsets"][1]], np.float16)
        .reshape(t["shape"])
        .astype(np.float32)
        for name, t in header.items()
    }


def rms_norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5) * weight


def rotate(x: np.ndarray, theta: float) -> np.ndarray:
    """Rotary embedding over the halves of the last axis; x [heads, L, dim]."""
    half = x.shape[-1] // 2
    angles = np.arange(x.shape[1])[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angles), np.sin(angles)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def forward(w: dict[str, np.ndarray], config: dict[str, int | float], ids: list[int]) -> np.ndarray:
    """Logits [L, V] of a llama with grouped queries and tied embeddings."""
    heads, groups = int(config["num_attention_heads"]), int(config["num_key_value_heads"])
    x = w["model.embed_tokens.weight"][ids]
    count = len(ids)
    future = np.triu(np.full((count, count), -np.inf), 1)
    for layer in range(int(config["num_hidden_layers"])):
        p = f"model.layers.{layer}."
        n = rms_norm(x, w[p + "input_layernorm.weight"])
        q, k, v = (
            (n @ w[f"{p}self_attn.{s}_proj.weight"].T).reshape(count, h, -1).swapaxes(0, 1)
            for s, h in (("q", heads), ("k", groups), ("v", groups))
        )
        q, k = rotate(q, float(config["rope_theta"])), rotate(k, float(config["rope_theta"]))
        k, v = k.repeat(heads // groups, 0), v.repeat(heads // groups, 0)
        scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]) + future
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        x = x + (weights @ v).swapaxes(0, 1).reshape(count, -1) @ w[p + "self_attn.o_proj.weight"].T
        n = rms_norm(x, w[p + "post_attention_layernorm.weight"])
        gate = n @ w[p + "mlp.gate_proj.weight"].T
        gated = gate / (1 + np.exp(-gate)) * (n @ w[p + "mlp.up_proj.weight"].T)
        x = x + gated @ w[p + "mlp.down_proj.weight"].T
    return rms_norm(x, w["model.norm.weight"]) @ w["model.embed_tokens.weight"].T


def test_real_logits_equal_an_independent_forward(real_pack: Pack) -> None:
    from mtplxd.families.load import load_model
    from mtplxd.platform.mlx import mx

    expected = forward(read_tensors(real_pack), real_pack.config, PROMPT)
    model = load_model(real_pack, plain=True)
    hidden, _ = model.target.run(mx.array([PROMPT]), model.target.make_cache(1))
    logits = np.array(model.target.logits(hidden)[0])
    assert np.abs(logits - expected).max() < 2e-3 * np.abs(expected).max()
    assert (logits.argmax(-1) == expected.argmax(-1)).all()
