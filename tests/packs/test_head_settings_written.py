"""How a head is fed is written under our names and the field's, and read back as it was written."""

from __future__ import annotations

from itertools import product

import pytest
from mtplxd.packs.manifest import HEAD_SETTINGS, Manifest

SWITCHES = ("tap", "recursion", "concat", "norm_convention")
WAYS = [dict(zip(SWITCHES, values, strict=True)) for values in product(*(HEAD_SETTINGS[n] for n in SWITCHES))]


@pytest.mark.parametrize("way", WAYS)
def test_what_is_written_is_read_by_ours_and_by_the_fields_names(way: dict[str, str]) -> None:
    written = Manifest({}).with_head_settings(way)
    assert written.head_settings == way
    assert written.strange_settings == ()
    theirs = Manifest({"mtp_contract": written.fields["mtp_contract"]}).head_settings
    assert theirs == {name: value for name, value in way.items() if name != "norm_convention"}


def test_the_fields_own_words_are_used() -> None:
    way = {"tap": "pre", "recursion": "post", "concat": "hidden_first"}
    assert Manifest({}).with_head_settings(way).fields["mtp_contract"] == {
        "base_hidden_variant": "pre_norm",
        "hidden_variant": "post_norm",
        "concat_order": "hidden_embedding",
    }


def test_what_nobody_here_knows_is_kept() -> None:
    fields = {
        "mtp_contract": {"theirs": 1, "concat_order": "hidden_embedding"},
        "mtplxd": {"head": {"dtype": "bf16"}},
    }
    found = Manifest(fields).with_head_settings({"concat": "embed_first"}).fields
    assert found["mtp_contract"] == {"theirs": 1, "concat_order": "embedding_hidden"}
    assert found["mtplxd"] == {"head": {"dtype": "bf16", "concat": "embed_first"}}


def test_without_settings_nothing_is_stated() -> None:
    assert Manifest({"mtplxd": {"head": None}}).with_head_settings({}).fields == {"mtplxd": {"head": {}}}
