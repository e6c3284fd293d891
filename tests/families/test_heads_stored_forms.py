"""However a head is stored (FP8 blocks, packed by MLX, halves split, experts stacked), it computes the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.families.heads.bind import _as_computed
from mtplxd.families.heads.row import HeadSettings
from mtplxd.families.heads.stored import dequantise_fp8, stack_gated
from mtplxd.families.load import load_model
from mtplxd.packs.binding import check_head
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx, nn
from support.checkpoint_files import read_tensors
from support.families import write_checkpoint
from support.head_references import ALLOWED, draw, reference_of
from support.head_rig import Opened, draft_logits, open_head
from support.sidecars import SIDECAR, Tensors, pack_matrices, rename, rewrite, unpack_matrices

CUTS = [20, 1, 2]
PLAIN = {"rope_scaling": None, "q_lora_rank": 32}


def error_of(family: str, opened: Opened) -> float:
    tokens, hidden, drafts = draw(opened, drafts=2)
    wanted = reference_of(family, opened).draft(tokens, hidden, drafts)
    return float(np.abs(draft_logits(opened.head, tokens, hidden, drafts, CUTS) - wanted).max())


@pytest.mark.parametrize("family", ["deepseek_v3", "mimo_v2_flash", "longcat_flash"])
def test_fp8_blocks_are_undone_ragged_ones_too(family: str, tmp_path: Path) -> None:
    config = {"rope_scaling": None} if family == "deepseek_v3" else {}
    folder = write_checkpoint(tmp_path, family, fp8=True, place=SIDECAR, config=config)
    assert any(name.endswith("_scale_inv") for name in mx.load(str(folder / SIDECAR)))
    assert error_of(family, open_head(folder)) < ALLOWED


def test_scales_may_be_called_scale(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, "deepseek_v3", fp8=True, place=SIDECAR, config=PLAIN)
    tensors = read_tensors(folder)
    rename(folder, lambda name: name.replace(".weight_scale_inv", ".scale"))
    opened = open_head(folder)
    opened.tensors = tensors
    assert error_of("deepseek_v3", opened) < ALLOWED


@pytest.mark.parametrize("lost", ["weight_scale_inv", "weight"])
def test_fp8_without_scales_and_scales_without_fp8_are_refused(lost: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, "deepseek_v3", fp8=True, place=SIDECAR, config=PLAIN)
    name = f"model.layers.2.self_attn.o_proj.{lost}"
    rename(folder, lambda one: None if one == name else one)
    with pytest.raises(FailedPrecondition, match=name.replace(".", r"\.")):
        check_head(read_pack(folder))


def test_fp8_is_refused_by_binding_as_well() -> None:
    with pytest.raises(FailedPrecondition, match=r"layers\.2\.x\.weight"):
        dequantise_fp8({"layers.2.x.weight": mx.zeros((4, 4), mx.uint8)})


def test_scales_that_are_powers_of_two_and_blocks_of_other_sizes() -> None:
    found = dequantise_fp8(
        {"a.weight": mx.full((3, 5), 0x38, mx.uint8), "a.scale": mx.array([[127, 128, 129]] * 2, mx.uint8)},
        block=(2, 2),
    )
    assert found.keys() == {"a.weight"}
    assert found["a.weight"].tolist() == [[1, 1, 2, 2, 4]] * 3


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("spared", [(), (".eh_proj",)])
def test_packed_by_mlx_wholly_or_all_but_the_joint(
    bits: int, spared: tuple[str, ...], tmp_path: Path
) -> None:
    folder = write_checkpoint(tmp_path, "glm4_moe_lite", place=SIDECAR, copies=False, config=PLAIN)
    rewrite(folder, lambda tensors: pack_matrices(tensors, bits, 32, spared))
    opened = open_head(folder)
    layer = opened.head.module.layers[0]
    assert isinstance(layer.fc, nn.Linear if spared else nn.QuantizedLinear)
    assert isinstance(layer.block.self_attn.o_proj, nn.QuantizedLinear)
    unpacked = unpack_matrices(mx.load(str(folder / SIDECAR)), bits, 32)
    floats = {name: np.array(array.astype(mx.float32)) for name, array in unpacked.items()}
    opened.tensors = {**opened.tensors, **floats}
    assert error_of("glm4_moe_lite", opened) < ALLOWED


def test_a_plain_head_beside_a_packed_embedding_computes_in_the_dtype_of_its_scales(tmp_path: Path) -> None:
    opened = open_head(write_checkpoint(tmp_path, "glm4_moe"))
    packed = nn.QuantizedEmbedding.from_embedding(opened.body.embedding, 32, 8)
    opened.head.body.embedding = packed
    state = opened.head.absorb(mx.array([[1, 2]]), (mx.zeros((1, 2, 64)),), opened.head.make_cache(1, []))
    assert state.dtype == packed.scales.dtype == mx.float32


@pytest.mark.parametrize("copies", [True, False])
def test_a_plain_head_loads_beside_a_packed_body(copies: bool, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, "glm4_moe", body="mlx", place=SIDECAR, copies=copies)
    for shard in folder.glob("model*.safetensors"):
        rewrite(folder, lambda tensors: pack_matrices(tensors, 8, 32), shard.name)
    config = json.loads((folder / "config.json").read_text())
    config["quantization"] = {"group_size": 32, "bits": 8}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors.index.json").unlink()
    model = load_model(read_pack(folder))
    assert isinstance(model.target.embedding, nn.QuantizedEmbedding)  # type: ignore[attr-defined]
    head: Any = model.head
    assert ("embed_tokens" in head.module.layers[0]) == copies
    tokens, cache = [5, 9, 200, 31], model.target.make_cache(1)
    hidden, taps = model.target.run(mx.array([tokens]), cache)
    state = head.absorb(mx.array([[*tokens[1:], 7]]), taps, head.make_cache(1, cache))
    logits = head.logits(state)
    assert bool(mx.all(mx.isfinite(logits)))
    if copies:  # the head computes with nothing that is packed
        head_alone = reference_of("glm4_moe", open_head(folder))
        wanted = head_alone.draft([*tokens[1:], 7], np.array(hidden[0], np.float64), [])
        assert np.abs(np.array(logits[0, -1]) - wanted[0]).max() < ALLOWED


def test_latent_halves_and_stacked_experts_are_taken_as_they_are(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, "glm4_moe_lite", place=SIDECAR)
    tensors = read_tensors(folder)

    def convert(held: Tensors) -> None:
        at = "model.layers.2."
        joined = held.pop(f"{at}self_attn.kv_b_proj.weight").reshape(4, 16 + 24, 32)
        held[f"{at}self_attn.embed_q.weight"] = mx.contiguous(joined[:, :16].swapaxes(1, 2))
        held[f"{at}self_attn.unembed_out.weight"] = mx.contiguous(joined[:, 16:])
        for name in ("gate_proj", "up_proj", "down_proj"):
            parts = [held.pop(f"{at}mlp.experts.{e}.{name}.weight") for e in range(4)]
            held[f"{at}mlp.switch_mlp.{name}.weight"] = mx.stack(parts)

    rewrite(folder, convert)
    opened = open_head(folder)
    opened.tensors = tensors
    assert error_of("glm4_moe_lite", opened) < ALLOWED


def test_one_latent_half_alone_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, "glm4_moe_lite", place=SIDECAR)

    def halve(held: Tensors) -> None:
        held.pop("model.layers.2.self_attn.kv_b_proj.weight")
        held["model.layers.2.self_attn.embed_q.weight"] = mx.ones((4, 32, 16), mx.bfloat16)

    rewrite(folder, halve)
    with pytest.raises(
        FailedPrecondition, match=r"missing: model\.layers\.2\.self_attn\.unembed_out\.weight"
    ):
        open_head(folder)


def test_fused_experts_are_split_gate_first_packed_or_not() -> None:
    gate, up, down = (mx.random.normal((3, 32, 64)) for _ in range(3))
    fused = mx.concatenate([gate, up], axis=1)
    packed, scales, biases = mx.quantize(fused, group_size=32, bits=4)
    at = "block.mlp.experts."
    plain = stack_gated({f"{at}gate_up_proj": fused, f"{at}down_proj": down}, None)
    assert plain.keys() == {f"block.mlp.switch_mlp.{n}_proj.weight" for n in ("gate", "up", "down")}
    assert mx.array_equal(plain["block.mlp.switch_mlp.gate_proj.weight"], gate)
    found = stack_gated(
        {
            f"{at}gate_up_proj": packed,
            f"{at}gate_up_proj.scales": scales,
            f"{at}gate_up_proj.biases": biases,
        },
        None,
    )
    parts = [found[f"block.mlp.switch_mlp.up_proj.{part}"] for part in ("weight", "scales", "biases")]
    wanted = mx.dequantize(packed, scales, biases, group_size=32, bits=4)[:, 32:]
    assert mx.array_equal(mx.dequantize(*parts, group_size=32, bits=4), wanted)


def test_fused_queries_keys_and_values_are_split(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, "mimo_v2_flash", place=SIDECAR)
    tensors = read_tensors(folder)

    def fuse(held: Tensors) -> None:
        for j in range(3):
            at = f"model.mtp.layers.{j}.self_attn."
            parts = [held.pop(f"{at}{name}_proj.weight") for name in "qkv"]
            held[f"{at}qkv_proj.weight"] = mx.concatenate(parts)

    rewrite(folder, fuse)
    opened = open_head(folder)
    opened.tensors = tensors
    assert error_of("mimo_v2_flash", opened) < ALLOWED


def test_the_router_bias_stays_in_float32() -> None:
    held, settings = mx.zeros((4,), mx.float32), HeadSettings()
    names = {"block.mlp.gate.e_score_correction_bias": mx.float32, "block.mlp.gate.router_bias": mx.float32}
    for name, dtype in {**names, "block.mlp.gate.weight": mx.bfloat16}.items():
        assert _as_computed(f"layers.0.{name}", held, settings, mx.bfloat16).dtype == dtype


@pytest.mark.parametrize(
    ("copies", "own"), [(True, False), (False, False), ("other", True)], ids=["equal", "absent", "different"]
)
def test_copies_of_the_body_s_matrices_are_kept_only_where_they_differ(
    copies: bool | str, own: bool, tmp_path: Path
) -> None:
    opened = open_head(write_checkpoint(tmp_path, "glm4_moe", copies=copies))
    layer = opened.head.module.layers[0]
    assert ("embed_tokens" in layer, "output" in layer) == (own, own)
    assert error_of("glm4_moe", opened) < ALLOWED


def test_each_copy_is_judged_by_itself(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, "glm4_moe", place=SIDECAR)
    other = mx.random.normal((300, 64), key=mx.random.key(3)).astype(mx.bfloat16)
    rewrite(folder, lambda tensors: tensors.update({"model.layers.2.shared_head.head.weight": other}))
    opened = open_head(folder)
    layer = opened.head.module.layers[0]
    assert ("embed_tokens" in layer, "output" in layer) == (False, True)
    assert error_of("glm4_moe", opened) < ALLOWED
