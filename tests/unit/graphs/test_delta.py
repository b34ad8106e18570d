"""Differences of snapshots: a sequence by hand, sizes against their formula and bound, and the same on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

import dtdg_lab as lab
from dtdg_lab.core.errors import DataError
from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.graphs.delta import (
    COO64,
    CSR32,
    FORMATS,
    Payload,
    TransferFormat,
    benefiting_share,
    decode,
    encode,
    own_ranges,
    sequence_changes,
)
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot, keys_of, snapshot_of_keys
from dtdg_lab.kernels.device_snapshot import DeviceSnapshot, unpack
from dtdg_lab.kernels.operators import AttentionOperator, Operators, OperatorSettings, SnapshotSource
from dtdg_lab.kernels.spmm import Adjacency, stacked
from tests.backends import devices

forms = pytest.mark.parametrize("form", list(FORMATS.values()), ids=list(FORMATS))
REACHED = 0.95  # of what the overlap allows


def of_edges(edges: Sequence[tuple[int, int]], nodes: int = 4, weights: Sequence[float] | None = None) -> Snapshot:
    """A snapshot of edges (source, target)."""
    sources, targets = np.array(edges, np.int64).reshape(-1, 2).T
    return snapshot_of_keys(keys_of(sources, targets), None if weights is None else np.array(weights, float), nodes)


def on_torch(payload: Payload, device: str = "cpu") -> list[DeviceSnapshot]:
    """What a device decodes."""
    values = None if payload.values is None else torch.tensor(payload.values, device=device)
    return unpack(payload.contents, torch.tensor(payload.numbers, device=device), values)


def drawn(weighted: bool = False, *, nodes: int = 30, snapshots: int = 6, edges: int = 120) -> list[Snapshot]:
    """Snapshots of which each keeps about three quarters of the one before; the fourth is empty."""
    draw, found, keys = np.random.default_rng(5), [], np.empty(0, np.int64)
    for number in range(snapshots):
        fresh = keys_of(draw.integers(0, nodes, edges // 4), draw.integers(0, nodes, edges // 4))
        keys = np.concatenate([keys[draw.random(len(keys)) < 0.75], fresh])
        kept = keys[:0] if number == 3 else keys
        found.append(snapshot_of_keys(kept, draw.random(len(kept)) if weighted else None, nodes))
    return found


@pytest.fixture(scope="module")
def powerlaw() -> DynamicGraph:
    return lab.datasets.load(
        "powerlaw", generated_nodes=500, generated_edges=5_000, generated_snapshots=12, edge_life=5
    )


def test_a_sequence_by_hand() -> None:
    first = of_edges([(1, 0), (2, 0), (0, 2), (3, 2)])
    second = of_edges([(1, 0), (3, 2), (0, 1), (2, 3)])
    ours = encode([first, second])
    # offsets and sources; then the places of 2 -> 0 and 0 -> 2, and the targets and sources of what comes
    assert ours.numbers.tolist() == [0, 2, 2, 4, 4, 1, 2, 0, 3, 1, 2, 1, 3, 0, 2]
    assert (ours.numbers.dtype, ours.values, ours.nbytes) == (np.int32, None, 15 * 4)
    paper = encode([first, second], COO64)  # three of four edges would have to stay for pairs to pay
    assert [part.is_whole for part in paper.contents.parts] == [True, True]
    third = of_edges([(1, 0), (3, 2), (0, 1)])
    paper = encode([second, third], COO64)
    assert paper.numbers.tolist() == [0, 1, 2, 3, 1, 0, 3, 2, 3, 2]  # targets, sources; target and source of what goes
    assert (paper.numbers.dtype, paper.nbytes) == (np.int64, 10 * 8 + 7 * 4)
    assert paper.values.tolist() == [1.0] * 7


@forms
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("difference", [False, True])
def test_bytes_are_those_of_the_formula(form: TransferFormat, weighted: bool, difference: bool) -> None:
    snapshots = drawn(weighted)
    changes = sequence_changes(snapshots)
    less, whole = changes.brought(form, [range(len(snapshots))])
    assert encode(snapshots, form, difference=difference).nbytes == (less if difference else whole)
    per_edge, per_row, value = (16, 0, 4) if form.pairs else (4, 4, 4 * weighted)
    edges = sum(of.num_edges for of in snapshots)
    assert whole == (per_edge + value) * edges + per_row * len(snapshots) * (snapshots[0].num_nodes + 1)


def test_ranges_begin_whole() -> None:
    snapshots = drawn()
    changes = sequence_changes(snapshots)
    ranges = [range(0, 2), range(2, 2), range(2, 6)]
    parts = [encode(snapshots[part.start : part.stop]) for part in ranges if len(part)]
    assert changes.brought(CSR32, ranges)[0] == sum(part.nbytes for part in parts)
    assert changes.leaving[0] == changes.arriving[0] == 0
    assert changes.leaving[3] == snapshots[2].num_edges  # the fourth is empty
    kept = sum(len({*pairs(a)} & {*pairs(b)}) for a, b in pairwise(snapshots))
    assert changes.overlap == pytest.approx(kept / sum(of.num_edges for of in snapshots[1:]))


def pairs(snapshot: Snapshot) -> list[tuple[int, int]]:
    return list(zip(snapshot.rows().tolist(), snapshot.indices.tolist(), strict=True))


@forms
@pytest.mark.parametrize("weighted", [False, True])
def test_almost_all_that_the_overlap_allows_is_reached(
    powerlaw: DynamicGraph, form: TransferFormat, weighted: bool
) -> None:
    snapshots = list(powerlaw.snapshots)
    if weighted:
        values = np.random.default_rng(1).random
        snapshots = [Snapshot(of.indptr, of.indices, values(of.num_edges, np.float32)) for of in snapshots]
    whole = encode(snapshots, form, difference=False).nbytes
    sent = encode(snapshots, form).nbytes
    least = [encode(snapshots[:1], form).nbytes]
    for before, after in pairwise(snapshots):
        stay = {*pairs(before)} & {*pairs(after)}
        leaving, arriving = before.num_edges - len(stay), after.num_edges - len(stay)
        values_bytes = 4 * after.num_edges if form.pairs or weighted else 0
        least.append(values_bytes + (16 * (leaving + arriving) if form.pairs else 4 * leaving + 8 * arriving))
    bound = whole / sum(least)
    assert bound > (1.5 if form.pairs else 1.2)
    assert whole / sent >= REACHED * bound


def test_nothing_but_values_is_sent_of_what_stays() -> None:
    once = drawn()[2]
    assert encode([once, once]).nbytes == encode([once]).nbytes
    weighted = drawn(weighted=True)[2]
    assert encode([weighted, weighted]).nbytes == encode([weighted]).nbytes + 4 * weighted.num_edges


def test_what_does_not_belong_together_is_refused() -> None:
    with pytest.raises(DataError, match="differ in nodes"):
        encode([of_edges([(0, 1)]), of_edges([(0, 1)], nodes=5)])
    with pytest.raises(DataError, match="weighted"):
        encode([of_edges([(0, 1)]), of_edges([(0, 1)], weights=[2.0])])
    assert decode(encode([])) == []


@pytest.mark.parametrize(("blocks", "ranks"), [(1, 1), (1, 4), (3, 1), (3, 2), (6, 4)])
def test_the_share_that_benefits_is_the_papers(blocks: int, ranks: int) -> None:
    plan = SnapshotBlocks(range(24), blocks, ranks, nodes=10)
    size = 24 // blocks
    assert benefiting_share(plan) == pytest.approx((size - ranks) / size)
    assert sorted(t for own in own_ranges(plan) for t in own) == list(range(24))
    assert benefiting_share(replace(plan, ranks=8, blocks=6)) == 0  # four snapshots on eight ranks
    assert benefiting_share(replace(plan, ranks=4, row_ranks=4)) == (size - 1) / size  # each has rows of all of them


Both = tuple[Snapshot, DeviceSnapshot]


def both_of(weighted: bool, device: str = "cpu", number: int = 2) -> Both:
    snapshots = drawn(weighted)
    return snapshots[number], on_torch(encode(snapshots), device)[number]


def gradients(apply: Callable[..., Tensor], *given: Tensor, device: str = "cpu") -> list[Tensor]:
    given = tuple(each.to(device, copy=True).requires_grad_() for each in given)
    y = apply(*given)
    return [each.cpu() for each in (y.detach(), *torch.autograd.grad((y * y).sum(), given))]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("rows", [None, range(7, 20), range(5, 5)], ids=str)
def test_a_matrix_of_tensors_is_the_one_of_arrays(weighted: bool, rows: range | None) -> None:
    made = [Adjacency(of.indptr, of.indices, of.weights, rows=rows, dtype=torch.float64) for of in both_of(weighted)]
    host, device = made
    for one, other in ((host, device), (host.transposed_adjacency(), device.transposed_adjacency())):
        assert (one.shape, one.num_edges, one.indices.dtype) == (other.shape, other.num_edges, other.indices.dtype)
        assert torch.equal(one.indptr, other.indptr) and torch.equal(one.indices, other.indices)
        assert (one.weights is None) == (other.weights is None)
        assert one.weights is None or other.weights is None or torch.equal(one.weights, other.weights)
        assert torch.equal(one.row_sums(), other.row_sums())
        assert torch.equal(one.column_sums(), other.column_sums())
    assert torch.equal(host.transposed_order(), device.transposed_order())
    part = range(1, max(1, host.shape[0] - 2))
    assert torch.equal(host.part(part).indices, device.part(part).indices) if host.shape[0] else True
    x = torch.randn(host.shape[1], 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for a, b in zip(gradients(host.multiply, x), gradients(device.multiply, x), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=0)


def test_a_matrix_uses_the_tensors_it_is_given() -> None:
    _, snapshot = both_of(weighted=True)
    matrix = Adjacency(snapshot.indptr, snapshot.indices, snapshot.weights)
    assert matrix.indices.data_ptr() == snapshot.indices.data_ptr()
    assert matrix.weights.data_ptr() == snapshot.weights.data_ptr()


@devices
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("rows", [range(30), range(4, 17)], ids=str)
def test_operators_of_tensors_are_those_of_arrays(weighted: bool, loops: bool, rows: range, device: str) -> None:
    settings = [OperatorSettings("torch", torch.float64, where, self_loops=loops) for where in ("cpu", device)]
    host, there = (
        Operators(SnapshotSource(of, rows, how), how)
        for of, how in zip(both_of(weighted, device), settings, strict=True)
    )
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(30, 4, dtype=torch.float64, generator=draw)
    for kind in ("gcn", "mean", "diffusion-out"):
        one, other = host.scaled(kind), there.scaled(kind)
        for a, b in zip(gradients(one.apply, x), gradients(other.apply, x, device=device), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
    scores = [torch.randn(count, 2, dtype=torch.float64, generator=draw) for count in (30, len(rows))]
    ways: list[AttentionOperator] = [host.attention(), there.attention()]
    found = [gradients(way.apply, x, *scores, device=of) for way, of in zip(ways, ("cpu", device), strict=True)]
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("weighted", [False, True])
def test_stacks_of_tensors_are_those_of_arrays(weighted: bool) -> None:
    snapshots = drawn(weighted)
    host, device = stacked(snapshots), stacked(on_torch(encode(snapshots)))
    assert isinstance(device, DeviceSnapshot)
    assert device.indptr.tolist() == host.indptr.tolist()
    assert device.indices.tolist() == host.indices.tolist()
    assert (device.weights is None) == (host.weights is None)
    assert host.weights is None or device.weights.tolist() == host.weights.tolist()
    assert (device.num_nodes, device.num_edges) == (host.num_nodes, host.num_edges)
