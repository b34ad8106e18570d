"""Intervals that the data does not fill are dropped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.graphs.intervals import cut_edges


@pytest.mark.parametrize(
    ("name", "windows", "edges"), [("bitcoin-otc", 137, 35_588), ("bitcoin-alpha", 136, 24_173)]
)  # the time steps and edges of EvolveGCN, table 1: 95 + 14 + 28 and 95 + 13 + 28
def test_full_intervals_are_those_that_evolvegcn_counts(name: str, windows: int, edges: int, real_data: Path) -> None:
    kept, full = (load_dataset(name, root=real_data, drop_partial=drop) for drop in (False, True))
    assert (full.counts.windows, full.counts.interval_edges) == (windows, edges)
    assert kept.counts.windows == windows + 1
    assert full.num_nodes == kept.num_nodes and full.num_snapshots == kept.num_snapshots - 1


@pytest.mark.parametrize(
    ("times", "window", "by", "kept"),
    [
        (range(10), 5, "time", 2),  # 0 .. 4 and 5 .. 9: full to the unit
        (range(11), 5, "time", 2),  # 10 alone begins a third
        ([0, 7, 14, 21], 7, "time", 4),  # days as weeks tell them: each stands for the whole one
        ([0, 7, 14, 20], 7, "time", 3),
        ([0, 7, 14, 19], 7, "time", 2),
        ([0.0, 0.5, 1.0, 1.5], 1.0, "time", 2),
        ([0.0, 0.5, 1.0, 1.4], 1.0, "time", 1),
        (range(9), 3, "edges", 3),
        (range(10), 3, "edges", 3),
    ],
)
def test_an_interval_that_is_not_full_is_left_out(times: list[float], window: float, by: str, kept: int) -> None:
    src = np.arange(len(times))
    made = cut_edges(src, src + 1, list(times), window=window, cut_by=by, drop_partial=True)
    assert made.num_intervals == kept
    assert made.num_nodes == len(times) + 1
    assert made.interval.max() == kept - 1
    everything = cut_edges(src, src + 1, list(times), window=window, cut_by=by)
    assert len(everything.src) == len(times) >= len(made.src)


def test_dropping_the_only_interval_is_refused_and_equal_cuts_have_none_to_drop() -> None:
    with pytest.raises(DataError, match="the only interval is not full"):
        cut_edges([0, 1], [1, 2], [5, 5], window=3, drop_partial=True)
    assert cut_edges([0, 1, 2], [1, 2, 0], [0, 3, 4], cut=3, drop_partial=True).num_intervals == 3
