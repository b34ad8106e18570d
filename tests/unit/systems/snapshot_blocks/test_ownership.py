"""Owners of nodes and snapshots by hand, and the rows that ranks swap."""

from __future__ import annotations

import pytest

from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.partition.events import BlockFacts
from dtdg_lab.systems.snapshot_blocks.ownership import owner_maps, swapped_bytes
from tests.plan_events import blocks_data, plan


def test_owners_of_two_blocks_on_two_ranks_by_hand() -> None:
    """Five snapshots in blocks of 2 and 3, five nodes: rank 0 has one snapshot of each block."""
    within, over_time = owner_maps(BlockFacts.read(blocks_data(plan(5, 2, 2, 5))), 2)
    assert within.ranks.tolist() == [[0, 1, 0, 1]] and within.snapshots.tolist() == [0, 1, 2, 3, 5]
    assert over_time.ranks.tolist() == [[0, 0], [1, 1]], "blocks stay apart"
    assert over_time.nodes.tolist() == [0, 2, 5] and over_time.snapshots.tolist() == [0, 2, 5]


def test_groups_of_ranks_share_a_snapshot_by_rows() -> None:
    within, over_time = owner_maps(BlockFacts.read(blocks_data(plan(8, 1, 4, 8, 2))), 1)
    assert within.ranks.tolist() == [[0, 2], [1, 3]], "ranks 0 and 1 have the first half of the snapshots"
    assert over_time.ranks.tolist() == [[0], [2], [1], [3]], "each keeps half of the rows it had"


@pytest.mark.parametrize("blocks", [plan(), plan(5, 2, 2, 5), plan(24, 3, 4, 100, 2)])
def test_what_is_swapped_is_what_the_forward_pass_is_predicted_to_send(blocks: SnapshotBlocks) -> None:
    facts = BlockFacts.read(blocks_data(blocks))
    assert swapped_bytes(facts, 4) == facts.predicted["forward"].sum()
