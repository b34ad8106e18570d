"""Ranks dealt to groups that hold the same snapshots, and to columns that hold the same rows."""

from __future__ import annotations

import datetime

import torch.distributed as dist

from dtdg_lab.core.errors import PlanError


def rows_of(row_ranks: int, ranks: int) -> list[list[int]]:
    """The row groups: ranks of equal r // G, G = ``row_ranks``, which divides R."""
    return [list(range(start, start + row_ranks)) for start in range(0, ranks, row_ranks)]


def columns_of(row_ranks: int, ranks: int) -> list[list[int]]:
    """The columns: ranks of equal r % G."""
    return [list(range(start, ranks, row_ranks)) for start in range(row_ranks)]


def check_split(row_ranks: int, ranks: int, *, whole: bool = True) -> None:
    """Refuse what cannot be split so.

    Raises:
        PlanError: ``row_ranks`` does not divide the ranks, or they are not those of the whole run.
    """
    if row_ranks < 1 or ranks % row_ranks:
        raise PlanError(
            f"{ranks} rank(s) cannot be split into groups of row_ranks={row_ranks}: set row_ranks to a divisor of "
            f"{ranks}."
        )
    if not whole:
        raise PlanError(f"a group of {ranks} rank(s) that came of a split cannot be split again: split the whole one.")


def make_mine(parts: list[list[int]], rank: int, timeout: datetime.timedelta) -> tuple[list[int], dist.ProcessGroup]:
    """Torch's groups of all parts, made by all ranks in one order; returns that of this rank and its members.

    Args:
        parts: ranks of each; every rank is in one.
        rank: this one, in the default group.
        timeout: of their collectives.
    """
    made = [dist.new_group(part, timeout=timeout) for part in parts]
    number = next(number for number, part in enumerate(parts) if rank in part)
    return parts[number], made[number]
