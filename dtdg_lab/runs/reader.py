"""Record tables as pandas frames, from the merged tables where they are up to date, else from the ranks' lines."""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from dtdg_lab.core.errors import DataError, RunStoreError
from dtdg_lab.core.records import TABLES
from dtdg_lab.runs import merge
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.lines import read_lines, tail
from dtdg_lab.runs.stored_files import RESTORE, read_object, reading

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_lines", "tables", "tail"]

_NUMBERS = {"rank", "attempt", "step", "epoch", "time_ns", "start_ns", "end_ns"}
# What a second attempt must repeat for the first one's row at the very step of resuming to be left out: such a row
# describes the model before that step, so it is as true in both attempts.
_SAME_FACT = {"evaluations": "split", "events": "kind"}


def tables(
    run_dir: str | Path | RunDirectory, *, all_attempts: bool = False, only: Collection[str] = ()
) -> dict[str, pd.DataFrame]:
    """All record tables of a run, each with the columns ``rank`` and ``attempt`` first, ordered by rank.

    Columns and tables this version does not know are kept. A table nobody wrote has its columns and no rows.

    A resumed run computes the steps after its checkpoint again. By default the rows they replace are left out: for
    each rank, rows of an attempt from the first step of a later attempt on. Rows without a step (energy) were really
    spent and stay; an evaluation or event at exactly that step stays unless the later attempt has it too.

    Args:
        run_dir: the folder of the run.
        all_attempts: keep the replaced rows.
        only: names of the tables wanted; all when empty.

    Raises:
        DataError: a record line or a merged table is damaged, or a newer version wrote it.
        RunStoreError: there is no run, or its files cannot be read.
    """
    run = run_dir if isinstance(run_dir, RunDirectory) else RunDirectory.open(run_dir)
    wanted = {*only, "steps"} if only else None  # steps say where attempts begin
    frames = _merged(run, wanted)
    if frames is None:
        with reading(run.records):
            collected = merge.collect(run, wanted)
            frames = {table: merge.to_frame(collected[table]) for table in collected}
    for table in TABLES.keys() - frames.keys():
        if wanted is None or table in wanted:
            frames[table] = _empty(table)
    with reading(run.records):
        for table, frame in frames.items():
            _check_numbers(run, table, frame)
        return frames if all_attempts else _without_replaced(frames)


def _check_numbers(run: RunDirectory, table: str, frame: pd.DataFrame) -> None:
    """Refuse a table whose numbers are none."""
    from pandas.api.types import is_numeric_dtype

    numbers = _NUMBERS if table != "steps" else set(TABLES["steps"]) - {"energy_source"}
    for column in frame.columns:
        if column in numbers and len(frame) and not is_numeric_dtype(frame[column]):
            raise DataError(f"{run.records} is damaged: {column} of table {table} holds what is no number. {RESTORE}")


def _merged(run: RunDirectory, wanted: Collection[str] | None) -> dict[str, pd.DataFrame] | None:
    """The merged tables; None where they do not hold all lines, or there are none."""
    lines = "the ranks' lines are read instead" if run.record_files() else "the lines it was made from are gone"
    with reading(run.merged_file, f"Remove it: {lines}."):
        if not merge.is_current(run):
            return None
        names = [str(table) for table in read_object(run.merged_file, needs=("rows",))["rows"]]
    frames = {}
    for table in names:
        if wanted is None or table in wanted:
            frames[table] = _stored(run.table_file(table), f"Remove {run.merged_file}: {lines}.")
    return frames


def _stored(file: Path, remedy: str) -> pd.DataFrame:
    import pyarrow.parquet

    with reading(file, remedy):
        if not file.is_file():
            raise RunStoreError(f"{file} is missing. {remedy}")
        try:
            return merge.to_frame(pyarrow.parquet.read_table(file))
        except OSError as error:
            raise RunStoreError(f"{file} is damaged ({error}). {remedy}") from error


def _empty(table: str) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(columns=["rank", "attempt", *TABLES[table]]).astype({"rank": "int64", "attempt": "int64"})


def _without_replaced(frames: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    steps = frames["steps"]
    if steps["attempt"].nunique() < 2:
        return frames
    first = steps.groupby(["rank", "attempt"])["step"].min().unstack("attempt")
    return {table: _kept(table, frame, first) for table, frame in frames.items()}


def _kept(table: str, frame: pd.DataFrame, first: pd.DataFrame) -> pd.DataFrame:
    """``frame`` without rows that a later attempt replaced; ``first`` has ranks as rows and attempts as columns."""
    if "step" not in frame or frame.empty:
        return frame
    pairs = list(zip(frame["rank"], frame["attempt"], strict=True))
    limits = {pair: _limit(first, *pair) for pair in set(pairs)}
    limit = [limits[pair] for pair in pairs]
    if table not in _SAME_FACT:
        return frame[~(frame["step"] >= limit)].reset_index(drop=True)
    fact = ["rank", "step", _SAME_FACT[table]]
    repeated = frame["attempt"] < frame.groupby(fact, dropna=False)["attempt"].transform("max")
    return frame[~((frame["step"] > limit) | ((frame["step"] == limit) & repeated))].reset_index(drop=True)


def _limit(first: pd.DataFrame, rank: int, attempt: int) -> float:
    """First step of any later attempt of this rank, or of the others where this rank wrote none in it."""
    limits = []
    for later in first.columns[first.columns > attempt]:
        own = float(first.at[rank, later]) if rank in first.index else math.nan
        limits.append(float(first[later].min()) if math.isnan(own) else own)
    return min(limits, default=math.inf)
