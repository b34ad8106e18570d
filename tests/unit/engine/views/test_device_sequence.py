"""Spaces: what is kept and what is let go, stacks, shares of nodes whose rows other ranks hold, and the feed."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.engine.views import device_sequence
from dtdg_lab.engine.views.device_sequence import DeviceSequence, SnapshotFeed
from dtdg_lab.engine.views.snapshot_view import SnapshotView
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.device_memory import USUAL_LIMITS, MemoryLimits
from dtdg_lab.kernels.device_snapshot import DeviceSnapshot
from dtdg_lab.kernels.operators import Operators
from dtdg_lab.kernels.spmm import Adjacency
from dtdg_lab.models.base import DynamicModel
from tests.backends import needs_gpu
from tests.factories import random_graph, snapshot_of_matrix
from tests.gradients import double_model
from tests.pretend_copies import pretend_copies

NODES, SNAPSHOTS, FEATURES = 17, 5, 3


@cache
def _graph(static: bool = False) -> DynamicGraph:
    return random_graph(NODES, SNAPSHOTS, share=0.2, static=static, seed=11)


def _sequence(graph: DynamicGraph | None = None, **given: Any) -> DeviceSequence:
    graph = _graph() if graph is None else graph
    return DeviceSequence(graph, device="cpu", dtype=torch.float64, kernel="torch", **given)


def _pull(space: SnapshotView, x: Tensor, kind: str = "gcn") -> Tensor:
    return space.pull(x, kind)


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The products computed, as widths."""
    widths: list[int] = []
    multiply = Adjacency.product

    def counted(self: Adjacency, x: Tensor, weights: Tensor | None = None) -> Tensor:
        widths.append(x.shape[1])
        return multiply(self, x, weights)

    monkeypatch.setattr(Adjacency, "product", counted)
    return widths


# what is kept


def test_pulls_of_the_inputs_are_computed_once(products: list[int]) -> None:
    space = _sequence().view(0)
    first = _pull(space, space.inputs)
    second = _pull(space, first)
    for _ in range(3):
        assert _pull(space, space.inputs) is first
        assert _pull(space, first) is second
    assert len(products) == 2
    assert _pull(space, space.inputs, "diffusion-out") is not first
    assert len(products) == 3
    assert not first.requires_grad


def test_a_copy_of_the_inputs_is_pulled_anew_and_has_a_gradient(products: list[int]) -> None:
    space = _sequence().view(0)
    kept = _pull(space, space.inputs)
    x = space.inputs.clone().requires_grad_()
    torch.testing.assert_close(_pull(space, x), kept)
    assert _pull(space, x).requires_grad
    assert len(products) == 3


def test_the_adjacency_is_let_go_where_only_first_layer_pulls_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[Operators] = []
    monkeypatch.setattr(Operators, "release", lambda self: released.append(self))
    space = _sequence().view(0)
    _pull(space, space.inputs)
    assert len(released) == 1
    _pull(space, space.inputs.clone())
    _pull(space, space.inputs, "mean")
    assert len(released) == 1  # a second layer will ask again


def test_pulls_beyond_the_budget_are_computed_again(products: list[int]) -> None:
    one = NODES * FEATURES * 8
    sequence = _sequence(limits=replace(USUAL_LIMITS, pulls_bytes=2 * one))
    for _ in range(2):
        for t in range(SNAPSHOTS):
            space = sequence.view(t)
            _pull(space, space.inputs)
    assert len(products) == SNAPSHOTS + (SNAPSHOTS - 2)


def test_spaces_beyond_the_budget_are_made_again_but_their_pulls_are_kept(products: list[int]) -> None:
    sequence = _sequence(limits=USUAL_LIMITS.without_views())
    first = sequence.view(0)
    assert sequence.view(0) is first  # as long as somebody has it
    pulled, let_go = _pull(first, first.inputs), weakref.ref(first)
    del first
    assert let_go() is None
    again = sequence.view(0)
    assert _pull(again, again.inputs) is pulled
    assert len(products) == 1
    roomy = _sequence()
    assert roomy.view(0) is roomy.view(0)


@pytest.mark.parametrize("model", catalogue.names("models"))
def test_budgets_change_nothing(model: str) -> None:
    made = double_model(model, 2, seed=3)
    torch.testing.assert_close(_forward(made, _sequence(limits=MemoryLimits(0, 0, 0))), _forward(made, _sequence()))


def test_static_features_are_moved_once() -> None:
    graph = _graph(static=True)
    sequence = _sequence(graph)
    assert sequence.view(0).inputs is sequence.view(3).inputs
    torch.testing.assert_close(sequence.view(3).inputs, torch.from_numpy(np.array(graph.features[3])).double())
    one, other = (_pull(sequence.view(t), sequence.view(t).inputs) for t in (0, 3))
    assert not torch.allclose(one, other)  # their neighbours differ


# stacks


@pytest.mark.parametrize(("rows", "sizes"), [(1, [1, 1, 1, 1]), (2 * NODES, [2, 2]), (3 * NODES, [2, 2]), (10**6, [4])])
@pytest.mark.parametrize("static", [False, True])
def test_stacks_are_even_and_hold_what_snapshots_hold(
    monkeypatch: pytest.MonkeyPatch, rows: int, sizes: list[int], static: bool
) -> None:
    monkeypatch.setitem(device_sequence.STACKED_ROWS, "cpu", rows)
    sequence = _sequence(_graph(static))
    stacks = sequence.stacks(range(1, 5))
    assert [len(space.snapshots) for space in stacks] == sizes
    for space in stacks:
        alone = [sequence.view(t) for t in space.snapshots]
        assert space.num_rows == len(alone) * NODES
        torch.testing.assert_close(space.inputs, torch.cat([one.inputs for one in alone]))
        together = _pull(space, space.inputs)
        torch.testing.assert_close(together, torch.cat([_pull(one, one.inputs) for one in alone]))


def test_stacked_snapshots_have_no_common_top(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(device_sequence.STACKED_ROWS, "cpu", 10**6)
    (space,) = _sequence().stacks(range(2))
    with pytest.raises(UnsupportedError, match="each snapshot"):
        space.top(space.inputs, space.inputs[:, 0], 3)


# what is refused


def test_unknown_kinds_and_attention_without_scores_are_refused() -> None:
    space = _sequence().view(0)
    with pytest.raises(UnsupportedError, match=r"'sum'.*attention"):
        _pull(space, space.inputs, "sum")
    with pytest.raises(UnsupportedError, match="scores"):
        _pull(space, space.inputs, "attention")


# top


def test_top_is_the_largest_first_and_ties_go_to_the_lower_vertex() -> None:
    space = _sequence().view(0)
    scores = torch.zeros(NODES, dtype=torch.float64)
    scores[[3, 5, 9]] = torch.tensor([2.0, 7.0, 2.0], dtype=torch.float64)
    x = torch.arange(NODES, dtype=torch.float64).unsqueeze(1).requires_grad_()
    rows, best = space.top(x, scores, 5)
    assert rows.squeeze(1).tolist() == [5, 3, 9, 0, 1]
    assert best.tolist() == [7, 2, 2, 0, 0]
    rows.sum().backward()
    assert x.grad.squeeze(1).nonzero().squeeze(1).tolist() == [0, 1, 3, 5, 9]
    rows, best = space.top(x, scores, 2 * NODES)
    assert len(rows) == len(best) == NODES


# shares of the nodes: ranks as threads, which meet at every gather


class _Ranks:
    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size, timeout=20)
        self._given: list[Tensor | None] = [None] * size
        self.size = size

    def gather(self, rank: int) -> Callable[..., Tensor]:
        def join(rows: Tensor, row_count: int | None = None) -> Tensor:
            assert row_count is None or len(rows) == row_count
            self._given[rank] = rows
            self._barrier.wait()
            joined = torch.cat([part for part in self._given if part is not None])
            self._barrier.wait()
            return joined

        return join

    def run(self, work: Callable[[DeviceSequence], Tensor], bounds: list[int]) -> Tensor:
        """The rows that ``work`` gives on every rank, joined."""
        found: list[Any] = [None] * self.size

        def one(rank: int) -> None:
            try:
                rows = range(bounds[rank], bounds[rank + 1])
                found[rank] = work(_sequence(rows=rows, gather=self.gather(rank)))
            except Exception as error:  # told by the test below
                self._barrier.abort()
                found[rank] = error

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        errors = [part for part in found if isinstance(part, Exception)]
        if errors:
            raise errors[0]
        return torch.cat(found, dim=1)


@torch.no_grad()
def _forward(model: DynamicModel, sequence: DeviceSequence) -> Tensor:
    """Readouts of all snapshots, twice over: what is kept from the first time serves the second. (2T, n, 1)."""
    read = []
    for _ in range(2):
        state = model.initial_state(len(sequence.rows))
        for t in range(SNAPSHOTS):
            space = sequence.view(t)
            h, state = model.snapshot(space, space.inputs, state)
            read.append(model.readout(h))
    return torch.stack(read)


@pytest.mark.parametrize("bounds", [[0, 8, 17], [0, 1, 9, 17]], ids=str)
@pytest.mark.parametrize("model", catalogue.names("models"))
def test_shares_of_the_vertices_give_what_one_rank_gives(model: str, bounds: list[int]) -> None:
    """Every kind of pull and top, with shares of one node, fewer than top's k, and uneven ones."""
    made = double_model(model, 2, seed=3)
    torch.testing.assert_close(
        _Ranks(len(bounds) - 1).run(lambda sequence: _forward(made, sequence), bounds),
        _forward(made, _sequence()),
        rtol=1e-11,
        atol=1e-12,
    )


def test_shares_do_not_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(device_sequence.STACKED_ROWS, "cpu", 10**6)
    sequence = _sequence(rows=range(3, 9), gather=_Ranks(1).gather(0))
    assert [space.num_rows for space in sequence.stacks(range(3))] == [6, 6, 6]


# what brings graphs to a rank


FED = 7
both_ways = pytest.mark.parametrize("difference", [False, True])
weights = pytest.mark.parametrize("weighted", [False, True])


def _fed_graph(weighted: bool = False) -> DynamicGraph:
    """Each snapshot keeps most edges of the one before."""
    draw = np.random.default_rng(2)
    edges, snapshots = draw.random((NODES, NODES)) < 0.4, []
    for _ in range(FED):
        edges = edges ^ (draw.random((NODES, NODES)) < 0.05)
        snapshots.append(snapshot_of_matrix(edges * draw.random((NODES, NODES)), weighted=weighted))
    return replace(random_graph(NODES, FED), snapshots=tuple(snapshots), following=None)


def _whole_bytes(graph: DynamicGraph, snapshots: range) -> int:
    edges = int(graph.num_edges[snapshots.start : snapshots.stop].sum())
    return 4 * (len(snapshots) * (NODES + 1) + edges * (2 if graph.weighted else 1))


@both_ways
@weights
def test_copies_of_the_snapshots_arrive(difference: bool, weighted: bool) -> None:
    graph = _fed_graph(weighted)
    feed = SnapshotFeed(graph, difference=difference, device="cpu")
    for snapshots in (range(2, 6), range(2, 6), range(6, 7), range(0, FED)):
        brought = feed.bring(snapshots)
        for found, t in zip(brought, snapshots, strict=True):
            assert isinstance(found, Snapshot)
            assert found.equals(graph.snapshots[t])
            assert not np.shares_memory(found.indices, graph.snapshots[t].indices)
            if weighted:
                assert not np.shares_memory(found.weights, graph.snapshots[t].weights)
    again = feed.bring(range(0, FED))  # nothing of what arrived before is used again
    assert not any(
        np.shares_memory(getattr(one, name), getattr(other, name))
        for one, other in zip(brought, again, strict=True)
        for name in ("indptr", "indices")
    )


@weights
def test_what_arrived_is_counted_once(weighted: bool) -> None:
    graph = _fed_graph(weighted)
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
    feed = SnapshotFeed(_fed_graph(), difference=True, device="cpu")
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
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A device that payloads are unpacked on; the processor plays one where its memory need not be pinned."""
    if request.param == "cuda":
        yield "cuda"
        return
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(device_sequence, "_takes_tensors", lambda device: True)
    with pretend_copies() as copies:
        yield "cpu"
    assert copies.received
    assert not copies.unpinned


@both_ways
@weights
def test_tensors_arrive_on_the_device(difference: bool, weighted: bool, device: str) -> None:
    graph = _fed_graph(weighted)
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
