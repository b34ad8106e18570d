"""Exchanges in flight: the same rows, times as they were, errors, hiding behind computing, and smaller groups."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.distributed.group import ProcessGroup, columns_of, rows_of
from dtdg_lab.distributed.store import open_store
from dtdg_lab.testing.processes import run_ranks
from tests.distributed import async_on_ranks
from tests.distributed.async_on_ranks import DELAY_S, LATE_S, SHAPES, counts

RANKS = (2, 4)
each_size = pytest.mark.parametrize("ranks", RANKS)


@cache
def on(ranks: int) -> list[dict[str, Any]]:
    return run_ranks(async_on_ranks.everything, ranks)


@each_size
def test_rows_in_flight_are_those_exchanged_one_by_one(ranks: int) -> None:
    for rank, found in enumerate(on(ranks)):
        seen = found["in flight"]
        assert seen["equal"] == [True] * (len(SHAPES) + 1)
        assert seen["same"]
        assert not seen["gradients"]
        assert seen["rows"] == [counts(ranks, exchange)[:, rank].sum() for exchange in range(len(SHAPES) + 1)]
        assert found["after"] == [True] * (len(SHAPES) + 1)
        for wait_s, exposed_s, in_flight_s in seen["times"]:
            assert 0 <= wait_s <= exposed_s <= in_flight_s
            assert in_flight_s > 0


@each_size
def test_bytes_are_counted_once_and_at_the_start(ranks: int) -> None:
    for rank, found in enumerate(on(ranks)):
        seen = found["in flight"]
        assert seen["counted_later"] == 0
        for exchange, (at_once, in_flight) in enumerate(seen["moved"]):
            dtype, tail = SHAPES[exchange % len(SHAPES)]
            table = counts(ranks, exchange) * int(np.prod(tail)) * dtype.itemsize
            np.fill_diagonal(table, 0)
            rows = np.array([table[rank].sum(), table[:, rank].sum()])
            assert (in_flight == rows + 2 * 8 * (ranks - 1)).all()
            assert (at_once == in_flight + 2 * 8 * (ranks - 1)).all()  # its place has two numbers


@each_size
def test_a_flight_ends_when_the_rows_are_here_and_not_when_somebody_looks(ranks: int) -> None:
    for found in on(ranks)[:-1]:
        (wait_s, exposed_s, in_flight_s), half, after = (
            found["times"][name] for name in ("at once", "half way", "after")
        )
        assert in_flight_s > 0.75 * LATE_S and min(wait_s, exposed_s) > 0.9 * in_flight_s
        assert half[2] > 0.75 * LATE_S and max(half[:2]) < half[2] - 0.9 * LATE_S / 2, (
            "what it did meanwhile is not waiting"
        )
        assert 0.75 * LATE_S < after[2] < 2 * LATE_S, "it ended before the rank looked"
        assert max(after[:2]) < 0.25 * LATE_S
    for found_s in on(ranks)[-1]["times"].values():  # who comes last waits for nobody
        assert max(found_s) < 0.5 * LATE_S


@each_size
def test_ranks_out_of_step_are_told_by_the_wait(ranks: int) -> None:
    for rank, found in enumerate(on(ranks)):
        described = found["refusals"]
        assert f"rank {rank} is at exchange (5, {rank}) but rank {1 if rank == 0 else 0} at" in described["place"]
        assert described["place again"] == described["place"]
        assert ("rank 0 sent 0 rows where rank 1 expected 2" in described.get("count", "")) == (rank == 1)
        assert "do not fit 1 rows" in described["own"]
        assert described["good"] == str(ranks)


@each_size
def test_most_of_a_slow_exchange_is_hidden_behind_computing(ranks: int) -> None:
    """And nothing where nothing is computed."""
    for found in on(ranks):
        exposed = {}
        for name in ("hidden", "bare"):
            in_flight_s, exposed_s, shortest_s = found[name]
            assert shortest_s >= DELAY_S
            exposed[name] = exposed_s / in_flight_s
        assert exposed["bare"] > 0.9 and exposed["hidden"] < 0.5 * exposed["bare"]


@each_size
def test_a_slow_group_is_otherwise_the_group_it_slows(ranks: int) -> None:
    for rank, found in enumerate(on(ranks)):
        seen = found["delayed"]
        assert seen["rows"] == 2 * ranks
        assert seen["took_s"] >= DELAY_S
        assert seen["sizes"] == (1, ranks, rank)
        assert seen["sum"] == [ranks, ranks]
        assert seen["text"] == "slow"
        assert seen["gathered"] == list(range(ranks))
        assert seen["kept"]
        assert seen["moved"][0] == seen["moved"][1] > 0
        assert abs(seen["clock"]) < 1e9


@pytest.mark.parametrize(("ranks", "row_ranks"), [(6, 2), (6, 3), (4, 1), (4, 4), (1, 1)])
def test_ranks_are_dealt_as_blocks_of_snapshots_are(ranks: int, row_ranks: int) -> None:
    dealt = SnapshotBlocks(range(12), 1, ranks, 12, row_ranks)
    groups, columns = rows_of(row_ranks, ranks), columns_of(row_ranks, ranks)
    for parts in (groups, columns):
        assert sorted(rank for part in parts for rank in part) == list(range(ranks))
        assert all(part == sorted(part) for part in parts)
    assert [{dealt.own(0, rank) for rank in part} for part in groups] == [{dealt.own(0, part[0])} for part in groups]
    assert [{dealt.rows(rank) for rank in part} for part in columns] == [{dealt.rows(part[0])} for part in columns]
    assert (len(groups), len(columns)) == (dealt.groups, row_ranks)


def test_a_split_has_the_ranks_that_share_snapshots_and_those_that_share_rows() -> None:
    for rank, found in enumerate(on(4)):
        first = rank // 2 * 2
        members = {"row group": [first, first + 1], "column": [rank % 2, rank % 2 + 2]}
        for name, others in members.items():
            seen, place = found["splits"][name], others.index(rank)
            assert seen["rank"] == (place, 2)
            assert seen["sum"] == [sum(others)] * 4
            assert seen["gathered"] == [others[0], others[1], others[1]]
            assert seen["array"] == [others[0]]
            assert seen["text"] == f"of {others[0]}"
            assert seen["rows"] == [other for other in others for _ in range(1 + place)]
            assert seen["extra"] == 4
            second = others[1 - place]  # ranks of the run are named, not of the part
            assert f"rank {rank} is at exchange ({place},) but rank {second} at" in seen["refusal"]
        assert found["splits"]["kept"]


def test_bytes_of_a_part_are_counted_in_the_whole() -> None:
    front = 3 * (2 * 8 + 4)  # the exchange of the whole group that travelled meanwhile
    for found in on(4):
        for name in ("row group", "column"):
            seen = found["splits"][name]
            assert min(seen["moved"]) > 0
            assert seen["wholly"] == [moved + front for moved in seen["moved"]]


def test_a_split_into_single_ranks_or_one_group_makes_no_group() -> None:
    for found in on(4):
        seen = found["splits"]["trivial"]
        assert seen == {"same": (True, True), "made": [], "alone": (0, 1, 1.0), "solo": True}


def test_splits_that_do_not_fit_are_refused_and_a_new_group_has_new_ones() -> None:
    for found in on(4):
        refused, seen = found["splits"]["refused"], found["splits"]["again"]
        assert "4 rank(s) cannot be split into groups of row_ranks=3" in refused[0]
        assert "divisor of 4" in refused[0]
        assert "subgroup" in refused[1]
        assert seen == (True, 2.0)


def test_a_group_can_be_left_while_rows_travel() -> None:
    for found in on(2):
        total, seconds = found["left"]
        assert total == 2
        assert max(seconds) < 5.0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: NCCL's flights are not timed here")
def test_a_flight_on_a_gpu_is_timed_by_the_device() -> None:
    store, _ = open_store(1)
    group = ProcessGroup.join(store, 0, 1, device="cuda:0")
    rows = torch.randn(1_000_000, 8, device="cuda:0")
    matrix = torch.randn(2000, 2000, device="cuda:0")
    pending = [group.start_exchange(rows + number, [len(rows)], [len(rows)], tag=(number,)) for number in range(3)]
    for _ in range(20):
        matrix @ matrix
    arrived = [one.wait() for one in pending]
    group.close()
    store.remove()
    for number, one in enumerate(arrived):
        assert torch.equal(one.rows, rows + number)
        assert 0 <= one.wait_s <= one.exposed_s <= one.in_flight_s < 1.0
        assert one.in_flight_s > 0
