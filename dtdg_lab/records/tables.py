"""RunTables: the record tables of one run, live or stored, as columns of bounded size, without replaced rows.

Charts have no state; they read everything here: the newest rows of a table, exact (``rows``); sums of all rows of the
run (``rollup``); events, as records or typed; the progress of the run, and its current settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dtdg_lab.config.record_tables import rows_of
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.records.event_log import E, EventLog, read_event, without_replaced_events
from dtdg_lab.records.events import AttemptStarted, BetweenSteps, Kernel, Preparing, Resumed, SettingsChanged
from dtdg_lab.records.lines import Line, LineSequence, clocks_of, parse_lines
from dtdg_lab.records.position import AttemptClock, Progress, RunPosition
from dtdg_lab.records.rank_files import RankFiles
from dtdg_lab.records.recent_rows import RecentRows
from dtdg_lab.records.rollups import Rollup, Sums
from dtdg_lab.records.rows import Rows

T = TypeVar("T")

RECENT_STEPS = 2_000  # number of newest steps with exact rows


class RunTables:
    """The record tables of one run.

    Rows of the newest ``recent`` steps that all ranks have done are exact; older rows of large tables live in rollups.
    When a run is resumed at step s, rows of earlier attempts from s on are dropped, but for what was spent. A repeated
    line changes nothing. Not locked: callers that add and read in different threads need a lock.

    Args:
        config: the settings with which the run began.
        records: the folder of the ranks' files ``rank<number>.jsonl``; None for lines from another source.
        rollups: all rollups that charts will request.
        recent: number of newest steps whose rows are kept.

    Attributes:
        version: increases with every change.
        clock: seconds of training.
        position: steps and epochs of the ranks.
        recent_rows: rows in memory, and sums.
        sequence: sequence numbers of the lines of each rank.
        event_log: events in memory.
        files: the ranks' files of lines, with the positions read so far.
        damaged: an error for each line that could not be read.
    """

    def __init__(
        self,
        config: RunConfig,
        records: Path | None = None,
        rollups: Iterable[Rollup] = (),
        *,
        recent: int = RECENT_STEPS,
    ) -> None:
        self.started_config, self.recent = config, recent
        self.files = RankFiles(records)
        self._rollups = tuple(rollups)
        self.version = 0
        self.damaged: list[str] = []
        self._cache: dict[Any, tuple[Any, Any]] = {}
        self._forget()

    def _forget(self) -> None:
        self._cache.clear()
        self.files.begin_again()
        self.sequence = LineSequence()
        self.clock, self.position, self.event_log = AttemptClock(), RunPosition(), EventLog()
        self.recent_rows = RecentRows(self._rollups, self.clock, self.position)
        self._unapplied: list[dict[str, Any]] = []  # rank 0's events that change settings, not yet in ``config``
        self._config = self.started_config

    # Reading

    @classmethod
    def open(cls, config: RunConfig, records: Path, rollups: Iterable[Rollup] = (), **options: Any) -> RunTables:
        """Return the tables of a stored run, read to its end.

        Raises:
            DataError: a line is damaged, or a newer version wrote it.
            RunStoreError: a file cannot be read.
        """
        tables = cls(config, records, rollups, **options)
        tables._read_again(strict=True)
        return tables

    def _read_again(self, *, strict: bool = False) -> None:
        """Read all files again from their beginning, after locating the attempts."""
        self._forget()
        self.look_ahead()
        while self.update(strict=strict):
            pass

    def look_ahead(self) -> None:
        """Find the position and time of each attempt in the files, before their lines are added.

        Rows replaced by a resume are then never summed, and the seconds before an attempt are known from the start.
        """
        for span in self.files.spans():
            if span.step is not None:
                self.position.starts.setdefault(span.attempt, {})[span.rank] = span.step
            if span.started_ns is not None:
                self.clock.start(span.attempt, span.started_ns)
            if span.times_ns is not None:
                self.clock.note(span.attempt, *span.times_ns)

    def update(self, *, strict: bool = False) -> bool:
        """Add the next block of the rank furthest behind; return whether there was any.

        Args:
            strict: raise an error at a damaged line; otherwise add it to ``damaged``.

        Raises:
            DataError: a line is damaged.
            RunStoreError: a file cannot be read.
        """
        if cut := self.files.cut():
            self.damaged += [f"{name} became shorter, so it was read again." for name in cut]
            self._read_again(strict=strict)
            return True
        raw_lines = self.files.next_block(self.steps)
        self.add_lines(parse_lines(raw_lines, damaged=None if strict else self.damaged))
        return bool(raw_lines)

    def add_lines(self, lines: Iterable[Line]) -> int:
        """Add record lines, those of a rank in order; return the number of new lines."""
        count, is_replacing = 0, False
        for line in lines:
            if self.sequence.is_new(line):
                is_replacing |= self._add_line(line)
                count += 1
        if count:
            self.version += 1
            self._after_adding(is_replacing=is_replacing)
        return count

    def _add_line(self, line: Line) -> bool:
        """Add one line; return True if it begins an attempt, which may replace rows in the sums."""
        if not line["rows"]:
            return False
        begins_attempt = line["table"] == "steps" and self.position.note_line(line)
        if times_ns := clocks_of(line):
            self.clock.note(line["attempt"], min(times_ns), max(times_ns))
        if line["table"] == "events":
            identity = {"rank": line["rank"], "attempt": line["attempt"]}
            self.add_events({**row, **identity} for row in rows_of(line))
        else:
            self.recent_rows.add_line(line)
        return begins_attempt

    def add_events(self, events: Iterable[dict[str, Any]]) -> None:
        """Add events with their rank and attempt, those of a rank in order of time."""
        for event in self.event_log.add(events):
            if event["rank"] != 0:
                continue
            if event["kind"] in (SettingsChanged.kind, Resumed.kind):
                self._unapplied.append(event)
            elif event["kind"] == AttemptStarted.kind and self.clock.start(event["attempt"], event["time_ns"]):
                self.recent_rows.restart_clock()

    def _after_adding(self, *, is_replacing: bool) -> None:
        """Remove replaced rows from the sums, and drop rows that are no longer recent."""
        starts = self.position.starts
        if is_replacing:
            first_repeated = min(starts[max(starts)].values())
            if not self.recent_rows.holds_after(first_repeated - 1) and self.files.paths():
                self._read_again()  # rows that the new attempt replaced are only in sums
                return
            self.recent_rows.recount()
        # a rank that hangs must not fill the memory
        first = max(self.common_step, self.position.newest_step - 4 * self.recent) - self.recent
        self.recent_rows.drop_before(first, recent=self.recent, whole_step=self.position.common_whole_step(self.ranks))

    # Data for charts

    def once(self, key: Any, make: Callable[[], T], *, state: Any = None) -> T:
        """Return the result of ``make`` for a key, cached until the next change, so that figure and caption share it.

        Args:
            key: key of the result.
            make: returns the result.
            state: everything that the result depends on, if less than the tables; the result is kept while it is equal.
        """
        cached, state = self._cache.get(key), self.version if state is None else state
        if cached is None or cached[0] != state:
            cached = self._cache[key] = (state, make())
        result: T = cached[1]
        return result

    def rows(self, table: str, *, all_attempts: bool = False) -> Rows:
        """Return the newest rows of a table: all where they are few, else those of the newest steps.

        Args:
            table: its name; an empty table has its declared columns.
            all_attempts: keep rows replaced by a resume.
        """
        key = ("rows", table, all_attempts)
        return self.once(key, lambda: self.recent_rows.rows(table, all_attempts=all_attempts))

    def last(self, table: str, count: int) -> Rows:
        """Return the rows of the newest ``count`` steps of each rank."""
        rows = self.rows(table)
        ranks = rows["rank"]  # one may have rows of other tables before its first step
        newest = np.array([self.steps.get(rank, -1) for rank in range(int(ranks.max(initial=-1)) + 1)], np.int64)
        return rows.where(rows["step"] > newest[ranks] - count)

    def rollup(self, rollup: Rollup) -> Rows:
        """Return the sums of all rows of the run.

        Raises:
            KeyError: the rollup was not declared when the tables were made.
        """
        return self.once((rollup, "rows"), lambda: self._sums(rollup).rows())

    def width(self, rollup: Rollup) -> float:
        """Return the width of the buckets of a rollup."""
        return self._sums(rollup).width

    def _sums(self, rollup: Rollup) -> Sums:
        return self.once(
            (rollup, "sums"), lambda: self.recent_rows.sums(rollup, self.position.common_whole_step(self.ranks))
        )

    def events(self, kind: str, *, all_attempts: bool = False) -> list[dict[str, Any]]:
        """Return events of one kind in order of time.

        Each has the columns of their table, ``rank``, ``attempt``, ``seconds``, and ``text``, its data as JSON.

        Args:
            kind: kind of the events.
            all_attempts: keep events replaced by a resume.
        """
        starts = {} if all_attempts else self.position.starts
        make = lambda: without_replaced_events(self.event_log.in_order(kind, self.clock), starts)  # noqa: E731
        return self.once(("events", kind, all_attempts), make)

    def typed(self, kind: type[E]) -> list[tuple[dict[str, Any], E | None]]:
        """Return events of one type with their records; None where a plan ended."""
        make = lambda: [(event, read_event(kind, event["text"])) for event in self.events(kind.kind)]  # noqa: E731
        return self.once(("typed", kind), make)

    def event(self, kind: type[E]) -> E | None:
        """Return the newest event of one type; None where there is none, or the plan ended."""
        events = self.events(kind.kind)
        return read_event(kind, events[-1]["text"]) if events else None

    # Progress of the run

    @property
    def steps(self) -> dict[int, int]:
        """The newest step of each rank."""
        return self.position.steps

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return self.clock.seconds

    @property
    def resumes(self) -> list[tuple[dict[int, int], float]]:
        """For each attempt but the first, the step at which each rank began, and the seconds of training."""
        seconds, starts = self.clock.seconds_before(), self.position.starts
        return [(dict(starts[attempt]), seconds[attempt]) for attempt in sorted(starts)[1:]]

    @property
    def ranks(self) -> int:
        """R."""
        return max(self.config.ranks, max(self.steps, default=-1) + 1)

    @property
    def common_step(self) -> int:
        """The newest step that all ranks have done; -1 without one."""
        return self.position.common_step(self.ranks)

    @property
    def complete_epoch(self) -> int | None:
        """The newest epoch that all ranks have completed; None without one."""
        if any(rank not in self.position.epochs for rank in range(self.ranks)):
            return None
        epoch = min(self.position.epochs.values())
        is_over = any(
            event["data"]["epoch"] >= epoch and event["step"] <= self.common_step + 1
            for event in self.events("epoch")[-2:]
        )
        return epoch if is_over else epoch - 1 if epoch else None

    @property
    def own_steps(self) -> bool:
        """Whether each rank counts its own steps, because models are averaged."""
        return self.config["exchange"] != "gradients"

    @property
    def progress(self) -> Progress:
        """Progress of the run; the remaining time is predicted from the pace so far."""
        return self.position.furthest.progress(self.position.newest_step + 1, self.config.epochs, self.seconds)

    @property
    def preparing(self) -> str:
        """The work before the first step of the newest attempt; empty from then on."""
        prepared = self.event_log.newest(Preparing.kind)
        if not prepared:
            return ""
        begun = self.event_log.newest(Kernel.kind, self.ranks)
        is_over = any(event["time_ns"] >= prepared[0]["time_ns"] for event in begun)
        return "" if is_over else Preparing.read(prepared[0]["data"]).words

    @property
    def between_steps(self) -> str:
        """The work of rank 0 between two steps, if it takes long; empty while it computes a step."""
        newest = self.event_log.newest(BetweenSteps.kind)
        if not newest or newest[0]["attempt"] < max(self.position.starts, default=0):
            return ""
        is_over = newest[0]["step"] <= self.position.steps.get(0, -1)
        return "" if is_over else BetweenSteps.read(newest[0]["data"]).words

    # Settings

    @property
    def config(self) -> RunConfig:
        """The current settings: the initial ones with all applied changes."""
        while self._unapplied:
            event = self._unapplied.pop(0)
            if event["kind"] == Resumed.kind:  # changes made after the checkpoint are undone by resuming from it
                config, changes = self.started_config, event["data"]["settings"]
            else:
                config, changes = self._config, event["data"]["changes"]
            try:
                self._config = config.replace(**changes)
            except LabError as error:  # the rest of the run can be shown
                self.damaged.append(f"Changed settings could not be read: {error}")
        return self._config

    @property
    def system(self) -> str:
        """Name of the current system."""
        return self.config.system
