"""The record tables of one run as pandas data frames, complete and exact."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.config.record_tables import TABLES, rows_of
from dtdg_lab.core.errors import DataError
from dtdg_lab.records.lines import RecordFile, read_lines
from dtdg_lab.records.replaced_rows import BEFORE_STEP, Starts, valid_mask
from dtdg_lab.runs import parquet
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.json_files import RESTORE, reading

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_NUMBERS = {"rank", "attempt", "step", "epoch", "time_ns", "start_ns", "end_ns"}


class RunFrames:
    """The record tables of a stored or active run, read from Parquet if that is current, otherwise from lines.

    Args:
        run: folder of the run.

    Raises:
        RunStoreError: the folder has no run.
    """

    def __init__(self, run: str | Path | RunDirectory) -> None:
        self.run = run if isinstance(run, RunDirectory) else RunDirectory.open(run)

    def frames(self, only: Collection[str] = (), *, all_attempts: bool = False) -> dict[str, pd.DataFrame]:
        """Return all record tables, each with the columns ``rank`` and ``attempt`` first, ordered by rank.

        Columns and tables unknown to this version are kept. A table without rows has its columns. Rows with equal data
        share one object: copy it before you change it.

        A resumed run repeats the steps after its checkpoint. By default the replaced rows are left out: for each rank,
        rows of an attempt from the first step of a later attempt on. Rows without a step (energy) were really spent and
        stay. An evaluation or event at exactly that step stays unless the later attempt repeats it.

        Args:
            only: names of tables; all if empty.
            all_attempts: True to keep the replaced rows.

        Raises:
            DataError: a record line is damaged, or a newer version wrote it.
            RunStoreError: the files cannot be read.
        """
        selection = {*only, "steps"} if only else None  # steps show where attempts begin
        with reading(self.run.records):
            frames: dict[str, pd.DataFrame] = {}
            notes = self._notes()
            for names in _portions(notes, selection):
                frames |= {name: to_frame(table) for name, table in self.tables(names).items()}
            if self._notes() != notes:  # a resumed run began to write: read again, so that tables belong to one moment
                frames = {name: to_frame(table) for name, table in self.tables(selection).items()}
            for name in TABLES.keys() - frames.keys():
                if selection is None or name in selection:
                    frames[name] = _without_rows(name)
            for name, frame in frames.items():
                self._check_numbers(name, frame)
            return frames if all_attempts else without_replaced(frames)

    def _notes(self) -> list[parquet.Note | None]:
        return [parquet.current_note(self.run, rank) for rank in parquet.ranks_of(self.run)]

    def frame(self, name: str, columns: Collection[str] = ()) -> pd.DataFrame:
        """Return columns of a record table, of all attempts; all columns where none are named.

        Raises:
            DataError: a record line is damaged, or a newer version wrote it.
            RunStoreError: the files cannot be read.
        """
        import pyarrow as pa

        with reading(self.run.records):
            table = self.tables({name}, columns).get(name)
            if table is None:
                return _without_rows(name)
            frame = to_frame(table)
            del table
            pa.default_memory_pool().release_unused()
            self._check_numbers(name, frame)
            return frame

    def tables(self, names: Collection[str] | None = None, columns: Collection[str] = ()) -> dict[str, pa.Table]:
        """Return Arrow tables of all ranks and attempts, in order of ranks.

        Args:
            names: of the tables; None for all.
            columns: those of them that are read, as far as there are any; all where empty.
        """
        tables = (parquet.read_tables(self.run, rank, names, columns).items() for rank in parquet.ranks_of(self.run))
        return dict(sorted(parquet.joined_by_name(chain.from_iterable(tables)).items()))

    def numbered(self) -> dict[str, pa.Table]:
        """Return Arrow tables with the line number of each row, in the column ``parquet.LINE_NUMBER``.

        Raises:
            DataError: a record line is damaged.
        """
        paths = self.run.record_files().values()
        blocks = chain.from_iterable(parquet.read_blocks(RecordFile(path), numbered=True) for path in paths)
        return dict(sorted(parquet.joined_by_name(blocks).items()))

    def events(self, *, without: Collection[str] = (), limit: int | None = None) -> list[dict[str, Any]]:
        """Return all events of all attempts in order of time: rank, attempt, step, epoch, time_ns, kind, data.

        Events with equal data share one object: copy it before you change it.

        Args:
            without: kinds to leave out.
            limit: maximum number of first events per kind, besides the last one. Each event then has ``left_out``, the
                number of events missing before it.

        Raises:
            DataError: a record line is damaged, or a newer version wrote it.
            RunStoreError: the files cannot be read.
        """
        import pyarrow as pa
        import pyarrow.compute

        with reading(self.run.records):
            table = self.tables({"events"}).get("events")
            if table is None:
                return []
            left_out = pyarrow.compute.is_in(table.column("kind"), pa.array(without, pa.string()))
            table = table.filter(pyarrow.compute.invert(left_out)).sort_by("time_ns")
            if limit is not None:
                kinds = table.column("kind").to_pandas().groupby(table.column("kind").to_pandas())
                index, count = kinds.cumcount(), kinds.transform("size")
                mask = (index < limit) | (index == count - 1)
                table = table.append_column("left_out", pa.array((count - limit - 1).where(index >= limit, 0)))
                table = table.filter(pa.array(mask))
            frame = to_frame(table)
            self._check_numbers("events", frame)
            return frame.to_dict("records")

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each table, of all attempts."""
        counts: dict[str, int] = {}
        for rank in parquet.ranks_of(self.run):
            note = parquet.current_note(self.run, rank)
            if note is not None:
                rows = {name: sum(files.values()) for name, files in note["tables"].items()}
            else:
                rows = {name: len(table) for name, table in parquet.read_tables(self.run, rank).items()}
            for name, count in rows.items():
                counts[name] = counts.get(name, 0) + count
        return dict(sorted(counts.items()))

    def rows(self, rank: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each row of one rank with the name of its table, in the order they were written, with ``attempt``."""
        path = self.run.record_files().get(rank)
        for line in () if path is None else read_lines(path):
            for row in rows_of(line):
                yield line["table"], {**row, "attempt": line["attempt"]}

    def _check_numbers(self, table: str, frame: pd.DataFrame) -> None:
        """Raise if a numeric column has other values."""
        from pandas.api.types import is_numeric_dtype

        numbers = _NUMBERS if table != "steps" else set(TABLES["steps"]) - {"energy_source"}
        for column in frame.columns:
            if column in numbers and len(frame) and not is_numeric_dtype(frame[column]):
                raise DataError(
                    f"{self.run.records} is damaged: {column} of table {table} has a value that is not a number. "
                    f"{RESTORE}"
                )


def _portions(notes: Sequence[parquet.Note | None], selection: Collection[str] | None) -> list[Collection[str] | None]:
    """Return the names of tables to read together: each alone from Parquet, all at once from lines."""
    if None in notes:
        return [selection]
    names = {name for note in notes if note is not None for name in note["tables"]}
    return [{name} for name in sorted(names) if selection is None or name in selection]


def to_frame(table: pa.Table) -> pd.DataFrame:
    """Return a pandas data frame; a column without values is NaN.

    JSON text is parsed, each distinct text once: rows with equal text share one object.
    """
    import pandas as pd
    import pyarrow as pa

    for index, column in enumerate(table.schema):
        if pa.types.is_null(column.type):
            table = table.set_column(index, column.name, table.column(index).cast(pa.float64()))
    frame = table.to_pandas()
    for column in table.schema:
        if parquet.is_json(column):
            texts = table.column(column.name).fill_null("null").combine_chunks().dictionary_encode()
            parsed = json.loads(f"[{','.join(texts.dictionary.to_pylist())}]")  # faster than parsing each
            values = pd.Series(parsed, dtype=object).to_numpy()[texts.indices.to_numpy()]
            frame[column.name] = pd.Series(values, index=frame.index, dtype=object)
    return frame


def _without_rows(name: str) -> pd.DataFrame:
    """Return a table without rows, with its declared columns."""
    import pandas as pd

    columns = ["rank", "attempt", *TABLES[name]]
    return pd.DataFrame(columns=columns).astype({"rank": "int64", "attempt": "int64"})


def without_replaced(frames: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return the tables without rows that a later attempt replaced; needs ``steps``, see ``RunFrames.frames``."""
    starts = attempt_starts(frames["steps"])
    return {name: valid_rows(name, frame, starts) for name, frame in frames.items()}


def attempt_starts(steps: pd.DataFrame) -> Starts:
    """Return attempt -> rank -> first step."""
    starts: dict[int, dict[int, int]] = {}
    for (attempt, rank), step in steps.groupby(["attempt", "rank"])["step"].min().items():
        starts.setdefault(int(attempt), {})[int(rank)] = int(step)
    return starts


def valid_rows(name: str, frame: pd.DataFrame, starts: Starts) -> pd.DataFrame:
    """Return the rows of a table that no later attempt replaced."""
    if len(starts) < 2 or "step" not in frame or not len(frame):
        return frame
    return frame[valid_mask(name, frame, starts)].reset_index(drop=True)


class ColumnFrames:
    """Columns of a run's record tables as pandas frames, read when they are asked for: a long run fits the memory.

    Args:
        frames: of the run.
    """

    def __init__(self, frames: RunFrames) -> None:
        self._frames = frames
        self._starts = attempt_starts(frames.frame("steps", ("rank", "attempt", "step")))

    def read(self, name: str, *columns: str, all_attempts: bool = False) -> pd.DataFrame:
        """Return columns of a table; all columns where none are named.

        Args:
            name: of the table.
            columns: their names.
            all_attempts: keep the rows that a resume replaced.
        """
        if all_attempts or len(self._starts) < 2:
            return self._frames.frame(name, columns)
        mask_columns = ("rank", "attempt", "step", *filter(None, [BEFORE_STEP.get(name)]))
        frame = self._frames.frame(name, {*columns, *mask_columns} if columns else ())
        valid = valid_rows(name, frame, self._starts)
        return valid[list(columns)] if columns else valid
