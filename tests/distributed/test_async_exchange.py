"""Exchanges in flight: the same rows, times as they were, errors, hiding behind computing, and smaller groups."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from dtdg_lab.core.errors import PlanError, RunFailedError
from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.distributed.all_to_all import Arrived
from dtdg_lab.distributed.group import Group, ProcessGroup, SoloGroup, columns_of, rows_of
from dtdg_lab.distributed.store import open_store, reach_store
from dtdg_lab.testing.processes import delayed_group, join_group, run_ranks

LATE_S = 0.8
DELAY_S, COMPUTE_S, EXCHANGES = 0.05, 0.1, 6
SHAPES = ((torch.float64, (3,)), (torch.float32, ()), (torch.float32, (2, 5)), (torch.int64, (1,)))


def counts(ranks: int, exchange: int) -> Any:
    """(R, R) rows from each rank to each, uneven, with pairs that have none."""
    return np.random.default_rng(exchange).integers(0, 5, (ranks, ranks)) * (exchange > 0)


def rows_for(rank: int, exchange: int, rows: int) -> Tensor:
    dtype, tail = SHAPES[exchange % len(SHAPES)]
    draw = torch.Generator().manual_seed(100 * exchange + rank)
    return (torch.randn(rows, *tail, generator=draw, dtype=torch.float64) * 1000).to(dtype)


def in_flight(group: Group) -> dict[str, Any]:
    """The same exchanges one by one, and all at once, waited for from the last to the first."""
    one_by_one, pending, moved = [], [], []
    for exchange in range(len(SHAPES) + 1):
        table = counts(group.size, exchange)
        send, receive = table[group.rank].tolist(), table[:, group.rank].tolist()
        rows = rows_for(group.rank, exchange, sum(send))
        before = group.bytes_sent, group.bytes_received
        one_by_one.append(group.start_exchange(rows, send, receive, tag=(exchange, 7)).wait().rows)
        between = group.bytes_sent, group.bytes_received
        pending.append(group.start_exchange(rows.requires_grad_(rows.is_floating_point()), send, receive))
        moved.append((np.subtract(between, before), np.subtract((group.bytes_sent, group.bytes_received), between)))
        with torch.no_grad():
            rows.zero_()  # what travels is a copy
    total = group.bytes_sent
    arrived = [one.wait() for one in reversed(pending)][::-1]
    again = [one.wait() for one in pending]
    return {
        "equal": [torch.equal(a.rows, b) and a.rows.dtype == b.dtype for a, b in zip(arrived, one_by_one, strict=True)],
        "same": all(a is b for a, b in zip(arrived, again, strict=True)),
        "moved": moved,
        "gradients": any(a.rows.requires_grad for a in arrived),
        "rows": [len(a.rows) for a in arrived],
        "counted_later": group.bytes_sent - total,
        "times": [seconds_of(a) for a in arrived],
    }


def seconds_of(arrived: Arrived) -> tuple[float, float, float]:
    times = arrived.times()
    return times.wait_s, times.exposed_s, times.in_flight_s


def times(group: Group) -> dict[str, tuple[float, float, float]]:
    """The last rank starts late; the others wait for it at once, or come back when it is long over."""
    nobody, found = [0] * group.size, {}
    for name, busy_s in (("at once", 0.0), ("half way", LATE_S / 2), ("after", 2 * LATE_S)):
        group.barrier()
        if group.rank == group.size - 1:
            time.sleep(LATE_S)
        pending = group.start_exchange(torch.zeros(0, 2), nobody, nobody)
        time.sleep(busy_s)
        arrived = pending.wait()
        found[name] = seconds_of(arrived)
    return found


def refusals(group: Group) -> dict[str, str]:
    """Ranks that do not mean the same exchange: the start goes well, every wait raises, the group goes on."""
    nobody, found = [0] * group.size, {}
    other = group.start_exchange(torch.zeros(0, 3), nobody, nobody, tag=(5, group.rank))
    expected = [2, *nobody[1:]] if group.rank == 1 else nobody  # and rank 0 sends none
    fewer = group.start_exchange(torch.zeros(0, 3), nobody, expected)
    good = group.start_exchange(torch.ones(group.size, 1), [1] * group.size, [1] * group.size)
    for name, pending in (("place", other), ("place again", other), ("count", fewer)):
        try:
            pending.wait()
        except RunFailedError as error:
            found[name] = str(error)
    try:
        group.start_exchange(torch.zeros(1, 3), nobody, nobody)
    except PlanError as error:
        found["own"] = str(error)
    found["good"] = str(int(good.wait().rows.sum()))
    return found


def hidden(group: Group, *, compute: bool) -> tuple[list[float], float]:
    """The exposed share of each exchange on a slow network with work beside it, and the seconds of the shortest."""
    slow, everyone = delayed_group(group, DELAY_S), [1] * group.size
    matrix, arrived = torch.randn(64, 64), []
    group.barrier()
    for number in range(EXCHANGES):
        pending = slow.start_exchange(torch.full((group.size, 4), float(group.rank)), everyone, everyone)
        end_s = time.perf_counter() + COMPUTE_S * compute
        while time.perf_counter() < end_s:
            matrix = torch.tanh(matrix @ matrix)
        arrived.append(pending.wait())
        assert arrived[-1].rows[:, 0].tolist() == list(range(group.size)), number
        assert pending.wait() is arrived[-1]
    times = [one.times() for one in arrived]
    return [each.exposed_s / each.in_flight_s for each in times], min(each.in_flight_s for each in times)


def delayed(group: Group) -> dict[str, Any]:
    """A slow group is otherwise the group it slows."""
    slow, before = delayed_group(group, DELAY_S), group.bytes_sent
    began_s = time.perf_counter()
    rows = slow.start_exchange(torch.ones(group.size, 2), [1] * group.size, [1] * group.size).wait().rows
    took_s = time.perf_counter() - began_s
    row_group, column = slow.split(1)
    flat = torch.ones(2)
    slow.all_reduce(flat)
    text = slow.broadcast_text("slow" if slow.rank == 0 else "")
    gathered = slow.gather_rows(torch.full((1, 1), float(slow.rank)), [1] * slow.size)
    slow.barrier()
    return {
        "rows": int(rows.sum()),
        "took_s": took_s,
        "sizes": (row_group.size, column.size, column.rank),
        "sum": flat.tolist(),
        "text": text,
        "gathered": gathered[:, 0].tolist(),
        "kept": slow.split(1)[1] is column,
        "moved": (slow.bytes_sent - before, group.bytes_sent - before),
        "clock": slow.clock_ns() - group.clock_ns(),
    }


def whole_row(group: Group) -> dict[str, Any]:
    """Splits that need no new process group: none is made."""
    made, new_group = [], dist.new_group
    dist.new_group = lambda *given, **named: made.append(given) or new_group(*given, **named)
    try:
        alone, column = group.split(1)
        row_group, single = group.split(group.size)
    finally:
        dist.new_group = new_group
    flat = torch.ones(1)
    alone.all_reduce(flat)
    return {
        "same": (column is group, row_group is group),
        "made": made,
        "alone": (alone.rank, alone.size, flat.item()),
        "solo": isinstance(alone, SoloGroup) and isinstance(single, SoloGroup),
    }


def moved_by(part: Group, whole: Group) -> dict[str, Any]:
    """Every collective of a smaller group, and what it counts in both."""
    before, wholly = (part.bytes_sent, part.bytes_received), (whole.bytes_sent, whole.bytes_received)
    flat = torch.full((4,), float(whole.rank))
    part.all_reduce(flat)
    gathered = part.gather_rows(torch.full((1 + part.rank, 1), float(whole.rank)), [1 + r for r in range(part.size)])
    array = part.broadcast_array(np.array([whole.rank]) if part.rank == 0 else None)
    text = part.broadcast_text(f"of {whole.rank}")
    send = [1 + other for other in range(part.size)]
    pending = part.start_exchange(
        torch.full((sum(send), 1), float(whole.rank)), send, [1 + part.rank] * part.size, tag=(3,)
    )
    flying = whole.start_exchange(torch.ones(whole.size, 1), [1] * whole.size, [1] * whole.size)  # both travel at once
    extra = flying.wait().rows.numel()
    part.barrier()
    try:
        part.start_exchange(torch.zeros(0, 1), [0] * part.size, [0] * part.size, tag=(part.rank,)).wait()
    except RunFailedError as error:
        validate_settings = str(error)
    return {
        "rank": (part.rank, part.size),
        "sum": flat.tolist(),
        "gathered": gathered[:, 0].tolist(),
        "array": array.tolist(),
        "text": text,
        "rows": pending.wait().rows[:, 0].tolist(),
        "refusal": validate_settings,
        "moved": np.subtract((part.bytes_sent, part.bytes_received), before).tolist(),
        "extra": extra,
        "wholly": np.subtract((whole.bytes_sent, whole.bytes_received), wholly).tolist(),
    }


def splits(group: ProcessGroup, address: str) -> dict[str, Any]:
    """Four ranks two by two, in a group that is left and formed again, as engines do from run to run; leaves it."""
    found: dict[str, Any] = {"trivial": whole_row(group)}
    row_group, column = group.split(2)
    found |= {"row group": moved_by(row_group, group), "column": moved_by(column, group)}
    found["kept"] = group.split(2) == (row_group, column)
    found["refused"] = [refused(group, 3), refused(column, 2)]
    column.close()  # leaves nothing: the whole group does
    column.all_reduce(torch.ones(1))
    group.close()
    store = reach_store(address, group.size)  # kept: torch keeps no store that is written in Python
    again = ProcessGroup.join(dist.PrefixStore("again", store), group.rank, group.size)
    flat = torch.ones(1)
    again.split(2)[1].all_reduce(flat)
    found["again"] = (again.split(2)[1] is not column, flat.item())
    again.close()
    return found


def refused(group: Group, row_ranks: int) -> str:
    try:
        group.split(row_ranks)
    except PlanError as error:
        return str(error)
    return ""


def leave_in_flight(rank: int, ranks: int, address: str) -> tuple[float, list[float]]:
    """Leave while exchanges travel: one that all started, then one that only rank 0 did; then go on in a new group."""
    store, seconds = reach_store(address, ranks), []
    for number, starters in enumerate((ranks, 1)):
        group = ProcessGroup.join(dist.PrefixStore(f"try {number}", store), rank, ranks)
        pending = None
        if rank < starters:
            pending = group.start_exchange(torch.ones(ranks, 200_000), [1] * ranks, [1] * ranks)
        began_s = time.perf_counter()
        group.close()
        seconds.append(time.perf_counter() - began_s)
        del pending
    group = ProcessGroup.join(dist.PrefixStore("last", store), rank, ranks)
    flat = torch.ones(1)
    group.all_reduce(flat)
    group.close()
    return flat.item(), seconds


def everything(rank: int, ranks: int, address: str) -> dict[str, Any]:
    """All that two and four ranks look at."""
    group = join_group(rank, ranks, address)
    found: dict[str, Any] = {
        "in flight": in_flight(group),
        "times": times(group),
        "refusals": refusals(group),
        "delayed": delayed(group),
        "hidden": hidden(group, compute=True),
        "bare": hidden(group, compute=False),
    }
    found["after"] = in_flight(group)["equal"]  # still in step
    if ranks == 4:
        found["splits"] = splits(group, address)
    else:
        group.close()
        found["left"] = leave_in_flight(rank, ranks, address)
    return found


RANKS = (2, 4)
each_size = pytest.mark.parametrize("ranks", RANKS)


@cache
def on(ranks: int) -> list[dict[str, Any]]:
    return run_ranks(everything, ranks)


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
        assert in_flight_s > 0.75 * LATE_S and min(wait_s, exposed_s) > 0.75 * in_flight_s
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
    """And nothing where nothing is computed; of each, the least disturbed exchange counts."""
    for found in on(ranks):
        (hidden_shares, _), (bare_shares, _) = found["hidden"], found["bare"]
        assert min(found["hidden"][1], found["bare"][1]) >= DELAY_S
        assert max(bare_shares) > 0.9 and min(hidden_shares) < 0.45


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
        wait_s, exposed_s, in_flight_s = seconds_of(one)
        assert 0 <= wait_s <= exposed_s <= in_flight_s < 1.0
        assert in_flight_s > 0
