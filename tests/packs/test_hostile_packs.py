"""A folder that is damaged or means harm is refused by file or key; nothing in it is run, nothing outside is read."""

from __future__ import annotations

import json
import pickle
import struct
from pathlib import Path

import pytest
from mtplxd.errors import DataLoss, FailedPrecondition
from mtplxd.packs.binding import check_head
from mtplxd.packs.detector import detect_head
from mtplxd.packs.pack import read_pack
from support.published_configs import MIMO, QWEN
from support.published_keys import mimo, qwen, release, write_release

_SECOND = "model-00002-of-00002.safetensors"
_INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_release(tmp_path / "pack", MIMO, mimo(MIMO))


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.trace), "w")


@pytest.mark.parametrize("length", [0, 1, 1 << 33, (1 << 64) - 1])
def test_an_absurd_header_length_is_named(folder: Path, length: int) -> None:
    with (folder / _SECOND).open("r+b") as file:
        file.write(struct.pack("<Q", length))
    with pytest.raises(DataLoss, match=_SECOND):
        read_pack(folder)


@pytest.mark.parametrize("kept", [0, 4, 100, -1])
@pytest.mark.parametrize("name", ["mtp.safetensors", "mtp/weights.safetensors", "model_mtp.safetensors"])
def test_a_truncated_head_is_named(tmp_path: Path, name: str, kept: int) -> None:
    folder = write_release(tmp_path / "pack", QWEN, qwen(QWEN), sidecar=name)
    whole = (folder / name).stat().st_size
    with (folder / name).open("r+b") as file:
        file.truncate(kept if kept >= 0 else whole + kept)
    with pytest.raises(DataLoss, match=Path(name).name):
        read_pack(folder)


def test_a_web_page_in_place_of_a_head_is_named(tmp_path: Path) -> None:
    folder = write_release(tmp_path / "pack", QWEN, qwen(QWEN), sidecar="mtp.safetensors")
    (folder / "mtp.safetensors").write_text("<!DOCTYPE html><html><body>404: not found</body></html>")
    with pytest.raises(DataLoss, match=r"mtp\.safetensors"):
        read_pack(folder)


def test_a_pickle_is_never_opened(folder: Path, tmp_path: Path) -> None:
    payload = pickle.dumps(Trap(tmp_path / "trace"))
    for name in ("pytorch_model.bin", "mtp.pt", "mtp.bin"):
        (folder / name).write_bytes(payload)
    assert detect_head(read_pack(folder)).tensors == 16
    (folder / _INDEX).write_text(json.dumps({"weight_map": {"a": "pytorch_model.bin"}}))
    with pytest.raises(DataLoss, match=r"pytorch_model\.bin"):
        read_pack(folder)
    for file in [*folder.glob("*.safetensors"), folder / _INDEX]:
        file.unlink()
    with pytest.raises(DataLoss, match=r"no weights.*(mtp|pytorch_model)\.bin"):
        read_pack(folder)
    assert not (tmp_path / "trace").exists()


def test_a_pickle_under_a_safetensors_name_is_damaged(folder: Path, tmp_path: Path) -> None:
    (folder / "mtp.safetensors").write_bytes(pickle.dumps(Trap(tmp_path / "trace")))
    with pytest.raises(DataLoss, match=r"mtp\.safetensors"):
        read_pack(folder)
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    "name", ["../out.safetensors", "/etc/out.safetensors", "x/../../out.safetensors", 3, None]
)
def test_an_index_that_names_a_file_outside_the_folder_is_refused_with_both(
    folder: Path, name: object
) -> None:
    index = json.loads((folder / _INDEX).read_text())
    index["weight_map"]["model.mtp_layers.0.input_proj.weight"] = name
    (folder / _INDEX).write_text(json.dumps(index))
    with pytest.raises(DataLoss) as refused:
        read_pack(folder)
    assert repr(name) in str(refused.value)
    assert _INDEX in str(refused.value)


@pytest.mark.parametrize("name", ["../mtp.safetensors", "/mtp.safetensors", "head.bin", 7, {}])
def test_a_config_that_names_a_head_file_outside_the_folder_is_refused(tmp_path: Path, name: object) -> None:
    config = {**MIMO, "mlx_lm_extra_tensors": {"mtp_file": name}}
    folder = write_release(tmp_path / "pack", config, mimo(MIMO))
    with pytest.raises(DataLoss, match=r"mtp_file in .*config\.json"):
        read_pack(folder)


def test_code_that_a_config_points_to_is_never_run(tmp_path: Path) -> None:
    config = {**MIMO, "auto_map": {"AutoModel": "modeling.Model", "AutoConfig": "configuration.Config"}}
    folder = write_release(tmp_path / "pack", config, mimo(MIMO))
    for name in ("modeling.py", "configuration.py", "__init__.py"):
        (folder / name).write_text(f"open({str(tmp_path / 'trace')!r}, 'w').close()")
    assert detect_head(read_pack(folder)).problems == ()
    with pytest.raises(FailedPrecondition, match="is all zero"):
        check_head(read_pack(folder))
    assert not (tmp_path / "trace").exists()


def test_a_tensor_in_two_shards_is_named_with_both(folder: Path) -> None:
    from support.published_keys import write_sparse

    write_sparse(folder / _SECOND, {**mimo(MIMO), "model.norm.weight": (4096,)})
    with pytest.raises(DataLoss, match=rf"model\.norm\.weight.*{_SECOND}"):
        read_pack(folder)


@pytest.mark.parametrize("number", ["99999", "4000000", "99999999999999999999"])
def test_a_layer_number_out_of_reason_is_left_over_and_not_counted_up_to(tmp_path: Path, number: str) -> None:
    for name, prefix in [
        ("MiMo-7B", "model.mtp_layers."),
        ("MiMo-V2-Flash", "model.mtp.layers."),
        ("GLM-4.7-Flash", "model.layers."),
        ("Step-3.5-Flash", "model.layers."),
        ("Qwen3.6 dense", "mtp.layers."),
    ]:
        one, stray = release(name), f"{prefix}{number}.enorm.weight"
        report = detect_head(read_pack(write_release(tmp_path / name, one.config, {**one.keys, stray: (8,)})))
        beyond = len(number) > 6 and prefix == "model.layers."
        assert beyond or stray in report.extra
        assert len(report.missing) < 20_000


@pytest.mark.parametrize("layers", [5000, 10**9])
@pytest.mark.parametrize("field", ["num_hidden_layers", "num_layers"])
def test_a_layer_count_out_of_reason_is_named_before_anything_is_built(
    folder: Path, field: str, layers: int
) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), field: layers}))
    with pytest.raises(DataLoss, match=rf"{field} {layers} in .*config\.json"):
        read_pack(folder)


@pytest.mark.parametrize("stray", ["a\nb", "a\x1b[2Jb", "\x00"])
def test_a_model_type_that_steers_a_terminal_is_refused(folder: Path, stray: str) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model_type": stray}))
    with pytest.raises(DataLoss, match="model_type that is no name") as caught:
        read_pack(folder)
    assert str(caught.value).isprintable()
