"""RunTables: the record tables of one run, live or stored, as columns; without what a resume replaced, and bounded.

All that a chart may ask for is here, so that charts have no state: the newest rows of a table, exact (``rows``); sums
of all rows of the run (``rollup``); events, as records or typed; where the run is, and its settings now.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from dtdg_lab.config.record_tables import TABLES, rows_of
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import DataError, LabError
from dtdg_lab.records.events import (
    AttemptStarted,
    ControlReceived,
    Event,
    Kernel,
    Preparing,
    RanksGathered,
    Refused,
    Requested,
    Resumed,
    SettingsChanged,
)
from dtdg_lab.records.rollups import Rollup, Sums
from dtdg_lab.records.rows import Array, Rows, Table, as_column
from dtdg_lab.runs.record_lines import Line, RecordFile, attempt_spans, clocks_of, from_json, parse_line, to_json

T = TypeVar("T")
E = TypeVar("E", bound=Event)

RECENT_STEPS = 2_000  # exact
FEW_ROWS = 4_000  # the newest of a table, which are always kept
EVENTS_OF_A_KIND = 1_000  # the newest; so that the events of many epochs do not push out a plan
ALL_KEPT = tuple(  # of other kinds, the newest
    event.kind for event in (Requested, ControlReceived, Refused, SettingsChanged, Resumed, RanksGathered)
)
UPDATE_BYTES = 1 << 20  # of a rank's lines that are read at once: far fewer steps than a rank may lag behind
WAITING_ROWS = 4_000  # of lines that are turned into columns once a chart asks for their table
IDENTITY = ("rank", "attempt")
CLOCKS = ("time_ns", "end_ns")


# Rows that a resume replaced: the one place that knows of them.


SPENT = {"energy", "memory", "phase_energy"}  # of these a resume replaces nothing: it was spent
BEFORE_STEP = {"evaluations": "split", "events": "kind"}  # made before their step: kept where a resume begins with it
Starts = Mapping[int, Mapping[int, int]]  # attempt -> rank -> first step


def first_replaced(starts: Starts, rank: int, attempt: int) -> float:
    """Return the first step that a later attempt did again; by other ranks where this one did none yet."""
    later = (steps for number, steps in starts.items() if number > attempt and steps)
    return min((steps.get(rank, min(steps.values())) for steps in later), default=math.inf)


def without_replaced(table: str, rows: Rows, starts: Starts) -> Rows:
    """Return the rows of a table that no later attempt has replaced."""
    if len(starts) < 2 or table in SPENT or "step" not in rows or not len(rows):
        return rows
    pairs, place = np.unique(np.stack([rows["rank"], rows["attempt"]]), axis=1, return_inverse=True)
    limit = np.array([first_replaced(starts, *pair) for pair in pairs.T.tolist()])[place.ravel()]
    step = rows["step"]
    kept = ~(step >= limit)  # a row without a step is of none that was made again
    if table in BEFORE_STEP:
        facts = [*zip(rows["rank"].tolist(), step.tolist(), rows[BEFORE_STEP[table]].tolist(), strict=True)]
        attempts = rows["attempt"].tolist()
        newest: dict[Any, int] = {}
        for fact, attempt in zip(facts, attempts, strict=True):
            newest[fact] = max(attempt, newest.get(fact, 0))
        is_newest = [newest[fact] == attempt for fact, attempt in zip(facts, attempts, strict=True)]
        kept |= (step == limit) & np.array(is_newest)
    return rows.where(kept)


# Lines of one table that wait to be turned into columns.


@dataclass(slots=True)
class _Waiting:
    """Lines with the same columns. Each is turned by itself: its small lists stay in the processor's cache."""

    names: tuple[str, ...]
    identity: list[tuple[int, int]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    values: list[list[Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.values = [[] for _ in self.names]

    def add(self, line: Line) -> None:
        self.identity.append((line["rank"], line["attempt"]))
        self.counts.append(len(line["rows"]))
        for column, values in zip(self.values, zip(*line["rows"], strict=True), strict=True):
            column.extend(values)

    def columns(self) -> dict[str, Array]:
        identity = np.repeat(np.array(self.identity, np.int64).reshape(-1, 2), self.counts, axis=0)
        columns = dict(zip(IDENTITY, identity.T, strict=True))
        return columns | {name: as_column(values) for name, values in zip(self.names, self.values, strict=True)}


@dataclass(slots=True)
class _Kept:
    """The sums of rows that are not in memory any more, and those of all rows of whole steps.

    Attributes:
        old: of dropped rows.
        whole: of dropped rows, and of those in memory that are counted.
        counted: mask of the first rows in memory; the others are not counted yet.
    """

    old: Sums
    whole: Sums
    counted: Array = field(default_factory=lambda: np.zeros(0, bool))

    def recount(self) -> None:
        """Begin again with the sums of dropped rows."""
        self.whole, self.counted = self.old.copy(), np.zeros(0, bool)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    Attributes:
        step: steps done.
        epoch: the one it is in, from 1; 0 before the first step.
        epochs: of the run.
        seconds: of training so far.
        seconds_left: at the pace so far; None before the first epoch ends.
    """

    step: int
    epoch: int
    epochs: int
    seconds: float
    seconds_left: float | None


@dataclass(slots=True)
class _Position:
    """Epoch and steps of it done, of the rank that is furthest; and steps of the last whole epoch."""

    epoch: int = -1
    done: int = 0
    steps_per_epoch: int = 0

    def reach(self, epoch: int, done: int) -> None:
        """Ranks that share the steps of an epoch report out of order: the furthest counts."""
        if (epoch, done) <= (self.epoch, self.done):
            return
        if epoch > self.epoch >= 0:
            self.steps_per_epoch = self.done
        self.epoch, self.done = epoch, done


class RunTables:
    """The record tables of one run.

    Rows of the newest ``recent`` steps that all ranks have done are exact; older rows of large tables live in rollups.
    When a run is resumed at step s, rows that earlier attempts wrote from s on are left out, but for what was spent.
    A line that comes twice changes nothing. Not locked: callers that add and read in different threads need a lock.

    Args:
        config: the settings with which the run began.
        records: the folder of the ranks' files ``rank<number>.jsonl``; None for lines that come from elsewhere.
        rollups: all that charts will ask for.
        recent: steps whose rows are kept.

    Attributes:
        version: increases with every change.
        steps: rank -> newest step.
        epochs: rank -> newest epoch.
        missing: lines that never arrived, by their sequence numbers; the files on disk have them.
        damaged: lines that could not be read, in words.
    """

    def __init__(
        self,
        config: RunConfig,
        records: Path | None = None,
        rollups: Iterable[Rollup] = (),
        *,
        recent: int = RECENT_STEPS,
    ) -> None:
        self.started_config, self.records, self.recent = config, records, recent
        self._rollups = tuple(rollups)
        self.version = 0
        self.damaged: list[str] = []
        self._cache: dict[Any, tuple[Any, Any]] = {}
        self._forget()

    def _forget(self) -> None:
        self._cache.clear()
        self._files: dict[int, RecordFile] = {}
        self._newest_seq: dict[int, int] = {}
        self._waiting: dict[str, dict[tuple[str, ...], _Waiting]] = {}
        self._tables: dict[str, Table] = {}
        self._events: dict[str, list[dict[str, Any]]] = {}
        self._kept = {rollup: _Kept(Sums(rollup), Sums(rollup)) for rollup in self._rollups}
        self._dropped_step = -1
        self._starts: dict[int, dict[int, int]] = {}
        self._started_ns: dict[int, int] = {}  # attempt -> when rank 0 began it
        self._first_ns: dict[int, int] = {}  # attempt -> the first sign of it
        self._newest_ns: dict[int, int] = {}
        self._attempt, self._attempt_epoch = 0, 0  # the newest with steps so far, and where it began
        self.steps: dict[int, int] = {}
        self._whole_steps: dict[int, int] = {}  # rank -> newest step whose rows are all here
        self.epochs: dict[int, int] = {}
        self.missing = 0
        self._position = _Position()
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
        """Read all files from their beginning, knowing where attempts begin."""
        self._forget()
        self.look_ahead()
        while self.update(strict=strict):
            pass

    def look_ahead(self) -> None:
        """Find in the files where and when attempts begin and end, before their lines are added.

        What a resume replaced is then never summed, and the seconds before an attempt are known from its first row on.
        """
        for path in self._paths().values():
            for span in attempt_spans(path):
                if span.step is not None:
                    self._starts.setdefault(span.attempt, {})[span.rank] = span.step
                if span.started_ns is not None:
                    self._started_ns[span.attempt] = span.started_ns
                if span.times_ns is not None:
                    self._note_times(span.attempt, *span.times_ns)

    # Reading columns of a stored run: first all attempts, then events, then each table's old rows and recent ones.

    def note_attempts(self, steps: Rows, clocks: Iterable[Rows]) -> None:
        """Note where attempts begin and how far ranks are.

        Args:
            steps: of all attempts.
            clocks: rows with ``attempt`` and ``time_ns``, from the first sign of an attempt to the last.
        """
        for attempt, of_attempt in steps.by("attempt").items():
            self._begin_steps(attempt, int(of_attempt["step"].min()), int(of_attempt["epoch"].min()))
            for rank, rows in of_attempt.by("rank").items():
                self._starts.setdefault(attempt, {})[rank] = int(rows["step"].min())
                self.steps[rank], self.epochs[rank] = int(rows["step"].max()), int(rows["epoch"].max())
            iteration = of_attempt["iteration"] if "iteration" in of_attempt else np.zeros(len(of_attempt))
            last = np.lexsort([iteration, of_attempt["epoch"]])
            epochs, done = of_attempt["epoch"][last], np.nan_to_num(iteration[last]).astype(np.int64) + 1
            ends = np.flatnonzero(np.append(np.diff(epochs), 1))
            for epoch, count in zip(epochs[ends].tolist(), done[ends].tolist(), strict=True):
                self._position.reach(epoch, count)
        self._whole_steps = dict(self.steps)
        for rows in clocks:
            for attempt, of_attempt in rows.by("attempt").items():
                self._note_times(attempt, int(of_attempt["time_ns"].min()), int(of_attempt["time_ns"].max()))

    def follow_after(self, read_bytes: Mapping[int, int]) -> None:
        """Let :meth:`update` begin after so many bytes of each rank's lines, whose rows were added as columns."""
        paths = self._paths()
        self._files = {rank: RecordFile(paths[rank], size) for rank, size in read_bytes.items() if rank in paths}

    def rollups_of(self, name: str) -> list[Rollup]:
        """Return the sums of a table that were declared."""
        return [rollup for rollup in self._rollups if rollup.table == name]

    def add_old(self, rollup: Rollup, rows: Rows) -> None:
        """Add rows to sums alone, all rows of a step together; before the table's recent rows."""
        kept = self._kept[rollup]
        kept.old.add(self._counting(rollup, rows))
        kept.recount()
        if "step" in rows:
            self._dropped_step = max(self._dropped_step, int(np.fmax.reduce(rows["step"], initial=-1)))

    def add_recent(self, name: str, columns: dict[str, Array], *, dropped: int) -> None:
        """Add the newest rows of a table, after ``dropped`` that are in sums alone."""
        if len(columns["rank"]):
            table = self._tables.setdefault(name, Table())
            table.append(self.completed(name, columns))
            table.dropped = dropped
        self.version += 1

    def _paths(self) -> dict[int, Path]:
        """Return the file of each rank."""
        paths = [] if self.records is None else sorted(self.records.glob("rank*.jsonl"))
        return {int(path.stem[4:]): path for path in paths if path.stem[4:].isdigit()}

    def update(self, *, strict: bool = False) -> bool:
        """Add the next block that the rank behind the others has written; return whether there was any.

        Args:
            strict: raise an error at a damaged line; else it is noted in ``damaged``.

        Raises:
            DataError: a line is damaged.
            RunStoreError: a file cannot be read.
        """
        for rank, path in self._paths().items():
            self._files.setdefault(rank, RecordFile(path))
        cut = [file.path.name for file in self._files.values() if file.is_cut()]
        if cut:
            self.damaged += [f"{name} became shorter, so it was read again." for name in cut]
            self._read_again(strict=strict)
            return True
        for rank in sorted(self._files, key=lambda rank: self.steps.get(rank, -1)):  # steps need the rows of all ranks
            if raw_lines := self._files[rank].read(UPDATE_BYTES):
                self.add_lines(self._parsed(raw_lines, strict=strict))
                return True
        return False

    def _parsed(self, raw_lines: Iterable[tuple[bytes, str]], *, strict: bool) -> Iterator[Line]:
        for raw, place in raw_lines:
            try:
                yield parse_line(raw, place)
            except DataError as error:
                if strict:
                    raise
                self.damaged.append(str(error))

    def add_lines(self, lines: Iterable[Line]) -> int:
        """Add record lines of any ranks, those of a rank in order; return how many were new."""
        count, begins_again = 0, False
        for line in lines:
            if self._is_new(line):
                begins_again |= self._add_line(line)
                count += 1
        if count:
            self.version += 1
            self._drop_old(begins_again)
        return count

    def _is_new(self, line: Line) -> bool:
        rank, seq = line["rank"], line.get("seq")
        if seq is None:
            return True
        newest = self._newest_seq.get(rank, seq - 1)
        if seq <= newest:
            return False
        self.missing += seq - newest - 1
        self._newest_seq[rank] = seq
        return True

    def _add_line(self, line: Line) -> bool:
        """Add one line; return whether it begins an attempt, so that sums may be of rows that count no more."""
        table, names, rows = line["table"], tuple(line["columns"]), line["rows"]
        if not rows:
            return False
        begins_again = table == "steps" and self._note_steps(line)
        if times_ns := clocks_of(line):
            self._note_times(line["attempt"], min(times_ns), max(times_ns))
        if table == "events":
            self._add_events(line)
        else:
            of_table = self._waiting.setdefault(table, {})
            (of_table.get(names) or of_table.setdefault(names, _Waiting(names))).add(line)
        return begins_again

    def _note_steps(self, line: Line) -> bool:
        rank, attempt, columns = line["rank"], line["attempt"], line["columns"]
        step, epoch = columns.index("step"), columns.index("epoch")
        first, newest = line["rows"][0][step], line["rows"][-1]
        starts = self._starts.setdefault(attempt, {})
        begins = first < starts.get(rank, math.inf)
        if begins:
            starts[rank] = first
        if attempt > self._attempt:
            self._begin_steps(attempt, first, line["rows"][0][epoch])
        if attempt == self._attempt:
            self._whole_steps[rank] = self.steps.get(rank, -1)  # other tables have lines after that of the steps
            self.steps[rank], self.epochs[rank] = newest[step], newest[epoch]
            iteration = columns.index("iteration") if "iteration" in columns else None
            for row in line["rows"]:
                self._position.reach(row[epoch], 1 if iteration is None else (row[iteration] or 0) + 1)
        else:  # comes late: a rank may have made none of the newest attempt
            kept_until = min(newest[step], first_replaced(self._starts, rank, attempt) - 1)
            if kept_until > self.steps.get(rank, -1):
                self.steps[rank], self.epochs[rank] = int(kept_until), min(newest[epoch], self._attempt_epoch)
        return begins and attempt > min(self._starts)

    def _begin_steps(self, attempt: int, first: int, epoch: int) -> None:
        """Let no rank be further than where the first steps of an attempt begin."""
        self._attempt, self._attempt_epoch = attempt, epoch
        self._position = _Position(steps_per_epoch=self._position.steps_per_epoch)
        self.steps = {rank: min(step, first - 1) for rank, step in self.steps.items()}
        self._whole_steps = {rank: min(step, first - 1) for rank, step in self._whole_steps.items()}
        self.epochs = {rank: min(newest, epoch) for rank, newest in self.epochs.items()}

    def _add_events(self, line: Line) -> None:
        identity = {"rank": line["rank"], "attempt": line["attempt"]}
        self.add_events({**row, **identity} for row in rows_of(line))

    def add_events(self, events: Iterable[dict[str, Any]]) -> None:
        """Add events with their rank and attempt, those of a rank in order of time."""
        for event in events:
            rank, attempt = event["rank"], event["attempt"]
            event["text"] = to_json(event["data"])
            event["data"] = _parsed_once(event["text"])  # equal data are one object
            if event["kind"] == AttemptStarted.kind and rank == 0:
                self._begin(attempt, event["time_ns"])
            if event["kind"] in (SettingsChanged.kind, Resumed.kind) and rank == 0:
                self._unapplied.append(event)
            of_kind = self._events.setdefault(event["kind"], [])
            of_kind.append(event)
            if len(of_kind) > 2 * EVENTS_OF_A_KIND and event["kind"] not in ALL_KEPT:
                del of_kind[:EVENTS_OF_A_KIND]

    def _begin(self, attempt: int, time_ns: int) -> None:
        """Note when rank 0 began an attempt, perhaps after other rows of it were added."""
        differs = self._origin(attempt) not in (None, time_ns)
        self._started_ns[attempt] = time_ns
        for table in self._tables.values() if differs else ():
            if "seconds" in table.rows():
                table.replace("seconds", self._seconds(table.rows()))

    def _table(self, name: str) -> Table | None:
        """Return all rows of a table that are in memory."""
        for waiting in self._waiting.pop(name, {}).values():
            self._tables.setdefault(name, Table()).append(self.completed(name, waiting.columns()))
        return self._tables.get(name)

    def completed(self, name: str, columns: dict[str, Array]) -> dict[str, Array]:
        """Return columns of a table with those that its lines lack, and the seconds of training where there is a clock.

        Args:
            name: of the table.
            columns: as recorded, perhaps by an older version.
        """
        rows = Rows.of(columns)
        lacking = (column for column in TABLES.get(name, ()) if column not in rows)
        unknown = {column: np.full(len(rows), np.nan) for column in lacking}
        has_clock = any(clock in rows for clock in CLOCKS)
        seconds = {"seconds": self._seconds(rows)} if has_clock else {}
        return {**columns, **unknown, **seconds}

    def _drop_old(self, begins_again: bool) -> None:
        """Drop rows that are not recent any more, once they are half as many as those that are kept."""
        if begins_again:
            if min(self._starts[max(self._starts)].values()) <= self._dropped_step and self._paths():
                self._read_again()  # rows that the new attempt replaced are in sums alone
                return
            for kept in self._kept.values():
                kept.recount()
        for name, waiting in [*self._waiting.items()]:
            if sum(sum(lines.counts) for lines in waiting.values()) > WAITING_ROWS:
                self._table(name)
        newest = max(self.steps.values(), default=-1)
        # a rank that hangs must not fill the memory
        first = max(self.common_step, newest - 4 * self.recent) - self.recent
        for name, table in [*self._tables.items()]:
            if table.size > 1.5 * FEW_ROWS:
                self._drop_before(first, name)

    def _drop_before(self, first: int, name: str) -> None:
        table = self._table(name)
        if table is None:
            return
        rows, gone = table.rows(), np.arange(table.size) < table.size - FEW_ROWS
        if "step" in rows:
            step = rows["step"]
            if first - step[0] < self.recent // 2:
                return
            gone &= ~(step > first)  # rows without a step are dropped by their age alone
            self._dropped_step = max(self._dropped_step, int(np.fmax.reduce(step[gone], initial=-1)))
        for rollup in self.rollups_of(name):
            kept = self._kept[rollup]
            self._fold(rollup, max(first, self._whole_step))
            kept.old.add(self._counting(rollup, rows.where(gone)))
            kept.counted = kept.counted[~gone]
        table.drop(gone)

    def keeps_rows_after(self, step: int) -> bool:
        """Return whether all rows after a step are in memory, so that a resume from there can replace them."""
        return self._dropped_step <= step

    # Sums

    def _counting(self, rollup: Rollup, rows: Rows) -> Rows:
        return rows if rollup.all_attempts else without_replaced(rollup.table, rows, self._starts)

    def rollup(self, rollup: Rollup) -> Rows:
        """Return the sums of all rows of the run.

        Raises:
            KeyError: it was not declared when the tables were made.
        """
        return self.once((rollup, "rows"), lambda: self._sums(rollup).rows())

    def width(self, rollup: Rollup) -> float:
        """Return the width of the buckets of a rollup."""
        return self._sums(rollup).width

    def _sums(self, rollup: Rollup) -> Sums:
        """Return the sums of steps that all ranks have done, and of what there is of the steps after those."""

        def add_rest() -> Sums:
            rest, whole = self._fold(rollup, self._whole_step), self._kept[rollup].whole
            if rest is None or not len(rest):
                return whole
            sums = whole.copy()
            sums.add(rest)
            return sums

        return self.once((rollup, "sums"), add_rest)

    def _fold(self, rollup: Rollup, until: int) -> Rows | None:
        """Add rows of steps up to ``until`` to the sums, also those that came late; return the rows of later steps."""
        kept, table = self._kept[rollup], self._table(rollup.table)
        if table is None:
            return None
        rows = table.rows()
        waits = np.ones(table.size, bool)
        waits[: len(kept.counted)] = ~kept.counted
        is_by_step = rollup.table not in SPENT and "step" in rows  # else each row for itself
        added = waits & ~(rows["step"] > until) if is_by_step else waits
        kept.whole.add(self._counting(rollup, rows.where(added)))
        kept.counted = ~waits | added
        return self._counting(rollup, rows.where(~kept.counted))

    # Seconds of training: the time between two attempts does not count.

    def _note_times(self, attempt: int, first_ns: int, newest_ns: int) -> None:
        self._first_ns[attempt] = min(first_ns, self._first_ns.get(attempt, first_ns))
        self._newest_ns[attempt] = max(newest_ns, self._newest_ns.get(attempt, newest_ns))

    def _origin(self, attempt: int) -> int | None:
        """Return when an attempt began, in ns; None before there is a sign of it."""
        return self._started_ns.get(attempt, self._first_ns.get(attempt))

    def _seconds_before(self) -> dict[int, float]:
        """Return the seconds of training before each attempt."""
        before, total_s = {}, 0.0
        for attempt, first_ns in sorted((self._first_ns | self._started_ns).items()):
            before[attempt] = total_s
            total_s += max(0, self._newest_ns.get(attempt, first_ns) - first_ns) / 1e9
        return before

    def seconds_at(self, attempt: int, time_ns: int) -> float:
        """Return the seconds of training until an instant of an attempt."""
        origin_ns = self._origin(attempt)
        since_s = 0.0 if origin_ns is None else max(0, time_ns - origin_ns) / 1e9
        return self._seconds_before().get(attempt, 0.0) + since_s

    def _seconds(self, rows: Rows) -> Array:
        return self.seconds_of(rows["attempt"], next(rows[name] for name in CLOCKS if name in rows))

    def seconds_of(self, attempts: Array, clock: Array) -> Array:
        """Return the seconds of training until instants, in ns, of attempts."""
        seconds = np.zeros(len(clock))
        for attempt, before_s in self._seconds_before().items():
            chosen = attempts == attempt
            seconds[chosen] = before_s + np.maximum(0, clock[chosen] - self._origin(attempt)) / 1e9
        return seconds

    def attempts_at(self, seconds: ArrayLike) -> Array:
        """Return the attempt that had begun by each of these seconds of training."""
        begins = self._seconds_before()
        places = np.searchsorted([*begins.values()], np.asarray(seconds, np.float64), side="right") - 1
        return np.array([*begins], np.int64)[np.maximum(places, 0)]

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return max((self.seconds_at(attempt, last) for attempt, last in self._newest_ns.items()), default=0.0)

    # What charts ask for

    def once(self, key: Any, make: Callable[[], T], *, state: Any = None) -> T:
        """Return what ``make`` returned for this key since the last change, so that figure and caption share it.

        Args:
            key: of the result.
            make: returns the result.
            state: all that the result depends on, if that is less than the tables: it is kept while this is equal.
        """
        cached, state = self._cache.get(key), self.version if state is None else state
        if cached is None or cached[0] != state:
            cached = self._cache[key] = (state, make())
        result: T = cached[1]
        return result

    @property
    def names(self) -> list[str]:
        """Names of the tables with rows."""
        return sorted({*self._tables, *self._waiting})

    def rows(self, table: str, *, all_attempts: bool = False) -> Rows:
        """Return the newest rows of a table: all of them where they are few, else those of the newest steps.

        Args:
            table: its name; one without rows has its declared columns.
            all_attempts: keep the rows that a resume replaced.
        """
        return self.once(("rows", table, all_attempts), lambda: self._rows(table, all_attempts))

    def _rows(self, name: str, all_attempts: bool) -> Rows:
        table = self._table(name)
        if table is None:
            columns = {column: np.empty(0) for column in TABLES.get(name, ())}
            columns |= dict.fromkeys((*IDENTITY, "step", "epoch"), np.empty(0, np.int64))
            return Rows.of({**columns, "seconds": np.empty(0)})
        return table.rows() if all_attempts else without_replaced(name, table.rows(), self._starts)

    def last(self, table: str, steps: int) -> Rows:
        """Return the rows of the newest steps of each rank."""
        rows = self.rows(table)
        ranks = rows["rank"]  # one may have rows of other tables before its first step
        newest = np.array([self.steps.get(rank, -1) for rank in range(int(ranks.max(initial=-1)) + 1)], np.int64)
        return rows.where(rows["step"] > newest[ranks] - steps)

    def events(self, kind: str, *, all_attempts: bool = False) -> list[dict[str, Any]]:
        """Return events of one kind in order of time.

        Each has the columns of their table, ``rank``, ``attempt``, ``seconds``, and ``text``, its data as JSON.

        Args:
            kind: of the events.
            all_attempts: keep those that a resume replaced.
        """
        return self.once(("events", kind, all_attempts), lambda: self._events_of(kind, all_attempts))

    def _events_of(self, kind: str, all_attempts: bool) -> list[dict[str, Any]]:
        before_s = self._seconds_before()
        events = sorted(self._events.get(kind, ()), key=itemgetter("time_ns"))
        for event in events:
            since_s = max(0, event["time_ns"] - (self._origin(event["attempt"]) or event["time_ns"])) / 1e9
            event["seconds"] = before_s.get(event["attempt"], 0.0) + since_s
        if all_attempts or len(self._starts) < 2:
            return events
        newest = {(event["rank"], event["step"]): event["attempt"] for event in events}

        def is_kept(event: dict[str, Any]) -> bool:
            limit, step = first_replaced(self._starts, event["rank"], event["attempt"]), event["step"] or 0
            return step < limit or (step == limit and newest[event["rank"], event["step"]] == event["attempt"])

        return [event for event in events if is_kept(event)]

    def count(self, *kinds: str) -> int:
        """Return the number of events of some kinds that are in memory."""
        return sum(len(self._events.get(kind, ())) for kind in kinds)

    def typed(self, kind: type[E]) -> list[tuple[dict[str, Any], E | None]]:
        """Return events of one type with their records; None where a plan ended."""
        return self.once(
            ("typed", kind),
            lambda: [(event, self._read(kind, event["text"])) for event in self.events(kind.kind)],
        )

    def event(self, kind: type[E]) -> E | None:
        """Return the newest event of one type; None where there is none, or the plan ended."""
        events = self.events(kind.kind)
        event: E | None = self._read(kind, events[-1]["text"]) if events else None
        return event

    def _read(self, kind: Any, text: bytes) -> Any:
        """Return the event of recorded data; of equal texts one object."""
        return _read_once(kind, text)

    # Where the run is

    @property
    def resumes(self) -> list[tuple[dict[int, int], float]]:
        """Of each attempt but the first, the step at which each rank began, and the second of training."""
        before_s = self._seconds_before()
        return [(dict(self._starts[attempt]), before_s[attempt]) for attempt in sorted(self._starts)[1:]]

    @property
    def ranks(self) -> int:
        """R."""
        return max(self.config.ranks, max(self.steps, default=-1) + 1)

    @property
    def common_step(self) -> int:
        """The newest step that all ranks have done; -1 before there is one."""
        return min((self.steps.get(rank, -1) for rank in range(self.ranks)), default=-1)

    @property
    def _whole_step(self) -> int:
        """The newest step whose rows of all ranks are all here; -1 before there is one."""
        return min((self._whole_steps.get(rank, -1) for rank in range(self.ranks)), default=-1)

    @property
    def complete_epoch(self) -> int | None:
        """The newest epoch that all ranks have completed; None before there is one."""
        if any(rank not in self.epochs for rank in range(self.ranks)):
            return None
        begun = min(self.epochs.values())
        is_over = any(
            event["data"]["epoch"] >= begun and event["step"] <= self.common_step + 1
            for event in self.events("epoch")[-2:]
        )
        return begun if is_over else begun - 1 if begun else None

    @property
    def own_steps(self) -> bool:
        """Whether each rank counts steps of its own, since models are averaged."""
        return self.config["exchange"] != "gradients"

    @property
    def progress(self) -> Progress:
        """How far the run is; seconds left follow from the pace so far."""
        position, epochs, seconds = self._position, self.config.epochs, self.seconds
        if position.epoch < 0:
            return Progress(max(self.steps.values(), default=-1) + 1, 0, epochs, seconds, None)
        step, epoch = max(self.steps.values()) + 1, position.epoch + 1
        if not position.steps_per_epoch:
            return Progress(step, epoch, epochs, seconds, None)
        share = min(1.0, (position.epoch + min(1.0, position.done / position.steps_per_epoch)) / epochs)
        return Progress(step, epoch, epochs, seconds, seconds * (1 - share) / share)

    @property
    def preparing(self) -> str:
        """What the run does before the first step of its newest attempt; empty from then on."""
        prepared = self._events.get(Preparing.kind, [])
        if not prepared:
            return ""
        newest, begun = prepared[-1], self._events.get(Kernel.kind, [])
        is_over = any(event["time_ns"] >= newest["time_ns"] for event in begun[-self.ranks :])
        return "" if is_over else Preparing.read(newest["data"]).words

    # Settings

    @property
    def config(self) -> RunConfig:
        """The settings now: those of the start with all changes that were applied."""
        while self._unapplied:
            event = self._unapplied.pop(0)
            resumes = event["kind"] == Resumed.kind  # changes made after the checkpoint are undone by resuming from it
            before, changes = self._config, event["data"]["changes"]
            if resumes:
                before, changes = self.started_config, event["data"]["settings"]
            try:
                self._config = before.replace(**changes)
            except LabError as error:  # the rest of the run can be shown
                self.damaged.append(f"Changed settings could not be read: {error}")
        return self._config

    def setting(self, name: str) -> Any:
        """Return the value of a setting now."""
        return self.config[name]

    @property
    def system(self) -> str:
        """Name of the system now."""
        return self.config.system

    @property
    def bytes(self) -> int:
        """Memory of the columns, without the texts and lists in them."""
        return sum(table.bytes for table in self._tables.values())


@lru_cache(maxsize=4096)
def _parsed_once(text: bytes) -> Any:
    return from_json(text)


@lru_cache(maxsize=256)
def _read_once(kind: Any, text: bytes) -> Any:
    return kind.read_plan(_parsed_once(text))
