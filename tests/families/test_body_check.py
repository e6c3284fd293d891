"""A body whose caches, layers or logits go wrong is refused at load, whichever of them it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mtplxd.errors import FailedPrecondition
from mtplxd.families.body import Body
from mtplxd.families.body_check import check_body, stock_logits
from mtplxd.families.caches import RowCache, WindowCache
from mtplxd.families.load import load_model
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import Array, mx
from support.families import write_checkpoint


@pytest.fixture(params=["mimo", "mimo_v2_flash", "qwen3_5", "deepseek_v32"])
def pack(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return read_pack(write_checkpoint(tmp_path / "pack", request.param, head=False))


def refuse(pack: Any) -> None:
    with pytest.raises(FailedPrecondition, match="does not compute what its class does"):
        load_model(pack)


def test_a_sound_body_is_not_refused(pack: Any) -> None:
    assert load_model(pack).troubles == ()


def test_a_cache_that_forgets_to_go_back_is_noticed(pack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (RowCache, WindowCache):
        monkeypatch.setattr(kind, "roll_back", lambda *_: None)
    refuse(pack)


def test_a_cache_that_shifts_positions_is_noticed(pack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    offset = RowCache.offset.fget
    monkeypatch.setattr(RowCache, "offset", property(lambda cache: offset(cache) * 2))  # type: ignore[misc]
    refuse(pack)


def test_a_mask_that_shows_the_future_is_noticed(pack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(cache: Any, count: int, **_: Any) -> Any:
        return mx.ones((count, max(cache.lengths) + count), mx.bool_) if count > 1 else None

    monkeypatch.setattr(RowCache, "make_mask", blind)
    refuse(pack)


def test_logits_of_another_matrix_are_noticed(pack: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Body, "logits", lambda body, hidden: body.embedding.as_linear(hidden))
    refuse(pack)


def test_a_class_that_cannot_be_driven_is_refused_in_one_line(
    pack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(_body: Any, hidden: Array) -> Array:
        batch, length = hidden.shape  # of a class that is written for something else
        return hidden[batch:length]

    monkeypatch.setattr(Body, "logits", other)
    with pytest.raises(FailedPrecondition, match=r"cannot drive.*too many values") as refused:
        load_model(pack)
    assert "\n" not in str(refused.value)


def test_a_body_of_numbers_that_are_none_is_left_to_the_answer_to_report(tmp_path: Path) -> None:
    model: Any = load_model(read_pack(write_checkpoint(tmp_path / "pack", "mimo", head=False))).target
    norm = model.final_norm
    norm.weight = norm.weight * mx.nan
    expected: list[Array] = stock_logits(model.model)
    check_body(model, expected)


@pytest.mark.parametrize(("share", "refused"), [(1e-5, False), (0.05, True)])
def test_rounding_is_allowed_and_no_more(tmp_path: Path, share: float, refused: bool) -> None:
    body: Any = load_model(read_pack(write_checkpoint(tmp_path / "pack", "mimo", head=False))).target
    expected = [
        logits + share * mx.random.normal(logits.shape, key=mx.random.key(1)) * mx.sqrt(mx.var(logits))
        for logits in stock_logits(body.model)
    ]
    if refused:
        with pytest.raises(FailedPrecondition, match="off"):
            check_body(body, expected)
    else:
        check_body(body, expected)
