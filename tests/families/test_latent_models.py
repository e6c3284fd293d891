"""Whole models with latent attention, opened as a load opens them: short forwards are absorbed, nothing else moves."""

from __future__ import annotations

from typing import Any

import pytest
from mtplxd.families.body import Body
from mtplxd.families.latent import install
from mtplxd.families.load_body import open_body
from mtplxd.platform.mlx import Array, mx
from support.latent_models import LATENT, make_model

ALLOWED = 1e-4
"""Of logits whose spread is about one, behind two layers."""
PROMPT, PARTS = 40, (4, 1, 8, 3)

RECURRENT = {"kimi_linear", "kimi_k3", "bailing_hybrid", "bailing_moe_v3"}
families = pytest.mark.parametrize("family", LATENT)


def open_absorbed(model: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Body, list[int]]:
    """A body without troubles, and the lengths of its absorbed forwards as they come."""
    body, troubles = open_body(model, ())
    assert troubles == []
    seen: list[int] = []
    real = install.attend_absorbed

    def counting(attention: Any, form: Any, x: Array, *rest: Any) -> Array:
        seen.append(x.shape[1])
        return real(attention, form, x, *rest)

    monkeypatch.setattr(install, "attend_absorbed", counting)
    return body, seen


def tokens_of(rows: int, count: int) -> Array:
    return mx.random.randint(0, 100, (rows, count), key=mx.random.key(3))


def logits_of(body: Body, tokens: Array, cache: Any) -> Array:
    return body.logits(body.run(tokens, cache)[0])


@families
def test_a_text_in_parts_has_the_logits_of_mlx_lms_classes(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlx_lm.models.cache import make_prompt_cache

    stock = make_model(family)
    body, seen = open_absorbed(make_model(family), monkeypatch)
    tokens, ours, theirs = tokens_of(1, PROMPT + sum(PARTS)), body.make_cache(1), make_prompt_cache(stock)
    begin = 0
    for count in (PROMPT, *PARTS):
        part = tokens[:, begin : begin + count]
        wanted, found = stock(part, cache=theirs), logits_of(body, part, ours)
        assert mx.abs(wanted - found).max().item() <= ALLOWED, (begin, count)
        begin += count
    attentions = len(seen) // len(PARTS)
    assert seen == [count for count in PARTS for _ in range(attentions)]


@families
def test_rejected_positions_leave_no_trace(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body, _ = open_absorbed(make_model(family), monkeypatch)
    tokens, wrong = tokens_of(1, PROMPT + 8), mx.full((1, 3), 7, mx.int32)
    cache, fresh = body.make_cache(1), body.make_cache(1)
    for held in (cache, fresh):
        logits_of(body, tokens[:, :PROMPT], held)
    logits_of(body, mx.concatenate([tokens[:, PROMPT : PROMPT + 1], wrong], axis=1), cache)
    for layer in cache:
        layer.roll_back([PROMPT + 1])
    logits_of(body, tokens[:, PROMPT : PROMPT + 1], fresh)
    rest = tokens[:, PROMPT + 1 : PROMPT + 5]
    assert mx.abs(logits_of(body, rest, cache) - logits_of(body, rest, fresh)).max().item() <= ALLOWED


@pytest.mark.parametrize("family", sorted(LATENT.keys() - RECURRENT))
def test_rows_of_unequal_length_are_decoded_together(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body, _ = open_absorbed(make_model(family), monkeypatch)
    tokens, lengths = tokens_of(3, PROMPT + 4), [PROMPT, 17, 31]
    cache = body.make_cache(3)
    logits_of(body, tokens[:, :PROMPT], cache)
    for layer in cache:
        layer.roll_back(lengths)
    together = logits_of(body, tokens[:, PROMPT:], cache)
    for row, length in enumerate(lengths):
        alone = body.make_cache(1)
        logits_of(body, tokens[row : row + 1, :length], alone)
        wanted = logits_of(body, tokens[row : row + 1, PROMPT:], alone)
        assert mx.abs(together[row] - wanted[0]).max().item() <= ALLOWED, row


@families
def test_a_quantised_model_opens_without_trouble_and_is_absorbed(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, seen = open_absorbed(make_model(family, bits=8), monkeypatch)
    cache = body.make_cache(1)
    logits_of(body, tokens_of(1, PROMPT), cache)
    assert mx.all(mx.isfinite(logits_of(body, tokens_of(1, 4), cache))).item()
    assert set(seen) == {4}
