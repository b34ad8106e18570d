"""Neighbourhoods of k hops, unions and transposes of snapshots."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.partition.measures import measure, remote_rows
from dtdg_lab.partition.neighbourhoods import hop_distance, transposed, union_of
from tests.factories import HALVES, STEPS, path_graph, snapshot_of


def test_what_does_not_fit():
    other = Partition(np.arange(5, dtype=np.int32) % 2, 2)
    with pytest.raises(PlanError, match="the partition has 5 nodes, but the snapshot has 6"):
        measure(path_graph(), other)
    with pytest.raises(PlanError, match="direction='up'"):
        remote_rows(snapshot_of([]), HALVES, "up")
    with pytest.raises(PlanError, match="hops=127 must be from 0 to 126"):
        hop_distance([snapshot_of([])], np.array([0]), 127)
    with pytest.raises(PlanError, match=r"directions=\(\)"):
        hop_distance([snapshot_of([])], np.array([0]), 1, ())
    with pytest.raises(PlanError, match="neighbourhoods need at least one snapshot"):
        union_of([])
    with pytest.raises(PlanError, match=r"snapshots have \[5, 6\] nodes"):
        union_of([snapshot_of([], 5), snapshot_of([], 6)])


def test_a_union_of_more_edges_than_are_sorted_at_once(monkeypatch):
    monkeypatch.setattr("dtdg_lab.partition.neighbourhoods.KEYS_AT_ONCE", 3)
    union = union_of([snapshot_of(step) for step in STEPS * 2])
    assert union.equals(snapshot_of([edge for step in STEPS for edge in step]))


def test_transposing_keeps_weights():
    turned = transposed(Snapshot(np.array([0, 2, 2]), np.array([0, 1], np.int32), np.array([1.5, 2], np.float32)))
    assert (turned.indptr.tolist(), turned.indices.tolist(), turned.weights.tolist()) == ([0, 1, 2], [0, 0], [1.5, 2])
