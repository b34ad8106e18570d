"""The position of a run: steps, epochs and seconds of its ranks, over all attempts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dtdg_lab.records.lines import Line
from dtdg_lab.records.replaced_rows import first_replaced
from dtdg_lab.records.rows import Array, Rows


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run.

    Attributes:
        step: number of completed steps.
        epoch: current epoch, from 1; 0 before the first step.
        epochs: epochs of the run.
        seconds: seconds of training so far.
        seconds_left: predicted remaining seconds; None before the first epoch ends.
    """

    step: int
    epoch: int
    epochs: int
    seconds: float
    seconds_left: float | None


@dataclass(slots=True)
class EpochPosition:
    """Epoch and steps done in it by the furthest rank, and steps per complete epoch."""

    epoch: int = -1
    steps_done: int = 0
    steps_per_epoch: int = 0

    def reach(self, epoch: int, steps_done: int) -> None:
        """Record a step; ranks may report steps out of order, so keep the latest."""
        if (epoch, steps_done) <= (self.epoch, self.steps_done):
            return
        if epoch > self.epoch >= 0:
            self.steps_per_epoch = self.steps_done
        self.epoch, self.steps_done = epoch, steps_done

    def progress(self, step: int, epochs: int, seconds: float) -> Progress:
        """Return the progress of a run with ``epochs`` epochs."""
        if self.epoch < 0 or not self.steps_per_epoch:
            return Progress(step, self.epoch + 1, epochs, seconds, None)
        share = min(1.0, (self.epoch + min(1.0, self.steps_done / self.steps_per_epoch)) / epochs)
        return Progress(step, self.epoch + 1, epochs, seconds, seconds * (1 - share) / share)


class RunPosition:
    """Steps and epochs of the ranks.

    Attributes:
        starts: attempt -> rank -> first step.
        steps: rank -> newest step.
        whole_steps: rank -> newest step whose rows are complete.
        epochs: rank -> newest epoch.
        furthest: position of the furthest rank.
    """

    def __init__(self) -> None:
        self.starts: dict[int, dict[int, int]] = {}
        self.steps: dict[int, int] = {}
        self.whole_steps: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.furthest = EpochPosition()
        self._attempt, self._attempt_epoch = 0, 0  # the newest attempt with steps, and its first epoch

    def note_line(self, line: Line) -> bool:
        """Process a line of steps; return True if it begins a later attempt."""
        rank, attempt, columns = line["rank"], line["attempt"], line["columns"]
        step, epoch = columns.index("step"), columns.index("epoch")
        first, newest = line["rows"][0][step], line["rows"][-1]
        starts = self.starts.setdefault(attempt, {})
        begins = first < starts.get(rank, math.inf)
        if begins:
            starts[rank] = first
        if attempt > self._attempt:
            self._begin(attempt, first, line["rows"][0][epoch])
        if attempt == self._attempt:
            self.whole_steps[rank] = self.steps.get(rank, -1)  # lines of other tables follow the line of steps
            self.steps[rank], self.epochs[rank] = newest[step], newest[epoch]
            iteration = columns.index("iteration") if "iteration" in columns else None
            for row in line["rows"]:
                self.furthest.reach(row[epoch], 1 if iteration is None else (row[iteration] or 0) + 1)
        else:  # a late line of an earlier attempt; the rank may have no step of the newest attempt
            valid_step = min(newest[step], first_replaced(self.starts, rank, attempt) - 1)
            if valid_step > self.steps.get(rank, -1):
                self.steps[rank], self.epochs[rank] = int(valid_step), min(newest[epoch], self._attempt_epoch)
        return begins and attempt > min(self.starts)

    def note_columns(self, steps: Rows) -> None:
        """Process the steps of all attempts at once."""
        for attempt, attempt_rows in steps.by("attempt").items():
            self._begin(attempt, int(attempt_rows["step"].min()), int(attempt_rows["epoch"].min()))
            for rank, rows in attempt_rows.by("rank").items():
                self.starts.setdefault(attempt, {})[rank] = int(rows["step"].min())
                self.steps[rank], self.epochs[rank] = int(rows["step"].max()), int(rows["epoch"].max())
            iteration = attempt_rows["iteration"] if "iteration" in attempt_rows else np.zeros(len(attempt_rows))
            order = np.lexsort([iteration, attempt_rows["epoch"]])
            epochs, counts = attempt_rows["epoch"][order], np.nan_to_num(iteration[order]).astype(np.int64) + 1
            ends = np.flatnonzero(np.append(np.diff(epochs), 1))
            for epoch, count in zip(epochs[ends].tolist(), counts[ends].tolist(), strict=True):
                self.furthest.reach(epoch, count)
        self.whole_steps = dict(self.steps)

    def _begin(self, attempt: int, first: int, epoch: int) -> None:
        """Move ranks back to the first step of an attempt."""
        self._attempt, self._attempt_epoch = attempt, epoch
        self.furthest = EpochPosition(steps_per_epoch=self.furthest.steps_per_epoch)
        self.steps = {rank: min(step, first - 1) for rank, step in self.steps.items()}
        self.whole_steps = {rank: min(step, first - 1) for rank, step in self.whole_steps.items()}
        self.epochs = {rank: min(newest, epoch) for rank, newest in self.epochs.items()}

    @property
    def newest_step(self) -> int:
        """The newest step of any rank; -1 without one."""
        return max(self.steps.values(), default=-1)

    def common_step(self, ranks: int) -> int:
        """Return the newest step that all ranks have done; -1 without one."""
        return min((self.steps.get(rank, -1) for rank in range(ranks)), default=-1)

    def common_whole_step(self, ranks: int) -> int:
        """Return the newest step whose rows are complete on all ranks; -1 without one."""
        return min((self.whole_steps.get(rank, -1) for rank in range(ranks)), default=-1)


class AttemptClock:
    """Converts the clocks of records to seconds of training."""

    def __init__(self) -> None:
        self._started_ns: dict[int, int] = {}  # attempt -> its start on rank 0
        self._first_ns: dict[int, int] = {}  # attempt -> its first sign
        self._newest_ns: dict[int, int] = {}

    def note(self, attempt: int, first_ns: int, newest_ns: int) -> None:
        """Record the first and the newest sign of an attempt."""
        self._first_ns[attempt] = min(first_ns, self._first_ns.get(attempt, first_ns))
        self._newest_ns[attempt] = max(newest_ns, self._newest_ns.get(attempt, newest_ns))

    def start(self, attempt: int, time_ns: int) -> bool:
        """Record the start of an attempt on rank 0; return True if that changes the seconds of earlier rows."""
        changes = self._origin(attempt) not in (None, time_ns)
        self._started_ns[attempt] = time_ns
        return changes

    def _origin(self, attempt: int) -> int | None:
        """Return the start of an attempt in ns; None without a sign of it."""
        return self._started_ns.get(attempt, self._first_ns.get(attempt))

    def seconds_before(self) -> dict[int, float]:
        """Return the seconds of training before each attempt."""
        seconds, total_s = {}, 0.0
        for attempt, first_ns in sorted((self._first_ns | self._started_ns).items()):
            seconds[attempt] = total_s
            total_s += max(0, self._newest_ns.get(attempt, first_ns) - first_ns) / 1e9
        return seconds

    def seconds_at(self, attempt: int, time_ns: int) -> float:
        """Return the seconds of training until a time of an attempt."""
        origin_ns = self._origin(attempt)
        since_s = 0.0 if origin_ns is None else max(0, time_ns - origin_ns) / 1e9
        return self.seconds_before().get(attempt, 0.0) + since_s

    def seconds_of(self, attempts: Array, times_ns: Array) -> Array:
        """Return the seconds of training until times of attempts."""
        seconds = np.zeros(len(times_ns))
        for attempt, before_s in self.seconds_before().items():
            mask = attempts == attempt
            seconds[mask] = before_s + np.maximum(0, times_ns[mask] - self._origin(attempt)) / 1e9
        return seconds

    def attempts_at(self, seconds: ArrayLike) -> Array:
        """Return the newest attempt at each of these seconds of training."""
        starts = self.seconds_before()
        indices = np.searchsorted([*starts.values()], np.asarray(seconds, np.float64), side="right") - 1
        return np.array([*starts], np.int64)[np.maximum(indices, 0)]

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return max((self.seconds_at(attempt, time_ns) for attempt, time_ns in self._newest_ns.items()), default=0.0)
