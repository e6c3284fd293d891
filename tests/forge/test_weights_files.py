"""Shards hold every tensor once, in order and within their size; the config says what is true of the weights now."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mtplxd.forge.converted_config import converted_config
from mtplxd.forge.weights_files import index_of, shard_names, split_into_shards

PACKING = {"bits": 4, "group_size": 64, "mode": "affine"}


@given(st.dictionaries(st.text(min_size=1), st.integers(1, 100), max_size=40), st.integers(1, 150))
def test_every_tensor_is_in_one_shard_which_is_too_large_only_by_a_single_one(
    sizes: dict[str, int], most: int
) -> None:
    shards = split_into_shards(sizes, most)
    assert [name for shard in shards for name in shard] == sorted(sizes)
    assert all(sum(sizes[name] for name in shard) <= most or len(shard) == 1 for shard in shards)


def test_the_index_leads_to_every_file() -> None:
    shards = split_into_shards({"b": 3, "a": 2, "c": 4}, 5)
    names = shard_names(len(shards))
    assert names == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert index_of(shards, names, 9) == {
        "metadata": {"total_size": 9},
        "weight_map": {"a": names[0], "b": names[0], "c": names[1]},
    }


def test_what_a_packed_body_says_of_itself_stands_in_both_places() -> None:
    found = converted_config({"model_type": "x", "torch_dtype": "bfloat16"}, PACKING, "auto")
    assert found == {
        "model_type": "x",
        "torch_dtype": "bfloat16",
        "quantization": PACKING,
        "quantization_config": PACKING,
    }


@pytest.mark.parametrize("name", ["quantization", "quantization_config", "compression_config"])
def test_floats_do_not_say_that_they_are_packed(name: str) -> None:
    source = {"model_type": "x", name: {"bits": 8}, "text_config": {name: {"bits": 8}, "hidden_size": 4}}
    assert converted_config(source, {}, "auto") == {"model_type": "x", "text_config": {"hidden_size": 4}}


def test_a_cast_is_stated_where_the_dtype_was_stated() -> None:
    source = {
        "torch_dtype": "float32",
        "text_config": {"dtype": "float32"},
        "vision_config": {"dtype": "float32"},
    }
    found = converted_config(source, {}, "f16")
    assert found["torch_dtype"] == found["text_config"]["dtype"] == "float16"
    assert found["vision_config"] == {"dtype": "float32"}
    assert converted_config(source, {}, "auto") == source


def test_where_it_once_lay_is_forgotten_at_every_level() -> None:
    source = {"_name_or_path": "/home/a", "text_config": {"_name_or_path": "/home/a", "name_or_path": "b"}}
    assert converted_config(source, {}, "auto") == {"text_config": {}}
