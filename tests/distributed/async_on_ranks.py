"""What tests of exchanges in flight run on ranks: module-level, so that fresh processes can import it by name."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from dtdg_lab.core.errors import PlanError, RunFailedError
from dtdg_lab.distributed.group import Group, ProcessGroup, SoloGroup
from dtdg_lab.distributed.store import reach_store
from dtdg_lab.testing.processes import delayed_group, join_group

LATE_S = 0.3
DELAY_S, COMPUTE_S, EXCHANGES = 0.05, 0.06, 6
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
        "times": [(a.wait_s, a.exposed_s, a.in_flight_s) for a in arrived],
    }


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
        found[name] = (arrived.wait_s, arrived.exposed_s, arrived.in_flight_s)
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


def hidden(group: Group, *, compute: bool) -> tuple[float, float, float]:
    """Seconds in flight, exposed, and the shortest flight, of exchanges on a slow network with work beside them."""
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
    return (
        sum(one.in_flight_s for one in arrived),
        sum(one.exposed_s for one in arrived),
        min(one.in_flight_s for one in arrived),
    )


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
