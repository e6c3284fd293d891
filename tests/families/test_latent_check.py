"""Each kind of attention is tried against mlx-lm's at load; what differs or is unknown stays as it is, and is said."""

from __future__ import annotations

from typing import Any

import pytest
from mtplxd.families.latent import absorb_latent, check, forward, install
from mtplxd.families.latent.forms import Form
from mtplxd.platform.mlx import Array, mx, nn, tree
from support.latent_attention import KINDS, Kind, call, draw, make_attention, make_cache, quantise

queries, attend = forward._queries, forward.attend
FLASH = next(kind for kind in KINDS if kind.name == "glm4_moe_lite")
kinds = pytest.mark.parametrize("kind", KINDS, ids=str)


class Layers(nn.Module):  # type: ignore[misc]
    """Attentions where a model's tree has them: under layers, and in a list of a layer's, as LongCat's."""

    def __init__(self, *attentions: Any) -> None:
        super().__init__()
        self.layers = [{"self_attn": attention} for attention in attentions[:-1]]
        self.pair = [attentions[-1]]


def names_of(module: Any) -> list[str]:
    return [name for name, _ in tree.tree_flatten(module.parameters())]


@kinds
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["float32", "bfloat16"])
def test_every_kind_passes_its_check(kind: Kind, dtype: Any) -> None:
    attention = make_attention(kind)
    attention.set_dtype(dtype)
    stock = type(attention)
    assert absorb_latent(attention) == []
    assert isinstance(attention, stock)
    assert type(attention) is not stock


@kinds
def test_parameters_keep_their_names_and_values(kind: Kind) -> None:
    model, again = (Layers(make_attention(kind), quantise(make_attention(kind))) for _ in range(2))
    assert absorb_latent(model) == []
    assert names_of(model) == names_of(again)
    pairs = zip(tree.tree_flatten(model.parameters()), tree.tree_flatten(again.parameters()), strict=True)
    assert all(mx.array_equal(ours, stock).item() for (_, ours), (_, stock) in pairs)


def _unrotated(_attention: Any, part: Array, _offset: int) -> Array:
    return part


def _scaled_twice(*given: Any) -> tuple[Array, Array]:
    content, rotary = queries(*given)
    return 2 * content, 2 * rotary


def _seeing_the_future(*given: Any) -> Array:
    return attend(*given[:-1], None)


FAULTS = {"_rotate": _unrotated, "_queries": _scaled_twice, "attend": _seeing_the_future}


@pytest.mark.parametrize("part", FAULTS)
def test_an_absorbed_forward_that_differs_is_not_used(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, part, FAULTS[part])
    ours, stock = make_attention(FLASH), make_attention(FLASH)
    (reason,) = absorb_latent(ours)
    assert reason.startswith("slow verify: Glm4MoeLiteAttention differs by ")
    x, caches = draw(1, 64), [make_cache(FLASH) for _ in range(2)]
    outputs = [
        call(FLASH, attention, x, cache) for attention, cache in zip((ours, stock), caches, strict=True)
    ]
    steps = [
        call(FLASH, attention, x[:, :3], cache)
        for attention, cache in zip((ours, stock), caches, strict=True)
    ]
    assert mx.array_equal(*outputs).item()
    assert mx.array_equal(*steps).item()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.sparse], ids=str)
def test_a_wrong_narrowing_is_not_used(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    def ignore_choice(
        content: Array, rotary: Array, latents: Array, positions: Array, mask: Any, _: Any
    ) -> Array:
        return attend(content, rotary, latents, positions, mask)

    monkeypatch.setattr(forward, "attend_chosen", ignore_choice)
    (reason,) = absorb_latent(make_attention(kind))
    assert "differs by" in reason


def test_weights_without_a_number_are_not_taken_for_equal() -> None:
    attention = make_attention(FLASH)
    attention.embed_q.weight = attention.embed_q.weight * float("nan")
    (reason,) = absorb_latent(attention)
    assert "differs by inf" in reason


def test_a_class_that_names_its_parts_anew_keeps_its_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "form_of", lambda _: Form(output="projection_of_another_release"))
    (reason,) = absorb_latent(make_attention(FLASH))
    assert reason == "slow verify: Glm4MoeLiteAttention cannot be absorbed (AttributeError)"


def test_an_unknown_class_with_a_latent_cache_is_named_and_left() -> None:
    class NewAttention(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed_q, self.unembed_out = nn.RMSNorm(4), nn.Identity()

    attention = NewAttention()
    assert absorb_latent(Layers(make_attention(FLASH), attention)) == [
        "slow verify: NewAttention is not known"
    ]
    assert type(attention) is NewAttention


def test_a_reason_is_given_once_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "find_difference", lambda *_: "differs")
    model = Layers(*(make_attention(FLASH, seed=seed) for seed in range(4)), make_attention(KINDS[0]))
    assert sorted(absorb_latent(model)) == [
        "slow verify: DeepseekV3Attention differs",
        "slow verify: Glm4MoeLiteAttention differs",
    ]


def test_each_kind_is_tried_once_and_quantised_ones_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []
    monkeypatch.setattr(install, "find_difference", lambda attention, _: tried.append(attention))
    floats = [make_attention(FLASH, seed=seed) for seed in range(3)]
    assert absorb_latent(Layers(*floats, quantise(make_attention(FLASH)), make_attention(FLASH))) == []
    assert len(tried) == 2


def test_a_model_without_latent_caches_is_left_alone() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.RMSNorm(4))
    kinds_before = [type(module) for _, module in model.named_modules()]
    assert absorb_latent(model) == []
    assert [type(module) for _, module in model.named_modules()] == kinds_before


def test_absorbing_twice_changes_nothing_more() -> None:
    model = Layers(make_attention(FLASH), make_attention(FLASH))
    assert absorb_latent(model) == []
    kinds_before = [type(module) for _, module in model.named_modules()]
    assert absorb_latent(model) == []
    assert [type(module) for _, module in model.named_modules()] == kinds_before


def test_the_check_sees_more_than_it_allows_for_rounding() -> None:
    """A bfloat16 attention differs from its float32 twin by its own rounding, well inside what is allowed."""
    attention = make_attention(FLASH)
    attention.set_dtype(mx.bfloat16)
    assert check._compare(attention, Form()) < check.COARSE_TOLERANCE / 2
    attention.set_dtype(mx.float32)
    assert check._compare(attention, Form()) < check.TOLERANCE / 10
