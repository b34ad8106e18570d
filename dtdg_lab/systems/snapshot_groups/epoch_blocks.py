"""Blocks of one epoch: when each rank computed which group, waited and exchanged; measured, or as planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.plans import Schedule
from dtdg_lab.records.rows import Array, Rows, as_column
from dtdg_lab.systems.snapshot_groups.events import ScheduleFacts
from dtdg_lab.systems.snapshot_groups.schedulers.bounds import lower_bound_s

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables

PAUSES = ("wait", "communicate")  # phases that are drawn beside groups
LONG_EPOCH_S = 3.0  # an epoch that takes this long is drawn while it runs, a shorter one when it is over


@dataclass(frozen=True, slots=True, eq=False)
class EpochBlocks:
    """Blocks of time of all ranks in one epoch.

    Attributes:
        epoch: its number, from 0.
        groups: ``rank``, ``step``, ``group``, ``start_ns`` and ``end_ns`` of each group that was computed.
        pauses: ``rank``, ``step``, ``phase``, ``start_ns`` and ``end_ns`` of waiting and of exchanges.
        schedule: the schedule that the epoch follows.
    """

    epoch: int
    groups: Rows
    pauses: Rows
    schedule: ScheduleFacts | None = None

    @property
    def is_whole(self) -> bool:
        """True if all groups of its schedule have been computed."""
        return self.schedule is not None and len(self.groups) == self.schedule.groups

    @property
    def begin_ns(self) -> int:
        """Begin of its first block."""
        return int(min(self.groups["start_ns"].min(), self.pauses["start_ns"].min(initial=2**62)))

    @property
    def span_s(self) -> float:
        """Seconds from its first block to the end of the last."""
        end_ns = max(self.groups["end_ns"].max(), self.pauses["end_ns"].max(initial=0))
        return float(end_ns - self.begin_ns) / 1e9

    @property
    def ranks(self) -> int:
        """Ranks that computed a group."""
        return len(np.unique(self.groups["rank"]))

    def waiting_share(self, ranks: int) -> float:
        """Return the share of all ranks' time in which they waited."""
        waits = self.pauses.where(self.pauses["phase"] == "wait")
        return float(lengths_ns(waits).sum()) / 1e9 / (ranks * self.span_s) if self.span_s > 0 else 0.0

    def times_s(self) -> NDArray[np.float64]:
        """Return the seconds of each group, in order of the groups."""
        seconds: NDArray[np.float64] = lengths_ns(self.groups)[np.argsort(self.groups["group"])] / 1e9
        return seconds

    def pace(self) -> Mapping[int, int]:
        """Return for each step the rank whose groups took longest."""
        steps, ranks = self.groups["step"], self.groups["rank"]
        loads = np.zeros((np.ptp(steps) + 1, ranks.max() + 1), np.int64)
        first = int(steps.min())
        np.add.at(loads, (steps - first, ranks), lengths_ns(self.groups))
        return {first + index: int(rank) for index, rank in enumerate(loads.argmax(axis=1))}

    def newest(self, limit: int) -> EpochBlocks:
        """Return the newest iterations with at most ``limit`` blocks together, and at least one iteration."""
        steps, counts = np.unique(np.concatenate([self.groups["step"], self.pauses["step"]]), return_counts=True)
        iterations = int((np.cumsum(counts[::-1]) <= limit).sum())
        if iterations >= len(steps):
            return self
        first = steps[-max(iterations, 1)]
        groups, pauses = (rows.where(rows["step"] >= first) for rows in (self.groups, self.pauses))
        return EpochBlocks(self.epoch, groups, pauses, self.schedule)

    def follows_schedule(self) -> bool:
        """Return whether every iteration computed the groups that its schedule says."""
        if self.schedule is None or not self.is_whole:
            return False
        computed = [set(rows["group"].tolist()) for rows in self.groups.by("step").values()]
        return computed == [{group for part in row for group in part} for row in self.schedule.assignment]

    def exchange_s(self) -> float:
        """Return the mean seconds of an iteration's exchange, on the rank where it took longest."""
        exchanges = self.pauses.where(self.pauses["phase"] == "communicate")
        if not len(exchanges):
            return 0.0
        longest = [max(lengths_ns(rows).tolist()) for rows in exchanges.by("step").values()]
        return sum(longest) / len(longest) / 1e9


def lengths_ns(rows: Rows) -> Array:
    """Return how long each block took."""
    lengths: Array = rows["end_ns"] - rows["start_ns"]
    return lengths


def schedule_of(tables: RunTables, epoch: int) -> ScheduleFacts | None:
    """Return the schedule that an epoch follows; None where the run has none."""
    schedules = [facts for row, facts in tables.typed(ScheduleFacts) if (row["epoch"] or 0) <= epoch]
    return schedules[-1] if schedules else None


def shown_epoch(tables: RunTables) -> EpochBlocks | None:
    """Return the newest epoch that is over, or the running one where epochs are long; None before the first group."""

    def blocks() -> EpochBlocks | None:
        groups = tables.rows("groups")
        if not len(groups):
            return None
        epochs = groups["epoch"]
        number = newest = int(epochs.max())
        running, previous = groups.where(epochs == newest), groups.where(epochs == newest - 1)
        schedule = schedule_of(tables, newest)
        is_over = schedule is not None and len(running) >= schedule.groups
        if not is_over and len(previous):
            previous_ns = previous["end_ns"].max() - previous["start_ns"].min()
            number = newest - 1 if previous_ns < LONG_EPOCH_S * 1e9 else newest
        phases = tables.rows("phases")
        phases = phases.where(phases["epoch"] == number)
        pauses = phases.where(np.isin(phases["phase"].astype(str), PAUSES))
        return EpochBlocks(number, groups.where(epochs == number), pauses, schedule_of(tables, number))

    return tables.once("shown epoch of groups", blocks)


def measured_bound(blocks: EpochBlocks, *, pipelined: bool) -> float | None:
    """Return the seconds that no schedule of an epoch's groups can beat; None where that is not known.

    Args:
        blocks: of the epoch.
        pipelined: whether a rank's groups overlap, so that their times are no times of their own.
    """
    if pipelined or not blocks.is_whole or blocks.schedule is None:
        return None
    times_s = blocks.times_s()
    if not times_s.all():
        return None
    return _bound_once(times_s.tobytes(), blocks.schedule.ranks, blocks.schedule.rank_groups)


@lru_cache(maxsize=16)
def _bound_once(times_s: bytes, ranks: int, per_rank: int) -> float:
    """Return the bound of an epoch, which is asked for again while the next one runs."""
    return lower_bound_s(np.frombuffer(times_s), ranks, per_rank=per_rank)


def planned_epoch(
    schedule: Schedule, times_s: ArrayLike, *, allreduce_s: float = 0.0, ranks: int | None = None
) -> EpochBlocks:
    """Return an epoch as planned: in each iteration ranks compute, wait for the slowest, and exchange.

    Args:
        schedule: of K groups on P parts.
        times_s: (K,) seconds of each group.
        allreduce_s: seconds of the exchange that ends an iteration.
        ranks: R; each computes P / R parts. P where not given.
    """
    times = np.asarray(times_s, np.float64)
    parts_of_a_rank = schedule.parts // (ranks or schedule.parts)
    groups: list[tuple[Any, ...]] = []
    pauses: list[tuple[Any, ...]] = []
    begin = 0.0
    for step, row in enumerate(schedule.assignment):
        ends: dict[int, float] = {}
        for part, assigned in enumerate(row):
            rank = part // parts_of_a_rank
            ends.setdefault(rank, begin)
            for group in assigned:
                end = ends[rank] + float(times[group])
                groups.append((rank, step, group, ends[rank], end))
                ends[rank] = end
        slowest = max(ends.values())
        pauses += [(rank, step, "wait", end, slowest) for rank, end in ends.items() if end < slowest]
        if allreduce_s > 0:
            pauses += [(rank, step, "communicate", slowest, slowest + allreduce_s) for rank in ends]
        begin = slowest + allreduce_s
    return EpochBlocks(0, _rows(groups, "group"), _rows(pauses, "phase"))


def _rows(blocks: list[tuple[Any, ...]], kind: str) -> Rows:
    """Return blocks, whose ends are seconds, as rows of a table."""
    names = ("rank", "step", kind, "start_ns", "end_ns")
    columns = [list(values) for values in zip(*blocks, strict=True)] or [[]] * len(names)
    columns[3:] = [[round(second * 1e9) for second in seconds] for seconds in columns[3:]]
    empty = {name: np.empty(0, object if name == "phase" else np.int64) for name in names}
    return Rows.of(
        {name: as_column(values) if values else empty[name] for name, values in zip(names, columns, strict=True)}
    )
