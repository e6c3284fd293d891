"""Which bodies run is a list that holds without MLX, and is that of the library where it is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from mlx_lm.utils import MODEL_REMAPPING
from mtplxd.families.recurrence.wrap import _KINDS
from mtplxd.packs.bodies import BODIES, CANNOT_GO_BACK, body_faults


@pytest.mark.parametrize("kind", sorted(BODIES))
def test_every_body_has_a_class(kind: str) -> None:
    name = MODEL_REMAPPING.get(kind, kind)
    assert importlib.util.find_spec(f"mlx_lm.models.{name}") is not None


def test_every_other_name_of_a_class_is_a_body() -> None:
    assert {kind for kind, name in MODEL_REMAPPING.items() if name in BODIES} <= BODIES | {"phi-msft"}


def test_those_that_cannot_go_back_are_the_ones_whose_caches_have_no_counterpart_here() -> None:
    """As their classes' sources say: a cache of a kind of its own, or recurrent layers that none here is made for."""
    driven = {name.split(".")[0] for name in _KINDS}
    own = ("ChunkedKVCache(", "ConcatenateKVCache(", "class LayerCache")

    def cannot(name: str) -> bool:
        spec = importlib.util.find_spec(f"mlx_lm.models.{name}")
        assert spec is not None
        assert spec.origin is not None
        source = Path(spec.origin).read_text()
        return any(kind in source for kind in own) or ("ArraysCache(" in source and name not in driven)

    assert {kind for kind in BODIES if cannot(MODEL_REMAPPING.get(kind, kind))} == CANNOT_GO_BACK


@pytest.mark.parametrize("kind", sorted(CANNOT_GO_BACK))
def test_a_body_that_cannot_go_back_is_refused_by_name(kind: str) -> None:
    assert body_faults({"model_type": kind}) == [f"a body of model_type {kind} cannot take tokens back"]


@pytest.mark.parametrize("kind", ["base", "cache", "switch_layers", "mimosa", "../x", "", None, 3])
def test_what_is_no_body_is_refused(kind: object) -> None:
    assert body_faults({"model_type": kind})
