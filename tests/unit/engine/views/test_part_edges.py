"""A part's edges over its own and received rows give the whole graph's rows, for every pull; plans fit together."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.core.errors import PlanError, UnsupportedError
from dtdg_lab.core.plans import HaloPlan, Partition
from dtdg_lab.engine.views.part_edges import LocalSource, PartEdges, part_edges
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.operators import Operators, OperatorSettings, SnapshotSource
from dtdg_lab.kernels.spmm import stacked
from tests.backends import backends
from tests.factories import snapshot_of_matrix

NODES, WIDTH, HEADS = 17, 4, 2
KINDS = [
    ("gcn", "in", True),
    ("gcn", "in", False),
    ("gcn", "in_out", True),
    ("gcn", "in_out", False),
    ("mean", "in", True),
    ("diffusion-in", "in", True),
    ("diffusion-out", "in", True),
]
Made = dict[str, list[tuple[PartEdges, HaloPlan]]]

weights = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
sizes = pytest.mark.parametrize("parts", [1, 2, 3, 4])
stacks = pytest.mark.parametrize("snapshots", [1, 2, 3])


def _snapshot(seed: int, weighted: bool, share: float) -> Snapshot:
    """Random edges; 3 and 5 have a loop, 0 hears nobody, nobody hears 1, and 2 has no edges."""
    draw = np.random.default_rng(seed)
    edges = draw.random((NODES, NODES)) < share
    edges[[3, 5], [3, 5]] = share > 0
    edges[0], edges[:, 1], edges[2], edges[:, 2] = False, False, False, False
    values = draw.random((NODES, NODES)).astype(np.float32) + np.float32(0.5)
    return snapshot_of_matrix(edges * values, weighted=weighted)


def _snapshots(count: int, weighted: bool) -> list[Snapshot]:
    return [_snapshot(seed, weighted, share) for seed, share in ((1, 0.2), (2, 0.0), (3, 0.6))][:count]


def _partition(parts: int) -> Partition:
    """Shares of uneven size; the last part owns one node only."""
    owner = np.random.default_rng(parts).integers(0, max(parts - 1, 1), NODES)
    owner[4], owner[6] = parts - 1, 0
    return Partition(owner.astype(np.int32), parts)


def _made(snapshots: list[Snapshot], partition: Partition) -> Made:
    return {way: [part_edges(snapshots, partition, p, way) for p in range(partition.parts)] for way in ("in", "out")}


def _own(x: Tensor, partition: Partition, part: int) -> Tensor:
    """Own rows of all snapshots, (S n, ...), of (S, N, ...)."""
    return x[:, torch.from_numpy(partition.vertices(part))].flatten(0, 1)


def _columns(x: Tensor, partition: Partition, part: int, plans: list[HaloPlan]) -> Tensor:
    """Own rows, then what the other parts send by their plans."""
    rows = [_own(x, partition, part)]
    for sender, plan in enumerate(plans):
        start = int(plan.send_counts[:part].sum())
        sent = torch.from_numpy(plan.send[start : start + plan.send_counts[part]].copy())
        rows.append(_own(x, partition, sender).index_select(0, sent))
    return torch.cat(rows)


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _local(made: Made, part: int, settings: OperatorSettings) -> Operators:
    return Operators(LocalSource(lambda way: made[way][part][0], settings), settings)


@backends
@weights
@sizes
@stacks
@pytest.mark.parametrize(("kind", "norm", "self_loops"), KINDS)
def test_a_part_s_rows_are_the_whole_graph_s(
    backend: str, weighted: bool, parts: int, snapshots: int, kind: str, norm: str, self_loops: bool
) -> None:
    given, partition = _snapshots(snapshots, weighted), _partition(parts)
    settings = OperatorSettings(backend, torch.float64, "cpu", norm, self_loops)
    made, way = _made(given, partition), "out" if kind == "diffusion-out" else "in"
    plans = [plan for _, plan in made[way]]
    whole = Operators(SnapshotSource(stacked(given), range(snapshots * NODES), settings), settings)
    x = _random(snapshots, NODES, WIDTH).requires_grad_()
    wanted = whole.scaled(kind).apply(x.flatten(0, 1)).unflatten(0, (snapshots, -1))
    seed = _random(snapshots, NODES, WIDTH, seed=1)
    total = x.new_zeros(())
    for part in range(parts):
        operator = _local(made, part, settings).scaled(kind)
        for apply in (operator.apply_once, operator.apply):
            found = apply(_columns(x, partition, part, plans))
            torch.testing.assert_close(found, _own(wanted, partition, part), rtol=1e-12, atol=1e-12)
        total = total + (found * _own(seed, partition, part)).sum()
    gradients = [torch.autograd.grad(value, x)[0] for value in (total, (wanted * seed).sum())]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)


@backends
@sizes
@stacks
def test_attention_of_a_part_is_the_whole_graph_s(backend: str, parts: int, snapshots: int) -> None:
    given, partition = _snapshots(snapshots, True), _partition(parts)
    settings, made = OperatorSettings(backend, torch.float64), _made(given, partition)
    plans = [plan for _, plan in made["in"]]
    whole = Operators(SnapshotSource(stacked(given), range(snapshots * NODES), settings), settings).attention()
    x = _random(snapshots, NODES, WIDTH)
    scores_from, scores_to = _random(snapshots, NODES, HEADS, seed=1), _random(snapshots, NODES, HEADS, seed=2)
    leaves = [one.requires_grad_() for one in (x, scores_from, scores_to)]
    wanted = whole.apply(*(one.flatten(0, 1) for one in leaves)).unflatten(0, (snapshots, -1))
    seed, total = _random(snapshots, NODES, WIDTH, seed=3), x.new_zeros(())
    for part in range(parts):
        pulled = [_columns(one, partition, part, plans) for one in (x, scores_from)]
        found = _local(made, part, settings).attention().apply(*pulled, _own(scores_to, partition, part))
        torch.testing.assert_close(found, _own(wanted, partition, part), rtol=1e-12, atol=1e-12)
        total = total + (found * _own(seed, partition, part)).sum()
    mine, good = torch.autograd.grad(total, leaves), torch.autograd.grad((wanted * seed).sum(), leaves)
    for one, other in zip(mine, good, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@weights
@sizes
@stacks
@pytest.mark.parametrize("way", ["in", "out"])
def test_what_parts_send_is_what_the_others_expect(weighted: bool, parts: int, snapshots: int, way: str) -> None:
    """Row by row: each is told by its snapshot and node. Nothing is sent twice, and only what an edge needs."""
    given, partition = _snapshots(snapshots, weighted), _partition(parts)
    made = _made(given, partition)[way]
    plans = [plan for _, plan in made]
    names = torch.arange(snapshots * NODES).view(snapshots, NODES)
    for part, (edges, plan) in enumerate(made):
        assert plan.receive_counts.tolist() == [other.send_counts[part] for other in plans]
        assert edges.columns == snapshots * partition.counts[part] + plan.rows
        columns = _columns(names, partition, part, plans).numpy()
        assert len(np.unique(columns)) == len(columns)
        pulled: NDArray[np.int64] = columns[np.unique(edges.indices)]
        received = columns[len(columns) - plan.rows :]
        assert set(received) <= set(pulled)
        assert (partition.owner[received % NODES] != part).all()
        owners = partition.owner[received % NODES]
        assert sorted(zip(owners, received, strict=True)) == list(zip(owners, received, strict=True))


@weights
def test_rows_keep_the_order_degrees_and_weights_of_the_graph(weighted: bool) -> None:
    """Sums are then taken in the order of the whole graph's."""
    (snapshot,), partition = _snapshots(1, weighted), _partition(3)
    plans = [part_edges([snapshot], partition, part)[1] for part in range(3)]
    for part in range(3):
        edges, _ = part_edges([snapshot], partition, part)
        names = _columns(torch.arange(NODES).unsqueeze(0), partition, part, plans).numpy()
        for row, v in enumerate(partition.vertices(part)):
            mine, whole = slice(*edges.indptr[row : row + 2]), slice(*snapshot.indptr[v : v + 2])
            assert names[edges.indices[mine]].tolist() == snapshot.indices[whole].tolist()
            if snapshot.weights is not None and edges.weights is not None:
                assert edges.weights[mine].tolist() == snapshot.weights[whole].tolist()
        assert (edges.weights is None) is not weighted
        np.testing.assert_array_equal(edges.degrees, snapshot.in_degrees()[names])
        np.testing.assert_array_equal(edges.other_degrees, snapshot.out_degrees()[names])


def test_by_hand() -> None:
    """Edges 2 -> 0, 3 -> 0, 0 -> 1, 1 -> 3, twice over; part 0 owns 0 and 2, part 1 owns 1 and 3."""
    snapshot = Snapshot(np.array([0, 2, 3, 3, 4]), np.array([2, 3, 0, 1], np.int32))
    partition = Partition(np.array([0, 1, 0, 1], np.int32), 2)
    edges, plan = part_edges([snapshot, snapshot], partition, 0, "in")
    assert edges.indptr.tolist() == [0, 2, 2, 4, 4]
    assert edges.indices.tolist() == [1, 4, 3, 5]  # columns: 0 and 2, 0' and 2', then 3 and 3'
    assert edges.degrees.tolist() == [2, 0, 2, 0, 1, 1]
    assert edges.other_degrees.tolist() == [1, 1, 1, 1, 1, 1]
    assert (plan.send.tolist(), plan.send_counts.tolist(), plan.receive_counts.tolist()) == ([0, 2], [0, 2], [0, 2])
    edges, plan = part_edges([snapshot], partition, 1, "out")
    assert (edges.indptr.tolist(), edges.indices.tolist()) == ([0, 1, 2], [1, 2])  # columns: 1 and 3, then 0
    assert (plan.send.tolist(), plan.send_counts.tolist(), plan.receive_counts.tolist()) == ([0], [1, 0], [1, 0])


def test_means_divide_by_the_true_degree_where_edges_are_cut_off() -> None:
    """One of two in-neighbours of row 0 is here."""
    edges = PartEdges(np.array([0, 1, 1]), np.array([1], np.int32), None, 2, np.array([2.0, 0.0]), np.array([0.0, 1.0]))
    settings = OperatorSettings(dtype=torch.float64)
    operator = Operators(LocalSource(lambda way: edges, settings), settings).scaled("mean")
    assert operator.apply(torch.tensor([[3.0], [5.0]], dtype=torch.float64)).tolist() == [[2.5], [0.0]]


def test_edges_are_asked_for_once_by_way_and_again_after_release() -> None:
    asked: list[str] = []
    made = _made(_snapshots(2, True), _partition(2))

    def give(way: str) -> PartEdges:
        asked.append(way)
        return made[way][0][0]

    settings = OperatorSettings(dtype=torch.float64, norm="in_out")
    source = LocalSource(give, settings)
    operators, x = Operators(source, settings), _random(made["in"][0][0].columns, 2)
    before = operators.scaled("gcn").apply(x)
    operators.scaled("mean")
    assert asked == ["in"]
    operators.scaled("diffusion-out")
    assert (asked, source.adjacency("out") is source.adjacency("out")) == (["in", "out"], True)
    operators.release()
    assert torch.equal(operators.scaled("gcn").apply(x), before)
    assert asked == ["in", "out", "in"]


def test_a_snapshot_source_makes_each_way_once_and_again_after_release() -> None:
    (snapshot,) = _snapshots(1, True)
    source = SnapshotSource(snapshot, range(3, 9), OperatorSettings(dtype=torch.float64))
    for way in ("in", "out"):
        before, degrees = source.adjacency(way), source.row_degrees(way)
        assert source.adjacency(way) is before
        assert source.column_degrees(way) is source.column_degrees(way)
        torch.testing.assert_close(source.column_degrees(way)[3:9], degrees)
        source.release()
        assert source.adjacency(way) is not before
        torch.testing.assert_close(source.row_degrees(way), degrees)


# what is refused


@pytest.mark.parametrize("part", [-1, 2])
def test_a_part_that_there_is_not_is_refused(part: int) -> None:
    with pytest.raises(PlanError, match=rf"part {part} in 1 snapshots.*from 0 to 1"):
        part_edges(_snapshots(1, False), _partition(2), part)


def test_no_snapshots_other_vertices_and_other_ways_are_refused() -> None:
    with pytest.raises(PlanError, match="at least one snapshot"):
        part_edges([], _partition(2), 0)
    with pytest.raises(PlanError, match=f"the partition has 2 nodes, but the snapshot has {NODES}"):
        part_edges(_snapshots(1, False), Partition(np.array([0, 1], np.int32), 2), 0)
    with pytest.raises(PlanError, match="'up'"):
        part_edges(_snapshots(1, False), _partition(2), 0, "up")
    settings = OperatorSettings()
    edges = part_edges(_snapshots(1, False), _partition(1), 0)[0]
    (snapshot,) = _snapshots(1, False)
    for source in (LocalSource(lambda way: edges, settings), SnapshotSource(snapshot, range(NODES), settings)):
        for ask in (source.adjacency, source.row_degrees, source.column_degrees):
            with pytest.raises(UnsupportedError, match=r"'up'.*in or out"):
                ask("up")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"columns": 1}, "2 rows with 2 edges do not fit 2 indices, 1 columns"),
        ({"indptr": np.array([0, 1, 1])}, "2 rows with 1 edges do not fit 2 indices"),
        ({"degrees": np.zeros(2)}, "degrees of 2 and 3 columns"),
        ({"other_degrees": np.zeros(4)}, "degrees of 3 and 4 columns"),
        ({"weights": np.ones(3, np.float32)}, "3 weights for 2 edges"),
        ({"indices": np.array([1, 3], np.int32)}, "columns 1 to 3, but columns are 0 to 2"),
        ({"indices": np.array([-1, 2], np.int32)}, "columns -1 to 2, but columns are 0 to 2"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changed: dict[str, object], words: str) -> None:
    right = {
        "indptr": np.array([0, 1, 2]),
        "indices": np.array([1, 2], np.int32),
        "weights": None,
        "columns": 3,
        "degrees": np.zeros(3),
        "other_degrees": np.zeros(3),
    }
    assert PartEdges(**right).rows == 2
    with pytest.raises(PlanError, match=words):
        PartEdges(**(right | changed))
