"""On trained heads calibration puts right every setting whose cost is clear, keeps and names the others, and a head
that helps in no way fails. What it finds is what the loader then obeys."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mtplxd.errors import Cancelled, InvalidArgument
from mtplxd.families.heads.feeding import choose_tap, fed, open_all_taps, ways_to_feed
from mtplxd.families.heads.row import SWITCHES, HeadSettings
from mtplxd.families.load import load_model
from mtplxd.forge import calibrating
from mtplxd.forge.calibrating import calibrate, conclude, try_ways
from mtplxd.forge.calibration_choice import CLEAR_LEAD, Sample
from mtplxd.forge.contract import declared_settings, record_calibration
from mtplxd.forge.spoken import Spoken, speak
from mtplxd.forge.walking import walk
from mtplxd.packs.manifest import Manifest, read_manifest, write_manifest
from mtplxd.packs.pack import read_pack
from mtplxd.packs.tiers import judge
from mtplxd.platform.mlx import mx
from support import zoo
from support.families import write_checkpoint
from support.forging import contents, count_to, forge, never, silent
from support.sidecars import rewrite
from support.tiny_pack import make_tiny_pack

PROMPTS = 4
RECORDED = json.loads(
    (Path(__file__).parents[1] / "bench/results/forged_zoo.json").read_text(encoding="utf-8")
)


def flipped(way: HeadSettings, name: str) -> HeadSettings:
    return HeadSettings(**{**way.__dict__, name: zoo.OTHER[name][getattr(way, name)]})


def right(name: str) -> HeadSettings:
    return HeadSettings(**zoo.right_settings(name))


def cost(name: str, switch: str) -> float:
    """What the checkpoint's own file says that a wrong setting costs, tokens a round."""
    stated = zoo.expected_of(name)
    return float(
        stated["correct"]["tokens_per_round"] - stated["wrong"][zoo.STATED[switch]]["tokens_per_round"]
    )


@dataclass
class Tried:
    """A forged zoo model, and every way of feeding its head counted along the built-in texts."""

    name: str
    pack: Path
    table: dict[HeadSettings, Sample]


@pytest.fixture(scope="module", params=[name for name in zoo.NAMES if name != "mimo"])
def tried(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tried:
    pack = tmp_path_factory.mktemp("forged") / "pack"
    forge(zoo.ZOO / request.param, pack)
    kept: dict[str, Any] = {}

    def keep(declared: HeadSettings, table: dict[HeadSettings, Sample], depth: int) -> Any:
        kept.update(table=table)
        return conclude(declared, table, depth)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibrating, "conclude", keep)
        calibrate(pack, silent, never)
    return Tried(request.param, pack, kept["table"])


@pytest.mark.parametrize("switch", SWITCHES)
def test_each_wrong_declared_setting_is_put_right_or_said_to_be_inconclusive(
    tried: Tried, switch: str
) -> None:
    wrong = flipped(right(tried.name), switch)
    found = conclude(wrong, tried.table, zoo.DEPTH)
    if cost(tried.name, switch) >= CLEAR_LEAD:
        assert (found.status, found.settings) == ("changed", zoo.right_settings(tried.name))
    else:
        assert (found.status, found.settings) == ("inconclusive", wrong.__dict__)
    assert found.declared == wrong.__dict__
    assert switch in found.message
    assert found.failure_reason is None


def test_the_right_settings_stay(tried: Tried) -> None:
    found = conclude(right(tried.name), tried.table, zoo.DEPTH)
    assert found.settings == zoo.right_settings(tried.name)
    unclear = {one.name for one in found.switches if one.verdict == "inconclusive"}
    assert unclear == {name for name in SWITCHES if cost(tried.name, name) < CLEAR_LEAD}


def test_every_way_was_tried_along_enough_text(tried: Tried) -> None:
    assert len(tried.table) == 2 ** len(SWITCHES)
    assert all(len(one.rounds) >= calibrating.MIN_TEXTS and one.count >= 48 for one in tried.table.values())
    document = conclude(right(tried.name), tried.table, zoo.DEPTH).document()
    assert json.loads(json.dumps(document)) == document
    assert len(document["tried"]) == len(tried.table)


def test_the_forged_pack_has_the_acceptance_its_checkpoint_states(tried: Tried) -> None:
    expected = zoo.expected_of(tried.name)
    model = load_model(read_pack(tried.pack), depth_max=zoo.DEPTH)
    prompts = [prompt["tokens"] for prompt in expected["prompts"][:PROMPTS]]
    tally, stated = zoo.measure(model, prompts), expected["per_prompt"][:PROMPTS]
    rounds = sum(one["rounds"] for one in stated)
    wanted = [sum(one["accepted"][place] for one in stated) / rounds for place in range(zoo.DEPTH)]
    assert tally.acceptance == pytest.approx(wanted, abs=zoo.TOLERANCE)


@pytest.mark.parametrize("wrong", [None, *SWITCHES])
@pytest.mark.parametrize("name", zoo.NAMES)
def test_the_whole_protocol_was_recorded_of_the_forged_packs(name: str, wrong: str | None) -> None:
    """All prompts, by `tests/bench/forged_zoo.py`; here is what it must have found."""
    found, expected = RECORDED["samples"][f"{name} {wrong or 'as published'}"], zoo.expected_of(name)
    restored = wrong is None or cost(name, wrong) >= CLEAR_LEAD
    assert found["right"] is restored
    assert restored or found["status"] == "inconclusive"
    stated = expected["correct"] if restored or wrong is None else expected["wrong"][zoo.STATED[wrong]]
    assert found["acceptance"] == pytest.approx(stated["acceptance"], abs=zoo.TOLERANCE)
    assert found["rounds"] == pytest.approx(stated["rounds"], rel=0.03)


def test_rounds_along_a_text_are_those_that_decoding_counts(tried: Tried) -> None:
    model: Any = load_model(read_pack(tried.pack), depth_max=zoo.DEPTH)
    body, way = open_all_taps(model.target), model.head.settings
    for prompt in zoo.expected_of(tried.name)["prompts"][:2]:
        said = speak(body, prompt["tokens"], zoo.TOKENS - 1 + zoo.DEPTH, never)
        rounds = walk(model.head, said, choose_tap(said.taps, way), zoo.DEPTH)
        tally = zoo.measure(model, [prompt["tokens"]])
        assert list(said.tokens[said.prompt : said.prompt + zoo.TOKENS]) == tally.texts[0]
        assert len(rounds) == tally.rounds
        assert [sum(one > place for one in rounds) for place in range(zoo.DEPTH)] == tally.accepted


def test_a_wrong_contract_is_put_right_for_the_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way, once: declared wrong in the source, carried, tried, written down, obeyed."""
    monkeypatch.setattr(calibrating, "PROMPTS", 8)
    wrong = {**zoo.right_settings("glm4_moe_lite"), "tap": "pre"}
    source = tmp_path / "source"
    source.mkdir()
    for path in (zoo.ZOO / "glm4_moe_lite").iterdir():
        (source / path.name).write_bytes(path.read_bytes())
    (source / "mtplx_runtime.json").write_text(json.dumps({"mtplxd": {"format": 1, "head": {"tap": "pre"}}}))
    _, extraction = forge(source, tmp_path / "pack")
    assert dict(extraction.settings) == wrong
    found = calibrate(tmp_path / "pack", silent, never)
    assert (found.status, found.declared["tap"], found.settings["tap"]) == ("changed", "pre", "post")
    record_calibration(tmp_path / "pack", found.document())
    once = contents(tmp_path / "pack")
    model = load_model(read_pack(tmp_path / "pack"))
    assert model.head_settings == right("glm4_moe_lite")
    assert judge(read_pack(tmp_path / "pack"))[0] == "unverified"
    manifest = read_manifest(tmp_path / "pack")
    assert manifest is not None
    assert manifest.fields["mtp_contract"]["base_hidden_variant"] == "post_norm"
    assert declared_settings(manifest) == wrong
    record_calibration(tmp_path / "pack", found.document())
    assert contents(tmp_path / "pack") == once


def test_calibrating_again_finds_what_the_source_declared_not_what_was_made_of_it(tmp_path: Path) -> None:
    forge(zoo.ZOO / "mimo", tmp_path)
    first = conclude(
        flipped(right("mimo"), "tap"),
        {way: Sample((((1, 2) if way.tap == "pre" else (0, 0)) * 20,) * 8) for way in _ways()},
        zoo.DEPTH,
    )
    record_calibration(tmp_path, first.document())
    stated = declared_settings(read_manifest(tmp_path))
    assert stated["tap"] == first.declared["tap"] == "post"
    assert load_model(read_pack(tmp_path)).head_settings == right("mimo")


def _ways() -> list[HeadSettings]:
    model: Any = load_model(read_pack(zoo.ZOO / "mimo"))
    return ways_to_feed(model.head)


def test_a_head_that_helps_in_no_way_fails_with_all_that_was_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge(zoo.ZOO / "glm4_moe_lite", tmp_path)
    monkeypatch.setattr(calibrating, "PROMPTS", 8)

    def shuffle(tensors: dict[str, Any]) -> None:
        rng = np.random.default_rng(0)
        for name, array in tensors.items():
            if array.ndim > 1:
                values = rng.permutation(np.array(array.astype(mx.float32)).reshape(-1))
                tensors[name] = mx.array(values.reshape(array.shape)).astype(array.dtype)

    rewrite(tmp_path, shuffle)
    found = calibrate(tmp_path, silent, never)
    assert found.status == "calibration_failed"
    assert (found.failure_reason or "").startswith("calibration_failed: ")
    assert found.settings == found.declared == zoo.right_settings("glm4_moe_lite")
    assert len(found.tried) == 2 ** len(SWITCHES)


def test_trying_ways_leaves_the_head_as_it_was(tmp_path: Path) -> None:
    model: Any = load_model(read_pack(write_checkpoint(tmp_path, "qwen3_5", easy=True)))
    said = speak(open_all_taps(model.target), [5, 9, 2], 8, never)

    def drafts() -> list[int]:
        return walk(model.head, said, choose_tap(said.taps, model.head.settings), 3)

    before, way = drafts(), model.head.settings
    try_ways(model.head, way, [said], 3, silent, never)
    assert (drafts(), model.head.settings) == (before, way)


def test_a_text_can_be_too_short_to_draft_on(tmp_path: Path) -> None:
    model: Any = load_model(read_pack(write_checkpoint(tmp_path, "mimo", easy=True)))
    said = speak(open_all_taps(model.target), [5], 4, never)
    assert len(walk(model.head, said, choose_tap(said.taps, model.head.settings), 3)) <= 1
    assert isinstance(said, Spoken)


@pytest.mark.parametrize("family", ["step3p5", "mimo_v2_flash", "ernie4_5_moe", "glm_moe_dsa", "nemotron_h"])
def test_heads_of_every_kind_can_be_tried(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several layers, windows, no output norm, choices shared along a round."""
    monkeypatch.setattr(calibrating, "PROMPTS", 4)
    monkeypatch.setattr(calibrating, "TOKENS", 12)
    monkeypatch.setattr(calibrating, "PROMPT_TOKENS", 20)
    found = calibrate(write_checkpoint(tmp_path, family, easy=True), silent, never)
    assert found.depth == 3
    judged = {one["settings"]["recursion"] for one in found.document()["tried"]}
    assert len(judged) == (1 if family in ("mimo_v2_flash", "ernie4_5_moe") else 2)


def test_a_head_that_is_fed_in_one_way_only_has_nothing_to_choose(tmp_path: Path) -> None:
    found = calibrate(make_tiny_pack(tmp_path / "tiny"), silent, never)
    assert (found.status, found.settings, found.failure_reason) == ("fixed", {}, None)


def test_a_model_that_answers_no_questions_is_given_the_texts_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrating, "TOKENS", 8)
    source = write_checkpoint(tmp_path, "mimo", easy=True)
    settings = json.loads((source / "tokenizer_config.json").read_text())
    (source / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": None}))
    heard: list[list[int]] = []

    def listen(target: Any, prompt: list[int], *rest: Any) -> Spoken:
        heard.append(prompt)
        return speak(target, prompt, *rest)

    monkeypatch.setattr(calibrating, "speak", listen)
    texts = [f"text {number}" for number in range(8)]
    calibrate(source, silent, never, texts)
    encode = load_model(read_pack(source), plain=True).tokenizer.encode
    assert heard == [encode(text) for text in texts]


def test_too_few_texts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument):
        calibrate(tmp_path, silent, never, ["one", "two"])


@pytest.mark.parametrize("calls", [0, 40, 200])
def test_cancelled_at_any_time_it_ends(calls: int) -> None:
    with pytest.raises(Cancelled):
        calibrate(zoo.ZOO / "mimo", silent, count_to(calls))


def test_a_contract_without_a_calibration_declares_what_it_says(tmp_path: Path) -> None:
    write_manifest(tmp_path, Manifest({"mtp_contract": {"concat_order": "hidden_embedding"}}))
    assert declared_settings(read_manifest(tmp_path)) == {"concat": "hidden_first"}
    assert declared_settings(None) == {}


def test_norms_are_moved_by_one_and_back(tmp_path: Path) -> None:
    model: Any = load_model(read_pack(write_checkpoint(tmp_path, "mimo")))
    head, layer = model.head, model.head.module.layers[0]
    before = np.array(layer.enorm.weight)
    with fed(head, flipped(head.settings, "norm_convention")):
        assert np.allclose(np.array(layer.enorm.weight), before + 1, atol=1e-6)
        assert np.allclose(np.array(layer.block.input_layernorm.weight) - 1, 0, atol=2)
    assert np.array_equal(np.array(layer.enorm.weight), before)
