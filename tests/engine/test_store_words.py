"""Engine and store import nothing of each other, so what both say of a block stands in each: the same."""

from __future__ import annotations

from mtplxd.engine import blocks, identity
from mtplxd.store import planner, tiers


def test_engine_and_store_mean_the_same_by_a_blocks_parts_grades_and_partitions() -> None:
    assert (blocks.BODY, blocks.HEAD) == (tiers.BODY, tiers.HEAD)
    assert (blocks.GAPPED, blocks.PASSES, blocks.RESTORES) == (
        planner.GAPPED,
        planner.PASSES,
        planner.RESTORES,
    )
    assert (identity.FREE, identity.FIXED) == tiers.PARTITIONS
