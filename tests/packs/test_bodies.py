"""Which bodies run is a list that holds without MLX, and is that of the library where it is installed."""

from __future__ import annotations

import importlib.util

import pytest
from mlx_lm.utils import MODEL_REMAPPING
from mtplxd.packs.bodies import BODIES, body_faults


@pytest.mark.parametrize("kind", sorted(BODIES))
def test_every_body_has_a_class(kind: str) -> None:
    name = MODEL_REMAPPING.get(kind, kind)
    assert importlib.util.find_spec(f"mlx_lm.models.{name}") is not None


def test_every_other_name_of_a_class_is_a_body() -> None:
    assert {kind for kind, name in MODEL_REMAPPING.items() if name in BODIES} <= BODIES | {"phi-msft"}


@pytest.mark.parametrize("kind", ["base", "cache", "switch_layers", "mimosa", "../x", "", None, 3])
def test_what_is_no_body_is_refused(kind: object) -> None:
    assert body_faults({"model_type": kind})
