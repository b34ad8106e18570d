"""Measured times of snapshot groups, beside the times that the scheduler assumed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.snapshot_groups.events import ScheduleFacts
from dtdg_lab.systems.snapshot_groups.gantt import lengths_ns, shown_epoch

EPOCHS = 5  # number of newest measurements of a group that count


@dataclass(frozen=True, slots=True, eq=False)
class GroupTimes:
    """Measurements of K groups in the newest epochs.

    Attributes:
        schedule: the schedule of the groups.
        seconds: (K,) medians; NaN if not measured.
        ranks: (K,) the rank that last computed each group; -1 for none.
    """

    schedule: ScheduleFacts
    seconds: NDArray[np.float64]
    ranks: NDArray[np.int64]

    @property
    def scale(self) -> float | None:
        """Factor from the schedule's times to seconds; None if no group of these sizes was measured."""
        return self.schedule.scale(self.seconds)

    @property
    def known(self) -> NDArray[np.bool_]:
        """(K,) True for groups with a measured and a predicted time."""
        return np.isfinite(self.seconds) & (self.seconds > 0) & (self.schedule.times_s > 0)

    @property
    def predicted_s(self) -> NDArray[np.float64]:
        """(K,) seconds that the scheduler assumed; NaN if no group of these sizes was measured."""
        predicted: NDArray[np.float64] = self.schedule.times_s * (np.nan if self.scale is None else self.scale)
        return predicted

    @property
    def error(self) -> float | None:
        """Mean relative error of the predicted times; None if no group was measured."""
        if not self.known.any():
            return None
        return float(np.abs(self.predicted_s[self.known] / self.seconds[self.known] - 1).mean())

    @property
    def best_s(self) -> NDArray[np.float64]:
        """(K,) seconds of each group: measured, or else predicted."""
        return np.where(np.isfinite(self.seconds), self.seconds, self.schedule.times_s * (self.scale or 1.0))


def group_times(tables: RunTables) -> GroupTimes | None:
    """Return the measured times of the newest schedule's groups; None without a schedule."""

    def times() -> GroupTimes | None:
        schedule = tables.event(ScheduleFacts)
        return None if schedule is None else _measured(tables, schedule)

    return tables.once("times of groups", times)


def _measured(tables: RunTables, schedule: ScheduleFacts) -> GroupTimes:
    """Return medians over the newest epochs; a group's first epoch only counts if it is the only one."""
    first, count = _first_epoch(tables, schedule), schedule.groups
    rows = tables.rows("groups")
    rows = rows.where((rows["epoch"] >= first) & (rows["group"] < count))
    rows = rows.where(rows["epoch"] >= rows["epoch"].max(initial=0) - EPOCHS)
    groups, epochs = rows["group"].astype(np.int64), rows["epoch"].astype(np.int64)
    table, of_ranks = np.full((count, EPOCHS + 1), np.nan), np.full((count, EPOCHS + 1), -1)
    column = epochs - (epochs.max(initial=0) - EPOCHS)
    table[groups, column], of_ranks[groups, column] = lengths_ns(rows) / 1e9, rows["rank"]
    newest = EPOCHS - np.argmax(np.isfinite(table[:, ::-1]), axis=1)
    ranks = of_ranks[np.arange(count), newest]
    warm = first - (epochs.max(initial=0) - EPOCHS)  # the column of the first epoch, if it is in memory
    if 0 <= warm <= EPOCHS:
        table[np.isfinite(np.delete(table, warm, axis=1)).any(axis=1), warm] = np.nan
    else:
        table[np.isfinite(table[:, 1:]).any(axis=1), 0] = np.nan  # keep the newest five
    medians: NDArray[np.float64] = np.ma.median(np.ma.masked_invalid(table), axis=1).filled(np.nan)
    return GroupTimes(schedule, medians, ranks)


def _first_epoch(tables: RunTables, schedule: ScheduleFacts) -> int:
    """Return the first epoch with the current number of groups; other numbers belong to other groups."""
    first = 0
    for row, facts in reversed(tables.typed(ScheduleFacts)):
        if facts is None or facts.groups != schedule.groups:
            break
        first = int(row["epoch"] or 0)
    return first


def planned_seconds(schedule: ScheduleFacts, times_s: NDArray[np.float64]) -> float:
    """Return the seconds of a schedule whose groups take these times, without exchanges."""
    parts = schedule.parts // schedule.ranks
    loads = np.array([[times_s[list(groups)].sum() for groups in row] for row in schedule.assignment])
    return float(loads.reshape(len(loads), schedule.ranks, parts).sum(axis=2).max(axis=1).sum())


def predicted_seconds(tables: RunTables) -> float | None:
    """Return the seconds of an epoch by the newest schedule, without exchanges; None without times.

    They are computed from the group times of the displayed epoch, like the bound, or else from the scheduler's times.
    """
    times, blocks = group_times(tables), shown_epoch(tables)
    if times is None:
        return None
    schedule, is_pipelined = times.schedule, bool(tables.config.flat.get("pipelined"))
    if blocks is not None and blocks.schedule is schedule and blocks.is_whole and not is_pipelined:
        return planned_seconds(schedule, blocks.times_s())
    return None if times.scale is None else planned_seconds(schedule, times.predicted_s)
