"""The newest rows of each record table as columns, and sums over all rows of the run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from dtdg_lab.config.record_tables import TABLES
from dtdg_lab.records.lines import IDENTITY, Line, LineColumns, Shape, add_to_shape
from dtdg_lab.records.position import AttemptClock, RunPosition
from dtdg_lab.records.replaced_rows import SPENT, without_replaced
from dtdg_lab.records.rollups import Rollup, Sums
from dtdg_lab.records.rows import Array, Rows, Table, as_column

FEW_ROWS = 4_000  # minimum number of newest rows kept per table
PENDING_ROWS = 4_000  # number of pending rows above which lines are converted to columns
CLOCKS = ("time_ns", "end_ns")


@dataclass(slots=True)
class _RunSums:
    """Sums over dropped rows, and over all rows of complete steps.

    Attributes:
        dropped: sums of dropped rows.
        total: of dropped rows, and of those in memory that are counted.
        counted: mask of the first rows in memory; later rows are not counted yet.
    """

    dropped: Sums
    total: Sums
    counted: Array = field(default_factory=lambda: np.zeros(0, bool))

    def recount(self) -> None:
        """Start again from the sums of dropped rows."""
        self.total, self.counted = self.dropped.copy(), np.zeros(0, bool)


class RecentRows:
    """Rows of the newest steps, and sums that include dropped rows.

    Args:
        rollups: all rollups that charts will request.
        clock: clock of the run.
        position: position of the run.

    Attributes:
        dropped_step: the newest step of a dropped row; -1 without one.
    """

    def __init__(self, rollups: Iterable[Rollup], clock: AttemptClock, position: RunPosition) -> None:
        self._clock, self._position = clock, position
        self._pending: dict[str, dict[Shape, LineColumns]] = {}
        self._tables: dict[str, Table] = {}
        self._sums = {rollup: _RunSums(Sums(rollup), Sums(rollup)) for rollup in rollups}
        self.dropped_step = -1

    def add_line(self, line: Line) -> None:
        """Add the rows of a line; they are converted to columns when their table is requested."""
        add_to_shape(self._pending.setdefault(line["table"], {}), line)

    def add_columns(self, name: str, columns: dict[str, Array]) -> None:
        """Add the newest rows of a table as columns."""
        if len(columns["rank"]):
            self._tables.setdefault(name, Table()).append(self.completed(name, columns))

    def add_dropped(self, rollup: Rollup, rows: Rows) -> None:
        """Add rows only to sums, all rows of a step together; call it before adding the table's recent rows."""
        sums = self._sums[rollup]
        sums.dropped.add(self._valid(rollup, rows))
        sums.recount()
        if "step" in rows:
            self.dropped_step = max(self.dropped_step, int(np.fmax.reduce(rows["step"], initial=-1)))

    def rollups_of(self, name: str) -> list[Rollup]:
        """Return the declared rollups of a table."""
        return [rollup for rollup in self._sums if rollup.table == name]

    def table(self, name: str) -> Table | None:
        """Return all rows of a table in memory."""
        for columns in self._pending.pop(name, {}).values():
            arrays = {column: as_column(values) for column, values in columns.values.items()}
            self._tables.setdefault(name, Table()).append(self.completed(name, arrays))
        return self._tables.get(name)

    def rows(self, name: str, *, all_attempts: bool) -> Rows:
        """Return the rows of a table in memory; an empty table has its declared columns."""
        table = self.table(name)
        if table is None:
            columns = {column: np.empty(0) for column in TABLES.get(name, ())}
            columns |= dict.fromkeys((*IDENTITY, "step", "epoch"), np.empty(0, np.int64))
            return Rows.of({**columns, "seconds": np.empty(0)})
        return table.rows() if all_attempts else without_replaced(name, table.rows(), self._position.starts)

    def completed(self, name: str, columns: dict[str, Array]) -> dict[str, Array]:
        """Return columns of a table, with missing ones, and with the seconds of training if it has a clock.

        Args:
            name: name of the table.
            columns: as recorded, perhaps by an older version.
        """
        rows = Rows.of(columns)
        missing = {column: np.full(len(rows), np.nan) for column in TABLES.get(name, ()) if column not in rows}
        has_clock = any(clock in rows for clock in CLOCKS)
        return {**columns, **missing, **({"seconds": self._seconds(rows)} if has_clock else {})}

    def _seconds(self, rows: Rows) -> Array:
        return self._clock.seconds_of(rows["attempt"], next(rows[name] for name in CLOCKS if name in rows))

    def holds_after(self, step: int) -> bool:
        """Return whether all rows after a step are in memory, so that a resume from there can replace them."""
        return self.dropped_step <= step

    def restart_clock(self) -> None:
        """Compute the seconds of rows again, after an attempt's start has changed."""
        for table in self._tables.values():
            if "seconds" in table.rows():
                table.replace("seconds", self._seconds(table.rows()))

    def recount(self) -> None:
        """Sum the rows in memory again, after an attempt has replaced some."""
        for sums in self._sums.values():
            sums.recount()

    def drop_before(self, first: int, *, recent: int, whole_step: int) -> None:
        """Drop rows that are no longer recent, once they are half as many as the kept ones.

        Args:
            first: oldest step whose rows are kept.
            recent: number of steps whose rows are kept.
            whole_step: newest step whose rows are complete.
        """
        for name, shapes in [*self._pending.items()]:
            if sum(map(len, shapes.values())) > PENDING_ROWS:
                self.table(name)
        for name in [name for name, table in self._tables.items() if table.size > 1.5 * FEW_ROWS]:
            table = self.table(name)
            assert table is not None
            rows, is_old = table.rows(), np.arange(table.size) < table.size - FEW_ROWS
            if "step" in rows:
                step = rows["step"]
                if first - step[0] < recent // 2:
                    continue
                is_old &= ~(step > first)  # rows without a step are dropped by age
                self.dropped_step = max(self.dropped_step, int(np.fmax.reduce(step[is_old], initial=-1)))
            for rollup in self.rollups_of(name):
                sums = self._sums[rollup]
                self._fold(rollup, max(first, whole_step))
                sums.dropped.add(self._valid(rollup, rows.where(is_old)))
                sums.counted = sums.counted[~is_old]
            table.drop(is_old)

    def sums(self, rollup: Rollup, whole_step: int) -> Sums:
        """Return the sums of steps that all ranks have done, plus the available rows of later steps.

        Raises:
            KeyError: the rollup was not declared.
        """
        later_rows, total = self._fold(rollup, whole_step), self._sums[rollup].total
        if later_rows is None or not len(later_rows):
            return total
        sums = total.copy()
        sums.add(later_rows)
        return sums

    def _fold(self, rollup: Rollup, until: int) -> Rows | None:
        """Add rows of steps up to ``until`` to the sums, including late ones; return the rows of later steps."""
        sums, table = self._sums[rollup], self.table(rollup.table)
        if table is None:
            return None
        rows = table.rows()
        uncounted = np.ones(table.size, bool)
        uncounted[: len(sums.counted)] = ~sums.counted
        is_by_step = rollup.table not in SPENT and "step" in rows  # otherwise each row counts by itself
        added = uncounted & ~(rows["step"] > until) if is_by_step else uncounted
        sums.total.add(self._valid(rollup, rows.where(added)))
        sums.counted = ~uncounted | added
        return self._valid(rollup, rows.where(~sums.counted))

    def _valid(self, rollup: Rollup, rows: Rows) -> Rows:
        return rows if rollup.all_attempts else without_replaced(rollup.table, rows, self._position.starts)
