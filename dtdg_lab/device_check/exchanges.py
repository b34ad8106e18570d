"""Exchanges in a group of ranks, whose results are known exactly."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from dtdg_lab.distributed.group import Group

NUMBERS = 1 << 20  # of an all-reduce: more than one block of any algorithm


def check_exchanges(group: Group, device: str) -> dict[str, str]:
    """Run every kind of exchange, and return kind -> how its result differs; empty if it is exact. Collective.

    Numbers are whole and small, so that sums are exact in any order.

    Args:
        group: the ranks.
        device: device of this rank.
    """
    exchanges: dict[str, Callable[[], str]] = {
        "all-reduce": partial(_all_reduce, group, device),
        "all-to-all": partial(_all_to_all, group, device),
        "gather": partial(_gather, group, device),
        "broadcast": partial(_broadcast, group),
        "barrier": partial(_barrier, group, device),
    }
    return {name: exchange() for name, exchange in exchanges.items()}


def _all_reduce(group: Group, device: str) -> str:
    flat = (torch.arange(NUMBERS, device=device) % 251 + group.rank).float()
    group.all_reduce(flat)
    total = sum(range(group.size))
    expected = (torch.arange(NUMBERS, device=device) % 251) * group.size + total
    return _difference(flat, expected.float())


def _all_to_all(group: Group, device: str) -> str:
    """Send r + q + 1 rows from rank r to rank q, two exchanges in flight; each row has sender and receiver."""
    rank, size = group.rank, group.size
    counts = [rank + other + 1 for other in range(size)]
    rows = torch.cat([torch.tensor([[rank, other, 7.0]] * count) for other, count in enumerate(counts)]).to(device)
    pending = [group.start_exchange(factor * rows, counts, counts, tag=(factor,)) for factor in (1, 2)]
    expected = torch.cat([torch.tensor([[other, rank, 7.0]] * count) for other, count in enumerate(counts)]).to(device)
    differences = [
        _difference(exchange.wait().rows, factor * expected) for factor, exchange in zip((1, 2), pending, strict=True)
    ]
    return next(filter(None, differences), "")


def _gather(group: Group, device: str) -> str:
    counts = [rank + 1 for rank in range(group.size)]
    rows = torch.full((group.rank + 1, 3), float(group.rank), device=device)
    expected = torch.cat([torch.full((count, 3), float(rank)) for rank, count in enumerate(counts)]).to(device)
    return _difference(group.gather_rows(rows, counts), expected)


def _broadcast(group: Group) -> str:
    array = np.arange(1000, dtype=np.int64).reshape(10, 100) if group.rank == 0 else None
    received = group.broadcast_array(array)
    same = received.shape == (10, 100) and bool((received.ravel() == np.arange(1000)).all())
    return "" if same else f"rank {group.rank} received other numbers than rank 0 sent"


def _barrier(group: Group, device: str) -> str:
    """Check that the last rank's arrival is before any rank's departure, by the clock of the group."""
    arrived = torch.tensor([[group.clock_ns()]], dtype=torch.int64, device=device)
    group.barrier()
    left_ns = group.clock_ns()
    last_ns = int(group.gather_rows(arrived, [1] * group.size).max())
    return "" if last_ns <= left_ns else f"rank {group.rank} left {(last_ns - left_ns) * 1e-6:.3g} ms too early"


def _difference(actual: torch.Tensor, expected: torch.Tensor) -> str:
    if actual.shape != expected.shape:
        return f"shape {tuple(actual.shape)} instead of {tuple(expected.shape)}"
    wrong = int((actual != expected).sum())
    return f"{wrong:,} of {actual.numel():,} numbers are wrong" if wrong else ""
