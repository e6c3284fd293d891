"""A model whose rows would spoil each other in one forward is found at load, and says why its rows take turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mtplxd.families.body import Body
from mtplxd.families.body_check import check_body, stock_logits
from mtplxd.families.caches import RowCache, StateCache, WindowCache
from mtplxd.families.load import load_model
from mtplxd.families.load_body import open_body
from mtplxd.families.rows_check import why_apart
from mtplxd.packs.pack import read_pack
from mtplxd.platform.mlx import Array, mx, tree
from support.bodies import write_body
from support.families import write_checkpoint
from support.recurrent import random_model

SMALL: dict[str, Any] = {
    "vocab_size": 300, "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96, "head_dim": 16,
    "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": 512,
}  # fmt: skip
GEMMA2 = {**SMALL, "model_type": "gemma2", "query_pre_attn_scalar": 16}
BIGCODE = {
    "model_type": "gpt_bigcode", "vocab_size": 300, "n_embd": 64, "n_layer": 2, "n_inner": 96, "n_head": 4,
    "n_positions": 512, "layer_norm_epsilon": 1e-5, "max_position_embeddings": 512,
}  # fmt: skip


def apart(folder: Path, config: dict[str, Any]) -> str:
    return load_model(read_pack(write_body(folder, config))).apart


@pytest.fixture(params=["mimo", "mimo_v2_flash", "qwen3_5", "deepseek_v32", "nemotron_h"])
def pack(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return read_pack(write_checkpoint(tmp_path / "pack", request.param, head=False))


def test_a_class_that_shares_forwards_says_nothing(pack: Any) -> None:
    model = load_model(pack)
    assert (model.apart, model.troubles) == ("", ())


def test_a_class_that_mixes_rows_up_is_named(tmp_path: Path) -> None:
    found = apart(tmp_path / "pack", GEMMA2)
    assert found == "gemma2 computes rows of unequal length wrongly when they share a forward"


def test_a_class_that_fails_on_several_rows_is_named_with_what_it_said(tmp_path: Path) -> None:
    found = apart(tmp_path / "pack", BIGCODE)
    assert found.startswith("gpt_bigcode cannot compute rows of unequal length together (")
    assert "\n" not in found


def test_a_head_whose_drafts_share_a_choice_takes_turns_and_plainly_it_need_not(tmp_path: Path) -> None:
    sharing = {"index_share_for_mtp_iteration": True}
    folder = write_checkpoint(tmp_path / "pack", "glm_moe_dsa", config=sharing)
    assert "choice of slots" in load_model(read_pack(folder)).apart
    assert load_model(read_pack(folder), plain=True).apart == ""
    assert load_model(read_pack(write_checkpoint(tmp_path / "other", "glm_moe_dsa"))).apart == ""


# What may be wrong with rows that share a forward, each spoilt on purpose for several rows alone


def several(cache: Any) -> bool:
    return len(cache.lengths) > 1


def places_of_the_first_row(patch: pytest.MonkeyPatch) -> None:
    for kind in (RowCache, WindowCache, StateCache):
        patch.setattr(kind, "offset", property(lambda cache: cache.lengths[0]))


def places_of_the_last_row(patch: pytest.MonkeyPatch) -> None:
    for kind in (RowCache, WindowCache, StateCache):
        patch.setattr(kind, "offset", property(lambda cache: cache.lengths[-1]))


def masks_of_the_longest_row(patch: pytest.MonkeyPatch) -> None:
    for kind in (RowCache, WindowCache):
        honest = kind.make_mask

        def make_mask(cache: Any, count: int, *args: Any, honest: Any = honest, **kwargs: Any) -> Any:
            mask = honest(cache, count, *args, **kwargs)
            return mx.broadcast_to(mask[-1:], mask.shape) if several(cache) else mask

        patch.setattr(kind, "make_mask", make_mask)


def masks_that_show_padding(patch: pytest.MonkeyPatch) -> None:
    for kind in (RowCache, WindowCache):
        honest = kind.make_mask

        def make_mask(cache: Any, count: int, *args: Any, honest: Any = honest, **kwargs: Any) -> Any:
            mask = honest(cache, count, *args, **kwargs)
            return mx.ones_like(mask) if several(cache) else mask

        patch.setattr(kind, "make_mask", make_mask)


def slots_of_the_first_row(patch: pytest.MonkeyPatch) -> None:
    for kind in (RowCache, WindowCache):
        honest = kind.write

        def write(cache: Any, keys: Array, values: Array, slots: Any, end: int, honest: Any = honest) -> None:
            honest(cache, keys, values, [slots[0]] * len(slots), end)

        patch.setattr(kind, "write", write)


def rows_that_join_as_the_first(patch: pytest.MonkeyPatch) -> None:
    def join(cache: Any, other: Any) -> None:
        lengths, state = (
            [*cache.lengths, *other.lengths],
            [mx.concatenate([array, array]) for array in cache.state],
        )
        cache.lengths = lengths
        if isinstance(cache, StateCache):
            cache.slots, cache._forwards = state, []
        else:
            cache.keys, cache.values = state
        if isinstance(cache, WindowCache):
            cache.begins = [*cache.begins, *other.begins]

    for kind in (RowCache, WindowCache, StateCache):
        patch.setattr(kind, "join", join)


WRONGS = [
    places_of_the_first_row,
    places_of_the_last_row,
    masks_of_the_longest_row,
    masks_that_show_padding,
    slots_of_the_first_row,
    rows_that_join_as_the_first,
]


@pytest.mark.parametrize("spoil", WRONGS)
@pytest.mark.parametrize("family", ["mimo", "mimo_v2_flash", "deepseek_v32"])
def test_whatever_goes_wrong_between_rows_is_found(
    family: str, spoil: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_checkpoint(tmp_path / "pack", family, head=False)
    spoil(monkeypatch)
    assert "rows of unequal length" in load_model(read_pack(folder)).apart


def states_that_keep_all_of_a_forward(patch: pytest.MonkeyPatch) -> None:
    honest = StateCache.roll_back

    def roll_back(cache: StateCache, lengths: Any) -> None:
        if several(cache):
            cache.lengths = list(lengths)
        else:
            honest(cache, lengths)

    patch.setattr(StateCache, "roll_back", roll_back)


def states_that_keep_as_much_as_the_first(patch: pytest.MonkeyPatch) -> None:
    honest = StateCache.roll_back

    def roll_back(cache: StateCache, lengths: Any) -> None:
        if not several(cache):
            return honest(cache, lengths)
        kept = cache.lengths[0] - lengths[0]
        honest(cache, [length - kept for length in cache.lengths])
        cache.lengths = list(lengths)
        return None

    patch.setattr(StateCache, "roll_back", roll_back)


@pytest.mark.parametrize(
    "spoil",
    [rows_that_join_as_the_first, states_that_keep_all_of_a_forward, states_that_keep_as_much_as_the_first],
)
@pytest.mark.parametrize("family", ["qwen3_next", "nemotron_h", "kimi_linear", "lfm2", "jamba"])
def test_states_that_go_wrong_between_rows_are_found(
    family: str, spoil: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model(family)
    spoil(monkeypatch)
    assert "wrongly" in open_body(model, ())[0].apart


# What is no fault


class Flipping(Body):
    """A body in half precision, some of whose positions pick another expert when rows share a forward."""

    off: tuple[int, ...] = ()
    seen = 0

    def logits(self, hidden: Array) -> Array:
        found = super().logits(hidden)
        if hidden.shape[0] == 1:
            return found
        rows = [self._flipped(found[row]) if self._is_off() else found[row] for row in range(hidden.shape[0])]
        return mx.stack(rows)

    def _is_off(self) -> bool:
        self.seen += 1
        return self.seen - 1 in self.off

    def _flipped(self, logits: Array) -> Array:
        return mx.concatenate([logits[:-1], -logits[-1:]])


def opened(dtype: Any) -> tuple[Flipping, list[list[Any]], list[Array]]:
    """A random body, its caches as its check leaves them, and the logits it is checked against."""
    from mlx_lm.models.llama import Model, ModelArgs

    model = Model(ModelArgs.from_dict({**SMALL, "model_type": "llama"}))
    weights = tree.tree_flatten(model.parameters())
    drawn = [mx.random.normal(array.shape, key=mx.random.key(i)) for i, (_, array) in enumerate(weights)]
    model.load_weights(
        [(name, one * 0.1 + (one.ndim == 1)) for (name, _), one in zip(weights, drawn, strict=True)]
    )
    model.set_dtype(dtype)
    expected = stock_logits(model)
    body = Flipping(model)
    return body, check_body(body, expected), expected


FIRST, SECOND, THIRD = (0, 1), (2, 3), (4, 5)
"""Both rows in the first forward, of two positions, and in those of one."""


@pytest.mark.parametrize(
    ("off", "wrong"),
    [
        ((), False),
        (FIRST, False),
        (SECOND, False),
        ((FIRST[0], SECOND[1]), False),
        ((SECOND[1], THIRD[0]), False),
        ((SECOND[0], THIRD[0]), True),
        ((SECOND[1], THIRD[1]), True),
        ((*SECOND, *THIRD), True),
    ],
)
def test_in_half_precision_a_row_that_is_off_once_is_forgiven_and_twice_is_not(
    off: tuple[int, ...], *, wrong: bool
) -> None:
    body, behind, expected = opened(mx.bfloat16)
    body.off = off
    assert bool(why_apart(body, behind, expected)) is wrong


def test_in_float32_one_position_is_enough() -> None:
    body, behind, expected = opened(mx.float32)
    body.off = FIRST[:1]
    assert "wrongly" in why_apart(body, behind, expected)


def test_the_check_leaves_the_model_as_it_was_and_takes_two_forwards_more(tmp_path: Path) -> None:
    body: Any = load_model(read_pack(write_checkpoint(tmp_path / "pack", "mimo", head=False))).target
    expected = stock_logits(body.model)
    behind = check_body(body, expected)
    runs: list[tuple[int, ...]] = []
    honest = body.run

    def run(tokens: Array, cache: Any) -> Any:
        runs.append(tokens.shape)
        return honest(tokens, cache)

    body.run = run
    assert why_apart(body, behind, expected) == ""
    assert runs == [(2, 2), (2, 1)]
    check_body(body, expected)
