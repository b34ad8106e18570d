"""Predicted bytes of halo rows, by hand, and the memory that a volume takes."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from dtdg_lab.config.model_facts import Pull
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.partition.measures import measure
from dtdg_lab.partition.volume import between_parts, predicted_bytes
from tests.factories import HALVES, path_graph


def test_bytes_by_hand():
    measured = measure(path_graph(), HALVES, directions=("in", "out"))
    pulls = [
        Pull(0, "in", 3, False, of_features=True),
        Pull(0, "out", 5, True, at_first=False),
        Pull(1, "in", 2, True),
        Pull(1, "top", 9, True),
    ]
    sent = predicted_bytes(measured, pulls)
    assert sent["forward"].tolist() == [[[0, 32], [32, 0]], [[0, 8], [8, 0]]]
    # out: in the first snapshot part 1 sends to part 0, whose gradient is not wanted back; in the second the reverse
    assert sent["backward"].tolist() == [[[0, 0], [20, 0]], [[0, 8], [8, 0]]]
    assert predicted_bytes(measured, pulls, reuse=True)["forward"][0].tolist() == [[0, 20], [20, 0]]
    assert (predicted_bytes(measured, pulls, itemsize=8)["forward"] == 2 * sent["forward"]).all()
    with pytest.raises(PlanError, match="the model aggregates over out, but directions="):
        predicted_bytes(measure(path_graph(), HALVES), pulls)


def test_memory_of_a_volume_does_not_grow_with_the_snapshots():
    parts, nodes = 200, 400
    ring = Snapshot(np.arange(nodes + 1), np.roll(np.arange(nodes, dtype=np.int32), 1))
    owner = Partition(np.arange(nodes, dtype=np.int32) % parts, parts)

    def peak_bytes(snapshots: int) -> int:
        tracemalloc.start()
        volume = between_parts([ring] * snapshots, owner, [Pull(0, "in", 3, True)])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert volume.total == 2 * 3 * nodes * snapshots
        return peak

    assert peak_bytes(200) < 1.1 * peak_bytes(20)
