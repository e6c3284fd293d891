"""A converted pack computes what the GGUF's weights mean, and its bytes depend on the source alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from mtplxd.errors import DataLoss, InvalidArgument, NotFound
from mtplxd.packs import gguf as conversion
from mtplxd.packs.fetch import hash_file
from mtplxd.packs.pack import Pack, read_pack
from support.tiny_gguf import EPS, HEAD_DIM, HEADS, KV_HEADS, LAYERS, THETA, TinyGguf, write_tiny_gguf

Weights = dict[str, np.ndarray]


def forward(weights: Weights, ids: list[int]) -> np.ndarray:
    """Logits [L, V] of a llama written from its equations, in float64."""
    x = weights["model.embed_tokens.weight"][ids].astype(np.float64)
    for layer in range(LAYERS):
        block = {
            name.removeprefix(f"model.layers.{layer}.").removesuffix(".weight"): value.astype(np.float64)
            for name, value in weights.items()
            if name.startswith(f"model.layers.{layer}.")
        }
        x = x + attend(norm(x, block["input_layernorm"]), block)
        h = norm(x, block["post_attention_layernorm"])
        gate, up = h @ block["mlp.gate_proj"].T, h @ block["mlp.up_proj"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ block["mlp.down_proj"].T
    return norm(x, weights["model.norm.weight"]) @ weights["model.embed_tokens.weight"].T.astype(np.float64)


def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight


def attend(h: np.ndarray, block: Weights) -> np.ndarray:
    length = len(h)
    q = rotate((h @ block["self_attn.q_proj"].T).reshape(length, HEADS, HEAD_DIM))
    k = rotate((h @ block["self_attn.k_proj"].T).reshape(length, KV_HEADS, HEAD_DIM))
    v = (h @ block["self_attn.v_proj"].T).reshape(length, KV_HEADS, HEAD_DIM)
    out = np.empty_like(q)
    for head in range(HEADS):
        shared = head // (HEADS // KV_HEADS)
        scores = q[:, head] @ k[:, shared].T / np.sqrt(HEAD_DIM)
        scores[np.triu_indices(length, 1)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, head] = weights / weights.sum(-1, keepdims=True) @ v[:, shared]
    return out.reshape(length, -1) @ block["self_attn.o_proj"].T


def rotate(x: np.ndarray) -> np.ndarray:
    half = HEAD_DIM // 2
    angle = np.arange(len(x))[:, None] * THETA ** (-np.arange(half) / half)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def logits_through_mlx(folder: Path, ids: list[int]) -> np.ndarray:
    from mtplxd.platform.mlx import mx  # noqa: I001 - it loads the BLAS, so it comes before mlx_lm

    from mlx_lm.utils import load_model

    model, _ = load_model(folder, strict=True)
    model.set_dtype(mx.float32)
    return np.array(model(mx.array([ids]))[0])


IDS = [1, 70, 71, 261, 9, 200, 40, 2, 150, 33, 7, 100]


def test_logits_are_those_of_an_independent_forward(tiny: TinyGguf, converted: Pack) -> None:
    expected = forward(tiny.weights, IDS)
    got = logits_through_mlx(converted.path, IDS)
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(got, expected, atol=2e-3)
    assert (got.argmax(-1) == expected.argmax(-1)).all()


def test_rows_left_in_llama_cpps_order_would_be_noticed(
    tiny: TinyGguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "unpermute", lambda weight, _heads: weight)
    conversion.convert_gguf(tiny.path, tmp_path)
    assert np.abs(logits_through_mlx(tmp_path, IDS) - forward(tiny.weights, IDS)).max() > 0.05


def test_every_weight_is_the_decoded_block_rounded_to_float16(tiny: TinyGguf, converted: Pack) -> None:
    assert set(converted.body_tensors) == set(tiny.weights)
    for name, (file, info) in converted.body_tensors.items():
        stored = np.frombuffer(file.read_bytes()[info.begin : info.end], np.float16).reshape(info.shape)
        np.testing.assert_array_equal(stored.astype(np.float32), tiny.weights[name], err_msg=name)


def test_two_conversions_give_the_same_bytes(tiny: TinyGguf, converted: Pack, tmp_path: Path) -> None:
    conversion.convert_gguf(tiny.path, tmp_path)
    assert {file.name: hash_file(file) for file in tmp_path.iterdir()} == {
        file.name: hash_file(file) for file in converted.path.iterdir()
    }


def test_config_states_the_sizes_of_the_source(converted: Pack) -> None:
    config = converted.config
    assert (config["model_type"], config["num_hidden_layers"], config["head_dim"]) == (
        "llama",
        LAYERS,
        HEAD_DIM,
    )
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (HEADS, KV_HEADS)
    assert (config["rms_norm_eps"], config["rope_theta"], config["tie_word_embeddings"]) == (1e-5, 1e4, True)
    assert json.loads((converted.path / "generation_config.json").read_text())["eos_token_id"] == 2


def test_progress_counts_every_tensor(tiny: TinyGguf, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    conversion.convert_gguf(tiny.path, tmp_path, lambda done, total: seen.append((done, total)))
    assert seen == [(done, len(tiny.weights)) for done in range(len(tiny.weights) + 1)]


def test_missing_tensor_is_named(tmp_path: Path) -> None:
    broken = write_tiny_gguf(tmp_path / "a.gguf", drop="blk.1.ffn_up.weight")
    with pytest.raises(DataLoss, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        conversion.convert_gguf(broken.path, tmp_path / "out")


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    other = write_tiny_gguf(tmp_path / "a.gguf", architecture="gpt2")
    with pytest.raises(InvalidArgument, match="gpt2"):
        conversion.convert_gguf(other.path, tmp_path / "out")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="missing"):
        conversion.convert_gguf(tmp_path / "missing.gguf", tmp_path / "out")


@pytest.mark.parametrize("keep", [0, 3, 40, 5_000, -100])
def test_truncated_source_is_damaged(tiny: TinyGguf, tmp_path: Path, keep: int) -> None:
    short = tmp_path / "short.gguf"
    short.write_bytes(tiny.path.read_bytes()[:keep])
    with pytest.raises(DataLoss):
        conversion.convert_gguf(short, tmp_path / "out")


def test_weights_that_overflow_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: TinyGguf
) -> None:
    monkeypatch.setattr(
        conversion, "dequantize", lambda data, _kind: np.full(tiny_size(data, _kind), 1e6, np.float32)
    )
    with pytest.raises(DataLoss, match="not finite"):
        conversion.convert_gguf(tiny.path, tmp_path)


def tiny_size(data: np.ndarray, kind: object) -> int:
    per_block = {"F32": (1, 1), "Q4_1": (32, 20), "Q8_0": (32, 34)}[kind.name]  # type: ignore[attr-defined]
    return data.size // per_block[1] * per_block[0]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_full_disk_ends_the_child_with_one_typed_error(
    tiny: TinyGguf, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.safetensors").symlink_to("/dev/full")
    assert conversion.main([str(tiny.path), str(tmp_path)]) == 1
    last = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert last["error"]["code"] == "RESOURCE_EXHAUSTED"


def test_converted_pack_reads_back(converted: Pack) -> None:
    assert read_pack(converted.path).bytes_body == sum(2 * weight.size for weight in weights_of(converted))


def weights_of(pack: Pack) -> list[np.ndarray]:
    return [np.empty(info.shape, bool) for _, info in pack.body_tensors.values()]
