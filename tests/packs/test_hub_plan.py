"""Of a repository's files a pull takes what a model needs, and never code, pickles or other formats' weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mtplxd.packs.folder import LocalFolder
from mtplxd.packs.hub.plan import choose_wanted

NEEDED = [
    "config.json", "generation_config.json", "model.safetensors", "mtplx_runtime.json",
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "vocab.txt", "merges.txt", "tokenizer.model", "spiece.model", "tiktoken.tiktoken",
    "chat_template.jinja", "chat_template.json", "tool_use.jinja",
    "LICENSE", "LICENSE.txt", "licence.md", "COPYING", "NOTICE", "README.md", "USE_POLICY.md",
]  # fmt: skip
UNNEEDED = [
    "modeling.py", "tokenizer_fast.py", "LICENSE.py", "pytorch_model.bin", "model.pth", "model.gguf", "model.onnx",
    "training_args.bin", "optimizer.pt", "tokenizer.pkl", "vocab.bin", "flax_model.msgpack", ".gitattributes",
    "figure.png", "eval.json", "sub/config.json", "sub/model.safetensors", "consolidated.safetensors",
]  # fmt: skip


def write(folder: Path, names: list[str], **config: object) -> set[str]:
    """Makes files of those names, and gives the names of all that are there."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"hidden_size": 8, **config}) if name.endswith("config.json") else "")
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_what_is_taken_and_what_is_left(tmp_path: Path) -> None:
    names = write(tmp_path, [*NEEDED, *UNNEEDED])
    assert choose_wanted(LocalFolder(tmp_path), names) == sorted(NEEDED)


@pytest.mark.parametrize(
    "head", ["mtp.safetensors", "mtp/weights.safetensors", "model-mtp.safetensors", "model_mtp.safetensors"]
)
def test_a_head_in_a_file_of_its_own_is_taken(tmp_path: Path, head: str) -> None:
    names = write(tmp_path, ["config.json", "model.safetensors", head])
    assert head in choose_wanted(LocalFolder(tmp_path), names)


def test_a_head_that_the_config_names_is_taken(tmp_path: Path) -> None:
    head = "extra/head.safetensors"
    names = write(
        tmp_path, ["config.json", "model.safetensors", head], mlx_lm_extra_tensors={"mtp_file": head}
    )
    assert choose_wanted(LocalFolder(tmp_path), names) == ["config.json", head, "model.safetensors"]


def test_the_index_says_which_weights(tmp_path: Path) -> None:
    shards = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    names = write(tmp_path, ["config.json", *shards, "model-old.safetensors", "consolidated.safetensors"])
    index = {"weight_map": {"a": shards[0], "b": shards[1]}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    names |= {"model.safetensors.index.json"}
    assert choose_wanted(LocalFolder(tmp_path), names) == [
        "config.json", shards[0], shards[1], "model.safetensors.index.json",
    ]  # fmt: skip
