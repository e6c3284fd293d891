"""Every switch of a head changes what it computes as the equations say; an unknown value is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.families.heads.norms import is_norm
from mtplxd.families.heads.opening import read_published
from mtplxd.families.heads.row import HeadSettings
from mtplxd.packs.detector import detect_head
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx
from support.families import write_checkpoint
from support.head_references import ALLOWED, LENGTH, SPARSE, draw, reference_of
from support.head_rig import draft_logits, open_head

CUTS = [14, 1, 8]


def stating(**head: Any) -> dict[str, Any]:
    return {"mtplxd": {"format": 1, "head": head}}


@pytest.mark.parametrize(
    ("switch", "flipped"),
    [
        ({"concat": "hidden_first"}, {"hidden_first": True}),
        ({"recursion": "pre"}, {"feeds_back_normed": False}),
    ],
)
def test_a_stated_switch_changes_the_algebra(
    switch: dict[str, str], flipped: dict[str, bool], tmp_path: Path
) -> None:
    opened = open_head(write_checkpoint(tmp_path, "glm4_moe_lite", manifest=stating(**switch)))
    tokens, hidden, drafts = draw(opened, drafts=2)
    declared = reference_of("glm4_moe_lite", opened)
    found = draft_logits(opened.head, tokens, hidden, drafts, CUTS)
    assert np.abs(found - replace(declared, **flipped).draft(tokens, hidden, drafts)).max() < ALLOWED
    assert np.abs(found - declared.draft(tokens, hidden, drafts)).max() > 100 * ALLOWED


def test_a_stated_norm_convention_adds_one_to_every_norm(tmp_path: Path) -> None:
    opened = open_head(
        write_checkpoint(tmp_path, "glm4_moe", manifest=stating(norm_convention="zero_centred"))
    )
    tokens, hidden, drafts = draw(opened, drafts=1)
    stored = opened.tensors
    opened.tensors = {name: w + 1 if is_norm(name, mx.array(w)) else w for name, w in stored.items()}
    assert (
        sum(not np.array_equal(opened.tensors[name], w) for name, w in stored.items() if "s.2." in name) == 7
    )
    wanted = reference_of("glm4_moe", opened).draft(tokens, hidden, drafts)
    assert np.abs(draft_logits(opened.head, tokens, hidden, drafts, CUTS) - wanted).max() < ALLOWED


@pytest.mark.parametrize("tap", ["post", "pre"])
def test_a_stated_tap_is_the_one_asked_of_the_body(tap: str, tmp_path: Path) -> None:
    pack = read_pack(write_checkpoint(tmp_path, "glm4_moe_lite", manifest=stating(tap=tap)))
    assert read_published(pack, detect_head(pack)).taps == (tap,)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("deepseek_v3", HeadSettings()),
        ("deepseek_v32", HeadSettings()),
        ("glm4_moe", HeadSettings()),
        ("glm4_moe_lite", HeadSettings()),
        ("glm_moe_dsa", HeadSettings()),
        ("mimo_v2_flash", HeadSettings()),
        ("step3p5", HeadSettings(tap="pre", recursion="pre", norm_convention="zero_centred")),
    ],
)
def test_a_silent_pack_is_fed_as_its_family_is(family: str, settings: HeadSettings, tmp_path: Path) -> None:
    assert open_head(write_checkpoint(tmp_path, family)).head.settings == settings


@pytest.mark.parametrize("switch", ["tap", "recursion", "concat", "norm_convention"])
def test_a_value_there_is_none_of_is_refused_by_name(switch: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, "glm4_moe_lite", manifest=stating(**{switch: "sideways"}))
    with pytest.raises(FailedPrecondition, match=rf"{switch} 'sideways'.*: write "):
        open_head(folder)


@pytest.mark.parametrize("shared", [False, True])
def test_drafts_share_the_chosen_slots_where_the_config_says_so(shared: bool, tmp_path: Path) -> None:
    config = {**SPARSE, "index_share_for_mtp_iteration": shared}
    opened = open_head(write_checkpoint(tmp_path, "glm_moe_dsa", config=config, seed=3))
    tokens, hidden, drafts = draw(opened, drafts=3)
    anew = reference_of("glm_moe_dsa", opened)
    sharing = reference_of("glm_moe_dsa", opened, shared_after=LENGTH)
    wanted = (sharing if shared else anew).draft(tokens, hidden, drafts)
    other = (anew if shared else sharing).draft(tokens, hidden, drafts)
    for cuts in ([LENGTH], [20, 3], [22, 1]):
        found = draft_logits(opened.head, tokens, hidden, drafts, cuts)
        assert np.abs(found - wanted).max() < ALLOWED
        assert np.abs(found - other).max() > 100 * ALLOWED


def test_shared_slots_are_chosen_anew_every_round(tmp_path: Path) -> None:
    config = {**SPARSE, "index_share_for_mtp_iteration": True}
    opened = open_head(write_checkpoint(tmp_path, "glm_moe_dsa", config=config, seed=3))
    tokens, hidden, drafts = draw(opened, drafts=2)
    head, cache = opened.head, opened.head.make_cache(1, [])
    taps = mx.array(hidden[None].astype(np.float32))
    early = head.absorb(mx.array([tokens[:15]]), (taps[:, :15],), cache)[:, -1:]
    head.extend(mx.array([[drafts[0]]]), early, cache)
    cache[0].roll_back([15])
    state = head.absorb(mx.array([tokens[15:]]), (taps[:, 15:],), cache)[:, -1:]
    after = head.logits(head.extend(mx.array([[drafts[0]]]), state, cache))
    wanted = reference_of("glm_moe_dsa", opened, shared_after=LENGTH).draft(tokens, hidden, drafts[:1])
    assert np.abs(np.array(after[0, 0]) - wanted[1]).max() < ALLOWED
