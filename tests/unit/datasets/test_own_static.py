"""Graphs without times, given by their users."""

from __future__ import annotations

import numpy as np
import pytest

import dtdg_lab as lab
from dtdg_lab.core.errors import DataError


def _edges(nodes: int = 40, edges: int = 200) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    return np.concatenate([np.arange(nodes), draw.integers(0, nodes, edges)]), np.concatenate(
        [np.roll(np.arange(nodes), 1), draw.integers(0, nodes, edges)]
    )


def test_snapshots_are_one_object_with_all_edges() -> None:
    src, dst = _edges()
    features = np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32)
    graph = lab.datasets.from_static(src, dst, features=features, labels=np.arange(40) % 3, snapshots=9)
    assert graph.num_snapshots == 9
    assert len({id(snapshot) for snapshot in graph.snapshots}) == 1
    assert graph.num_edges[0] == len({*zip(src.tolist(), dst.tolist(), strict=True)})
    assert graph.static_features
    assert np.array_equal(graph.features[5], features)
    assert set(np.unique(graph.vertex_split)) == {0, 1, 2}
    assert "classification" in graph.tasks


def test_it_is_what_edges_at_every_time_give() -> None:
    src, dst = _edges()
    weight = np.random.default_rng(2).random(len(src))
    graph = lab.datasets.from_static(src, dst, weight)
    times = np.repeat(np.arange(9), len(src))
    timed = lab.datasets.from_edges(np.tile(src, 9), np.tile(dst, 9), times, np.tile(weight, 9), interval=1.0)
    assert graph.num_snapshots == timed.num_snapshots
    assert all(ours.equals(theirs) for ours, theirs in zip(graph.snapshots, timed.snapshots, strict=True))
    assert np.array_equal(graph.targets, timed.targets)
    assert np.array_equal(graph.features, timed.features)


def test_too_few_snapshots_are_refused() -> None:
    with pytest.raises(DataError, match="snapshots=3: at least 8"):
        lab.datasets.from_static(*_edges(), snapshots=3)
