"""Rows that cross ranks: the same products and gradients as on one rank, bytes as planned, waiting as it was."""

from __future__ import annotations

import threading
import time
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.core.errors import ConfigError, RunFailedError, UnsupportedError
from dtdg_lab.core.plans import HaloPlan
from dtdg_lab.distributed.all_to_all import ReadTimes
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.engine.exchange.exchanger import Exchanger, Route
from dtdg_lab.testing.processes import join_group, run_ranks

VERTICES, WIDTH = 13, 5
LATE_S = 0.8
ARRAYS = (
    np.arange(12, dtype=np.int32).reshape(3, 4).T,
    np.array(7, dtype=np.int64),
    np.zeros((0, 3)),
    np.array([np.nan, -0.0, 1e-300]),
    np.arange(24.0).reshape(2, 3, 4),
)
TEXTS = ("", "a plan", "Großer Node ✓")


class Noted:
    """Marks, as they came."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.waits_s: list[float] = []
        self.arrivals_s: list[float] = []

    def __call__(self, phase: str) -> None:
        self.phases.append(phase)
        self.arrivals_s.append(time.monotonic())

    def block(self, number: int, way: str) -> None:
        self.phases.append(way)

    def exchange(self, times: ReadTimes) -> None:
        self.phases.append("exchange")
        self.waits_s.append(times().wait_s)


def graphs() -> dict[str, NDArray[np.float64]]:
    """Adjacency of two stacked snapshots each, (2, N, N): row v holds the weights of those it pulls from."""
    rng = np.random.default_rng(3)
    random = rng.random((2, VERTICES, VERTICES)) * (rng.random((2, VERTICES, VERTICES)) < 0.25)
    star, empty_first = np.zeros_like(random), random.copy()
    star[:, :, 0] = 1.0  # all pull from node 0: its rank only sends, the others only receive
    empty_first[0] = 0.0
    return {"random": random, "star": star, "empty first": empty_first, "no edges": np.zeros_like(random)}


def halo_plan(adjacency: NDArray[np.float64], owner: NDArray[np.int64], ranks: int, rank: int) -> HaloPlan:
    """By the definition: q's rows for p are those that p pulls from, by snapshot, then by node."""
    own = np.flatnonzero(owner == rank)
    wanted = [
        [
            [
                (s, u)
                for s in range(len(adjacency))
                for u in np.flatnonzero(owner == q)
                if adjacency[s][owner == p, u].any()
            ]
            for p in range(ranks)
        ]
        for q in range(ranks)
    ]
    send = [s * len(own) + int(np.searchsorted(own, u)) for p in range(ranks) if p != rank for s, u in wanted[rank][p]]
    return HaloPlan(
        rank,
        np.array(send, dtype=np.int64),
        np.array([len(wanted[rank][p]) if p != rank else 0 for p in range(ranks)]),
        np.array([len(wanted[q][rank]) if q != rank else 0 for q in range(ranks)]),
    )


def local_matrix(adjacency: NDArray[np.float64], owner: NDArray[np.int64], ranks: int, rank: int) -> Tensor:
    """Own rows of both snapshots over own columns, then columns that arrive."""
    own = np.flatnonzero(owner == rank)
    columns = [(s, int(u)) for s in range(len(adjacency)) for u in own]
    columns += [
        (s, int(u))
        for q in range(ranks)
        if q != rank
        for s in range(len(adjacency))
        for u in np.flatnonzero(owner == q)
        if adjacency[s][own, u].any()
    ]
    matrix = np.zeros((len(adjacency) * len(own), len(columns)))
    for s in range(len(adjacency)):
        for column, (snapshot, u) in enumerate(columns):
            if snapshot == s:
                matrix[s * len(own) : (s + 1) * len(own), column] = adjacency[s][own, u]
    return torch.from_numpy(matrix)


def whole(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Features (2 N, F), a parameter (F, F) and weights of the outputs in the loss (2 N, F)."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(2 * VERTICES, WIDTH, generator=draw, dtype=torch.float64)
    parameter = torch.randn(WIDTH, WIDTH, generator=draw, dtype=torch.float64) / 2
    return x, parameter, torch.randn(2 * VERTICES, WIDTH, generator=draw, dtype=torch.float64)


def owners(ranks: int) -> NDArray[np.int64]:
    return np.random.default_rng(5).permutation(np.arange(VERTICES) % ranks)


def reference(adjacency: NDArray[np.float64]) -> tuple[Tensor, Tensor, Tensor]:
    """Output of two layers, gradient of the features and of the parameter, by dense products over all nodes."""
    x, parameter, weights = whole()
    x.requires_grad_(), parameter.requires_grad_()
    matrix = torch.block_diag(*torch.from_numpy(adjacency))
    y = torch.tanh(matrix @ torch.tanh(matrix @ x @ parameter) @ parameter)
    (y * weights).sum().backward()
    assert x.grad is not None
    assert parameter.grad is not None
    return y.detach(), x.grad, parameter.grad


def rows_of(owner: NDArray[np.int64], rank: int) -> NDArray[np.int64]:
    own = np.flatnonzero(owner == rank)
    return np.concatenate([own, own + VERTICES])


def two_layers(group: Group, adjacency: NDArray[np.float64], *, own_thread: bool, routed: bool) -> dict[str, Any]:
    """The model of :func:`reference` on a rank's own rows."""
    owner, exchanger = owners(group.size), Exchanger(group)
    exchanger.marks = noted = Noted()
    plan = halo_plan(adjacency, owner, group.size, group.rank)
    path = Route.of(plan) if routed else plan
    matrix, mine = local_matrix(adjacency, owner, group.size, group.rank), rows_of(owner, group.rank)
    x, parameter, weights = whole()
    x = x[mine].requires_grad_()
    parameter.requires_grad_()
    before = group.bytes_sent, group.bytes_received
    first = torch.tanh(matrix @ torch.cat([x, exchanger.pull(x, path, 0)]) @ parameter)
    y = torch.tanh(matrix @ torch.cat([first, exchanger.pull(first, path, 1)]) @ parameter)
    loss = (y * weights[mine]).sum()
    if own_thread:  # as on a GPU, where autograd has a thread for the device
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
    else:
        loss.backward()
    assert x.grad is not None
    assert parameter.grad is not None
    return {
        "rows": mine,
        "y": y.detach(),
        "x": x.grad,
        "parameter": parameter.grad,
        "links": exchanger.drain(),
        "drained": exchanger.drain(),
        "phases": noted.phases,
        "send_counts": plan.send_counts,
        "receive_counts": plan.receive_counts,
        "sent": group.bytes_sent - before[0],
        "received": group.bytes_received - before[1],
    }


def one_way(group: Group) -> dict[str, Any]:
    """Rank 0 sends to the last one alone: they have one direction each, ranks between neither; features of 3 sizes."""
    rank, last = group.rank, group.size - 1
    counts = np.zeros((2, group.size), dtype=np.int64)
    if rank == 0:
        counts[0, last] = 2
    if rank == last:
        counts[1, 0] = 2
    plan = HaloPlan(rank, np.array([3, 1] if rank == 0 else [], dtype=np.int64), counts[0], counts[1])
    found: dict[str, Any] = {}
    for dtype in (torch.float32, torch.float64):
        for tail in ((), (1,), (3,), (2, 3)):
            exchanger = Exchanger(group)
            base = torch.arange(4 * int(np.prod(tail)), dtype=dtype).reshape(*tail, 4)
            x = base.movedim(-1, 0)  # not contiguous
            x.requires_grad_()
            rows = exchanger.pull(x, plan, 0)
            # an expanded gradient, and one that reaches ranks without a row
            (rows.sum() * 10 + x.sum()).backward()
            assert x.grad is not None
            found[f"{dtype} {tail}"] = (rows.detach(), x.detach(), x.grad, exchanger.drain())
    return found


def without_gradient(group: Group) -> tuple[list[Any], bool]:
    """Features need no gradient: nothing goes back."""
    adjacency, owner, exchanger = graphs()["random"], owners(group.size), Exchanger(group)
    plan = halo_plan(adjacency, owner, group.size, group.rank)
    x, parameter, _ = whole()
    parameter.requires_grad_()
    rows = exchanger.pull(x[rows_of(owner, group.rank)], plan, 0)
    (torch.cat([rows, parameter]) @ parameter).sum().backward()
    return [link[1] for link in exchanger.drain()], rows.requires_grad


def run_again(group: Group) -> tuple[list[Any], list[Any]]:
    """Pulls of a block of time that is computed again, then of one that is not."""
    adjacency, owner, exchanger = graphs()["random"], owners(group.size), Exchanger(group)
    plan = halo_plan(adjacency, owner, group.size, group.rank)
    x = whole()[0][rows_of(owner, group.rank)].requires_grad_()
    exchanger.forward_pass = "rerun"
    exchanger.pull(x, plan, 0).sum().backward()
    first = exchanger.drain()
    exchanger.forward_pass = "forward"
    exchanger.pull(x, plan, 0).sum().backward()
    return first, exchanger.drain()


def gathered(group: Group) -> dict[str, Any]:
    """Every rank weighs all rows in its own way; uneven shares, the last rank without a row."""
    counts = [3 + 2 * rank for rank in range(group.size - 1)] + [0 if group.size > 1 else 4]
    start = sum(counts[: group.rank])
    everything = torch.arange(2.0 * sum(counts), dtype=torch.float64).reshape(-1, 2)
    x = everything[start : start + counts[group.rank]].clone().requires_grad_()
    exchanger, sent = Exchanger(group), group.bytes_sent
    rows = exchanger.gather(x, counts)
    (rows * weights_of(group.rank, len(rows))).sum().backward()
    assert x.grad is not None
    weights = sum(weights_of(rank, len(rows)) for rank in range(group.size))
    return {
        "rows": torch.equal(rows, everything),
        "gradient": x.grad - weights[start : start + len(x)],
        "links": exchanger.drain(),
        "sent": group.bytes_sent - sent,
        "counts": counts,
    }


def weights_of(rank: int, rows: int) -> Tensor:
    return torch.randn(rows, 2, generator=torch.Generator().manual_seed(rank), dtype=torch.float64)


def waits(group: Group) -> tuple[list[float], list[float]]:
    """The last rank comes late to the forward exchange, then rank 0 to the backward one."""
    counts = np.zeros(group.size, dtype=np.int64)
    plan, noted = HaloPlan(group.rank, np.zeros(0, dtype=np.int64), counts, counts), Noted()
    exchanger, x = Exchanger(group, noted), torch.randn(3, 2, requires_grad=True)
    group.barrier()
    if group.rank == group.size - 1:
        time.sleep(LATE_S)
    rows = exchanger.pull(x, plan, 0)
    if group.rank == 0:
        time.sleep(LATE_S)
    rows.sum().backward()
    return noted.waits_s, noted.arrivals_s


def refusals(group: Group) -> dict[str, str]:
    """What ranks that are out of step, or a second derivative, come to; the group goes on after each."""
    counts = np.zeros(group.size, dtype=np.int64)
    plan, x = HaloPlan(group.rank, np.zeros(0, dtype=np.int64), counts, counts), torch.ones(2, 2, requires_grad=True)
    found = {}
    try:
        torch.autograd.grad(Exchanger(group).pull(x, plan, 0).sum(), x, create_graph=True)
    except UnsupportedError as error:
        found["twice"] = str(error)
    try:
        Exchanger(group).pull(x, plan, group.rank)
    except RunFailedError as error:
        found["place"] = str(error)
    try:
        expected = [0] * group.size
        if group.rank == 1:
            expected[0] = 2  # and rank 0 sends none
        group.start_exchange(torch.zeros(0, 3), [0] * group.size, expected).wait()
    except RunFailedError as error:
        found["count"] = str(error)
    return found


def described(group: Group) -> dict[str, Any]:
    """Arrays and texts from rank 0, with one refusal between them."""
    first = group.rank == 0
    arrays = []
    for array in ARRAYS:
        array.setflags(write=False)
        arrays.append(group.broadcast_array(array if first else None))
    validate_settings = ""
    try:
        group.broadcast_array(np.zeros(2, dtype=np.complex128) if first else None)
    except ConfigError as error:
        validate_settings = str(error)
    sent, received = group.bytes_sent, group.bytes_received
    texts = [group.broadcast_text(text if first else "other") for text in TEXTS]
    return {
        "arrays": arrays,
        "writable": all(array.flags.writeable for array in arrays),
        "refusal": validate_settings,
        "texts": texts,
        "moved": (group.bytes_sent - sent, group.bytes_received - received),
    }


def everything(rank: int, ranks: int, address: str) -> dict[str, Any]:
    """All that this file looks at, on one rank."""
    group: Group = join_group(rank, ranks, address) if ranks > 1 else SoloGroup()
    found: dict[str, Any] = {
        f"{name} {index}": two_layers(group, adjacency, own_thread=bool(index), routed=bool(index))
        for name, adjacency in graphs().items()
        for index in range(2)
    }
    found |= {"without gradient": without_gradient(group), "gathered": gathered(group)}
    if ranks > 1:
        found |= {
            "one way": one_way(group),
            "waits": waits(group),
            "refusals": refusals(group),
            "told": described(group),
        }
        found["run again"] = run_again(group)
    found["after"] = two_layers(group, graphs()["random"], own_thread=False, routed=False)  # still in step
    group.close()
    return found


RANKS = (1, 2, 4)


@cache
def on(ranks: int) -> list[dict[str, Any]]:
    return [everything(0, 1, "")] if ranks == 1 else run_ranks(everything, ranks)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("case", [*(f"{name} {index}" for name in graphs() for index in range(2)), "after"])
def test_products_and_gradients_are_those_of_one_rank(ranks: int, case: str) -> None:
    adjacency = graphs()["random" if case == "after" else case[:-2]]
    y, x_gradient, parameter_gradient = reference(adjacency)
    seen = [rank[case] for rank in on(ranks)]
    rows = np.concatenate([one["rows"] for one in seen])
    assert sorted(rows) == list(range(2 * VERTICES))
    assert torch.allclose(torch.cat([one["y"] for one in seen]), y[rows], rtol=1e-12, atol=1e-12)
    assert torch.allclose(torch.cat([one["x"] for one in seen]), x_gradient[rows], rtol=1e-12, atol=1e-12)
    total = torch.stack([one["parameter"] for one in seen]).sum(dim=0)
    assert torch.allclose(total, parameter_gradient, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("ranks", RANKS[1:])
@pytest.mark.parametrize("case", [f"{name} 0" for name in graphs()])
def test_links_are_the_plan_s_and_bytes_are_the_links_and_what_goes_in_front(ranks: int, case: str) -> None:
    seen = [rank[case] for rank in on(ranks)]
    front = 4 * (ranks - 1) * 5 * 8  # four exchanges; five numbers of eight bytes to each other rank
    for rank, one in enumerate(seen):
        expected = [
            (layer, way, to, int(counts[to]), int(counts[to]) * WIDTH * 8)
            for layer in (0, 1)
            for way, counts in (("forward", one["send_counts"]), ("backward", one["receive_counts"]))
            for to in range(ranks)
            if counts[to]
        ]
        assert sorted(one["links"]) == sorted(expected)
        assert one["drained"] == []
        assert one["sent"] == front + sum(link[4] for link in one["links"])
        to_me = [link for other in seen for link in other["links"] if link[2] == rank]
        assert one["received"] == front + sum(link[4] for link in to_me)
        assert one["phases"] == ["compute", "exchange"] * 4


def test_the_star_has_ranks_that_only_send_and_only_receive() -> None:
    counts = [(rank["star 0"]["send_counts"].sum(), rank["star 0"]["receive_counts"].sum()) for rank in on(4)]
    centre = int(owners(4)[0])
    assert counts == [(6, 0) if rank == centre else (0, 2) for rank in range(4)]


@pytest.mark.parametrize("ranks", RANKS[1:])
def test_rows_that_go_one_way_have_gradients_that_come_back(ranks: int) -> None:
    seen = [rank["one way"] for rank in on(ranks)]
    for case in seen[0]:
        source = seen[0][case][1]
        for rank in range(ranks):
            rows, _, gradient, links = seen[rank][case]
            wanted = torch.ones_like(source)
            itemsize = source.element_size() * int(np.prod(source.shape[1:]))
            if rank == 0:
                wanted[[1, 3]] += 10
                assert links == [(0, "forward", ranks - 1, 2, 2 * itemsize)]
            elif rank == ranks - 1:
                assert torch.equal(rows, source[[3, 1]])
                assert links == [(0, "backward", 0, 2, 2 * itemsize)]
            else:
                assert links == []
            if rank != ranks - 1:
                assert rows.shape == (0, *source.shape[1:])
            assert rows.dtype == source.dtype
            assert torch.equal(gradient, wanted)


@pytest.mark.parametrize("ranks", RANKS[1:])
def test_rows_that_need_no_gradient_send_none_back(ranks: int) -> None:
    ways = [rank["without gradient"] for rank in on(ranks)]
    assert {way for links, _ in ways for way in links} == {"forward"}
    assert not any(requires for _, requires in ways)


@pytest.mark.parametrize("ranks", RANKS[1:])
def test_what_is_computed_again_is_noted_by_another_name(ranks: int) -> None:
    for first, second in (rank["run again"] for rank in on(ranks)):
        renamed = [(layer, "rerun" if way == "forward" else way, *rest) for layer, way, *rest in second]
        assert {way for _, way, *_ in second} == {"forward", "backward"}
        assert sorted(first) == sorted(renamed)


@pytest.mark.parametrize("ranks", RANKS)
def test_a_gather_holds_all_rows_and_sums_their_gradients(ranks: int) -> None:
    for number, rank in enumerate(on(ranks)):
        found = rank["gathered"]
        assert found["rows"]
        assert found["gradient"].numel() == 2 * found["counts"][number]
        assert found["gradient"].abs().sum() < 1e-12
        assert found["links"] == []
        # forward sends own rows to all others, backward sends theirs back
        own, others = found["counts"][number], sum(found["counts"]) - found["counts"][number]
        assert found["sent"] == (own * (ranks - 1) + others) * 2 * 8 + 2 * (ranks - 1) * 5 * 8


@pytest.mark.parametrize("ranks", RANKS[1:])
def test_punctual_ranks_wait_for_the_late_one(ranks: int) -> None:
    waits_s, arrivals_s = (np.array([rank["waits"][index] for rank in on(ranks)]) for index in range(2))
    late_s = arrivals_s.max(axis=0) - arrivals_s  # as the ranks saw it: a loaded machine makes others late too
    assert waits_s.shape == (ranks, 2)
    assert (arrivals_s.argmax(axis=0) == [ranks - 1, 0]).all()
    assert (late_s[: ranks - 1, 0] > LATE_S / 2).all()
    assert (late_s[1:, 1] > LATE_S / 2).all()
    assert np.abs(waits_s - late_s).max() < 0.2 * LATE_S


@pytest.mark.parametrize("ranks", RANKS[1:])
def test_a_second_derivative_and_ranks_out_of_step_are_refused(ranks: int) -> None:
    for rank, found in enumerate(on(ranks)):
        refused = found["refusals"]
        assert "create_graph" in refused["twice"]
        assert f"rank {rank} is at exchange (0, {rank}, 0) but rank {1 if rank == 0 else 0}" in refused["place"]
        assert ("rank 0 sent 0 rows where rank 1 expected 2" in refused.get("count", "")) == (rank == 1)


@pytest.mark.parametrize("ranks", RANKS[1:])
def test_rank_0_s_arrays_and_texts_are_everywhere(ranks: int) -> None:
    letters = sum(len(text.encode()) for text in TEXTS) + len(TEXTS) * 64
    for rank, found in enumerate(on(ranks)):
        received = found["told"]
        for mine, array in zip(received["arrays"], ARRAYS, strict=True):
            assert mine.dtype == array.dtype
            assert mine.shape == array.shape
            assert mine.tobytes() == array.tobytes()  # NaN and -0.0 too
        assert received["writable"]
        assert received["texts"] == list(TEXTS)
        assert "rank 0" in received["refusal"]
        assert ("complex128" in received["refusal"]) == (rank == 0)
        assert received["moved"] == ((letters * (ranks - 1), 0) if rank == 0 else (0, letters))
