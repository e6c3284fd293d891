"""What a conversion cost is what the equations say it is, and too much of it fails with the figure."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from mtplxd.errors import Cancelled, InvalidArgument
from mtplxd.families.load import load_model
from mtplxd.forge.divergence import Divergence, log_softmax
from mtplxd.forge.quality import Quality, held_out_texts, judge_quality, measure_quality
from mtplxd.forge.recipe import QUALITY_FLOOR
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import mx
from support.families import write_checkpoint
from support.forging import Listener, convert, count_to, never, silent
from support.zoo import ZOO

TEXTS = [
    "def main() -> None:\n\tprint('hello')\n",
    "Permission is hereby granted, free of charge, to any person",
]


def logits_of(folder: Path, text: str) -> np.ndarray:
    model = load_model(read_pack(folder), plain=True)
    tokens = model.tokenizer.encode(text)
    hidden, _ = model.target.run(mx.array([tokens], mx.int32), model.target.make_cache(1))
    return np.array(model.target.logits(hidden)[0].astype(mx.float32)).astype(np.float64)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("packed") / "pack"
    convert(ZOO / "mimo", out, bits=3, group_size=32)
    return out


def test_both_figures_are_those_of_the_definition(packed: Path) -> None:
    found = measure_quality(ZOO / "mimo", packed, TEXTS, silent, never)
    kl, same = [], []
    for text in TEXTS:
        one, other = logits_of(ZOO / "mimo", text), logits_of(packed, text)
        p = np.exp(one) / np.exp(one).sum(axis=1, keepdims=True)
        q = np.exp(other) / np.exp(other).sum(axis=1, keepdims=True)
        kl += list((p * np.log(p / q)).sum(axis=1))
        same += list(one.argmax(axis=1) == other.argmax(axis=1))
    assert found.kl == pytest.approx(np.mean(kl), rel=1e-4)
    assert found.top1 == pytest.approx(np.mean(same))
    assert found.tokens == len(kl) == sum(map(len, TEXTS))
    assert found.kl > 0
    assert 0 < found.top1 < 1


def test_the_source_comes_first_in_the_divergence() -> None:
    sure, unsure = np.array([[8.0, 0, 0]], np.float32), np.array([[1.0, 0, 0]], np.float32)
    one, other = Divergence(), Divergence()
    one.add(sure, unsure)
    other.add(unsure, sure)
    assert one.kl != pytest.approx(other.kl)
    p = np.exp(sure[0]) / np.exp(sure[0]).sum()
    q = np.exp(unsure[0]) / np.exp(unsure[0]).sum()
    assert one.kl == pytest.approx(float((p * np.log(p / q)).sum()), rel=1e-5)


def test_large_logits_do_not_overflow() -> None:
    found = log_softmax(np.array([[1e4, 0.0], [-1e4, -1e4]], np.float32))
    assert found[0] == pytest.approx([0.0, -1e4])
    assert found[1] == pytest.approx(np.log([0.5, 0.5]))


def test_a_body_kept_as_it_is_costs_nothing(tmp_path: Path) -> None:
    convert(ZOO / "glm4_moe_lite", tmp_path / "pack")
    found = measure_quality(ZOO / "glm4_moe_lite", tmp_path / "pack", TEXTS, silent, never)
    assert (found.kl, found.top1) == (0.0, 1.0)


def test_fewer_bits_cost_more_and_too_few_fail(packed: Path, tmp_path: Path) -> None:
    figures = [measure_quality(ZOO / "mimo", packed, TEXTS, silent, never)]
    for bits in (8, 2):
        convert(ZOO / "mimo", tmp_path / str(bits), bits=bits, group_size=32)
        figures.append(measure_quality(ZOO / "mimo", tmp_path / str(bits), TEXTS, silent, never))
    three, eight, two = figures
    assert eight.kl < three.kl < two.kl
    assert judge_quality(eight, QUALITY_FLOOR, lossless=False) is None
    assert "below 85%" in (judge_quality(two, QUALITY_FLOOR, lossless=False) or "")


@pytest.mark.parametrize(
    ("quality", "lossless", "fails"),
    [
        (Quality(0.01, 0.86, 100), False, False),
        (Quality(0.01, 0.85, 100), False, False),
        (Quality(0.01, 0.849, 100), False, True),
        (Quality(float("nan"), 1.0, 100), False, True),
        (Quality(float("inf"), 1.0, 100), False, True),
        (None, False, True),
        (None, True, False),
        (Quality(9.0, 0.1, 100), True, False),
    ],
)
def test_the_floor_decides_but_for_weights_that_nobody_changed(
    quality: Quality | None, lossless: bool, fails: bool
) -> None:
    reason = judge_quality(quality, QUALITY_FLOOR, lossless)
    assert (reason is not None) is fails
    assert not fails or (reason or "").startswith("quality_failed: ")


def test_a_divergence_that_is_no_number_is_null_in_the_document() -> None:
    document = Quality(float("nan"), 0.5, 3).document()
    assert json.loads(json.dumps(document, allow_nan=False)) == {"kl": None, "top1": 0.5, "tokens": 3}


def test_built_in_texts_are_long_enough_for_every_window() -> None:
    texts = held_out_texts()
    assert len(texts) >= 12
    assert min(map(len, texts)) > 800


def test_texts_without_a_token_are_refused(packed: Path) -> None:
    with pytest.raises(InvalidArgument):
        measure_quality(ZOO / "mimo", packed, ["", "a"], silent, never)


@pytest.mark.parametrize("calls", [0, 30, 60, 107])
def test_cancelled_at_any_time_it_leaves_nothing(calls: int, packed: Path) -> None:
    before = set(packed.parent.iterdir())
    with pytest.raises(Cancelled):
        measure_quality(ZOO / "mimo", packed, TEXTS, silent, count_to(calls))
    assert set(packed.parent.iterdir()) == before


def test_progress_is_told_for_both_bodies(packed: Path) -> None:
    listener = Listener()
    measure_quality(ZOO / "mimo", packed, TEXTS, listener.tell, never)
    assert [words[1:] for words in listener.told] == [
        (1, 4, "source"), (2, 4, "source"), (3, 4, "packed"), (4, 4, "packed"),
    ]  # fmt: skip


def test_only_the_bodies_are_compared(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "source", "qwen3_5", head=True)
    convert(source, tmp_path / "pack", bits=8, group_size=32)
    found = measure_quality(source, tmp_path / "pack", ["some text of no meaning"], silent, never)
    assert found.tokens > 1
    assert found.top1 > 0.5
