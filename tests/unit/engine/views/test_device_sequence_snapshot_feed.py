"""What brings graphs to a rank: copies that equal the graph, counted, encoded once for a range."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from dtdg_lab.engine.views import device_sequence
from dtdg_lab.engine.views.device_sequence import SnapshotFeed
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.device_snapshot import DeviceSnapshot
from tests.backends import needs_gpu
from tests.factories import random_graph, snapshot_of_matrix

NODES, SNAPSHOTS = 12, 7
both_ways = pytest.mark.parametrize("difference", [False, True])
weights = pytest.mark.parametrize("weighted", [False, True])


def _graph(weighted: bool = False) -> DynamicGraph:
    """Each snapshot keeps most edges of the one before."""
    draw = np.random.default_rng(2)
    edges, snapshots = draw.random((NODES, NODES)) < 0.4, []
    for _ in range(SNAPSHOTS):
        edges = edges ^ (draw.random((NODES, NODES)) < 0.05)
        snapshots.append(snapshot_of_matrix(edges * draw.random((NODES, NODES)), weighted=weighted))
    return replace(random_graph(NODES, SNAPSHOTS), snapshots=tuple(snapshots), following=None)


def _whole_bytes(graph: DynamicGraph, snapshots: range) -> int:
    edges = int(graph.num_edges[snapshots.start : snapshots.stop].sum())
    return 4 * (len(snapshots) * (NODES + 1) + edges * (2 if graph.weighted else 1))


@both_ways
@weights
def test_copies_of_the_snapshots_arrive(difference: bool, weighted: bool) -> None:
    graph = _graph(weighted)
    feed = SnapshotFeed(graph, difference=difference, device="cpu")
    for snapshots in (range(2, 6), range(2, 6), range(6, 7), range(0, SNAPSHOTS)):
        brought = feed.bring(snapshots)
        for found, t in zip(brought, snapshots, strict=True):
            assert isinstance(found, Snapshot)
            assert found.equals(graph.snapshots[t])
            assert not np.shares_memory(found.indices, graph.snapshots[t].indices)
            if weighted:
                assert not np.shares_memory(found.weights, graph.snapshots[t].weights)
    again = feed.bring(range(0, SNAPSHOTS))  # nothing of what arrived before is used again
    assert not any(
        np.shares_memory(getattr(one, name), getattr(other, name))
        for one, other in zip(brought, again, strict=True)
        for name in ("indptr", "indices")
    )


@weights
def test_what_arrived_is_counted_once(weighted: bool) -> None:
    graph = _graph(weighted)
    feed = SnapshotFeed(graph, difference=False, device="cpu")
    assert feed.drain() == []
    feed.bring(range(0, 3))
    feed.bring(range(5, 6))
    whole = _whole_bytes(graph, range(0, 3)) + _whole_bytes(graph, range(5, 6))
    assert feed.drain() == [(4, whole, whole)]
    assert feed.drain() == []
    feed.bring(range(3, 3))
    assert feed.drain() == []
    less = SnapshotFeed(graph, difference=True, device="cpu")
    less.bring(range(0, 5))
    ((snapshots, sent, otherwise),) = less.drain()
    assert (snapshots, otherwise) == (5, _whole_bytes(graph, range(0, 5)))
    assert sent < otherwise
    less.bring(range(1, 2))  # the first of a range is whole
    assert less.drain() == [(1, _whole_bytes(graph, range(1, 2)), _whole_bytes(graph, range(1, 2)))]


def test_a_range_is_encoded_once_until_the_blocks_are_cut_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded, encode = [], device_sequence.encode

    def counted(snapshots, *given, **named):
        encoded.append(len(snapshots))
        return encode(snapshots, *given, **named)

    monkeypatch.setattr(device_sequence, "encode", counted)
    feed = SnapshotFeed(_graph(), difference=True, device="cpu")
    for _ in range(2):
        feed.bring(range(0, 4))
        feed.bring(range(4, 7))
    assert encoded == [4, 3]
    feed.bring(range(0, 3))  # part of a range that is kept
    feed.bring(range(4, 7))
    assert encoded == [4, 3, 3]
    feed.bring(range(0, 4))
    assert encoded == [4, 3, 3, 4]


@pytest.fixture(params=["without pinning", pytest.param("cuda", marks=[pytest.mark.gpu, needs_gpu])])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A device that payloads are unpacked on; the processor plays one where its memory need not be pinned."""
    if request.param == "cuda":
        return "cuda"
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(device_sequence, "_takes_tensors", lambda device: True)
    return "cpu"


@both_ways
@weights
def test_tensors_arrive_on_the_device(difference: bool, weighted: bool, device: str) -> None:
    graph = _graph(weighted)
    feed = SnapshotFeed(graph, difference=difference, device=device)
    for _ in range(2):
        for found, of in zip(feed.bring(range(1, 6)), graph.snapshots[1:6], strict=True):
            assert isinstance(found, DeviceSnapshot)
            assert found.indices.device.type == device
            assert found.indptr.tolist() == of.indptr.tolist()
            assert found.indices.tolist() == of.indices.tolist()
            assert (found.weights is None) == (of.weights is None)
            assert of.weights is None or torch.equal(found.weights.cpu(), torch.tensor(of.weights))
    ((snapshots, sent, whole),) = feed.drain()
    assert (snapshots, whole) == (10, 2 * _whole_bytes(graph, range(1, 6)))
    assert (sent < whole) == difference
