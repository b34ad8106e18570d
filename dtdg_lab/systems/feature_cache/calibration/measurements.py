"""Measurements for a calibration: step times, fetches and power, under named network conditions."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dtdg_lab.core.errors import ConfigError, DataError, shortened
from dtdg_lab.core.system_errors import reading
from dtdg_lab.core.units import as_path

FORMS = '"clean", "c1_<X>mbit" or "c1_<X>" (X Mbit/s left to one owner), "c4_<Y>ms" or "c4_<Y>" (Y ms on one link)'
_NAMED = re.compile(r"c1_(?P<mbit>\d+(?:\.\d+)?)(?:mbit)?|c4_(?P<ms>\d+(?:\.\d+)?)(?:ms)?")


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of one owner's link.

    Attributes:
        mbit: rate in Mbit/s of all its replies; infinite for no limit.
        delay_ms: milliseconds added to each reply.
    """

    mbit: float = np.inf
    delay_ms: float = 0.0

    @property
    def is_clean(self) -> bool:
        """True if the link is neither throttled nor delayed."""
        return self.delay_ms == 0.0 and self.mbit == np.inf

    @property
    def name(self) -> str:
        """The condition's name in the long form."""
        if self.is_clean:
            return "clean"
        return f"c4_{self.delay_ms:g}ms" if self.delay_ms else f"c1_{self.mbit:g}mbit"


def condition_named(name: str) -> Condition:
    """Parse the name of a condition, in one of the forms of ``FORMS``.

    Raises:
        ConfigError: the name has another form, or a rate of 0.
    """
    if not isinstance(name, str):
        raise ConfigError(f"condition {shortened(name)} is not a string. Give one of the forms {FORMS}.")
    text = name.strip().lower()
    match = _NAMED.fullmatch(text)
    if text != "clean" and match is None:
        raise ConfigError(f"condition {shortened(name)} is unknown. Give one of the forms {FORMS}.")
    if match is None or match["mbit"] is None:
        return Condition(delay_ms=float(match["ms"]) if match else 0.0)
    if float(match["mbit"]) <= 0:
        raise ConfigError(f"condition {shortened(name)} has a rate of 0. Give a rate above 0 Mbit/s: {FORMS}.")
    return Condition(mbit=float(match["mbit"]))


STEPS, FETCHES, POWER = "step_time.csv", "fetch_rtt.csv.gz", "power.csv"
FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class StepCell:
    """The mean time of a step under one condition with one window.

    Attributes:
        dataset: its name.
        condition: see :func:`dtdg_lab.systems.feature_cache.calibration.measurements.condition_named`.
        window: W, at least 1.
        ms: milliseconds, above 0.
    """

    dataset: str
    condition: str
    window: int
    ms: float


@dataclass(frozen=True, slots=True)
class Watts:
    """Mean power of one host.

    Attributes:
        busy: while the GPU computes.
        stall: while CPU threads spin and the GPU is idle, as when waiting for features.
        idle: while nothing runs.
    """

    busy: float
    stall: float
    idle: float


def read_steps(source: str | Path | Iterable[Mapping[str, Any]]) -> dict[str, list[StepCell]]:
    """Return cells by dataset, from a folder with ``step_time.csv``, from such a file, or from rows with its columns.

    Raises:
        DataError: the file is missing or empty, or a row is invalid; the message has the row.
        ConfigError: a row's condition has an unknown form.
    """
    cells: dict[str, list[StepCell]] = {}
    kinds = {"dataset": str, "condition": str, "window": int, "measured_ms": float}
    for number, values in enumerate(_parse_rows(_rows(source, STEPS), kinds, "measured steps, row"), 1):
        cell = StepCell(*values)
        condition_named(cell.condition)
        if cell.window < 1 or not 0 < cell.ms < np.inf:
            raise DataError(f"measured steps, row {number}, {cell}: give a window of at least 1 and a time above 0.")
        cells.setdefault(cell.dataset, []).append(cell)
    if not cells:
        raise DataError(f"{shortened(source)} has no measured steps. Give rows with {', '.join(kinds)}.")
    return cells


def read_fetches(folder: str | Path) -> dict[str, pd.DataFrame]:
    """Return fetches by dataset, from ``fetch_rtt.csv.gz`` of a folder; empty if it has no such file.

    The columns are those of :func:`fetches_of`.

    Raises:
        DataError: a row is invalid.
    """
    path = as_path(folder, "folder") / FETCHES
    if not path.is_file():
        return {}
    numbers = ("concurrent", "requester", "owner", "rows", "rtt_s", "feat_dim")
    kinds = {"dataset": str, "condition": str, **dict.fromkeys(numbers, float)}
    table = _table(_read_csv(path), kinds, f"{path}, row")
    table["nbytes"] = table["rows"] * table["feat_dim"] * FLOAT_BYTES
    return dict(iter(table.groupby("dataset", sort=False)))


def checked_fetches(fetches: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Return a caller's fetches by data set, validated."""
    numbers = ("concurrent", "requester", "owner", "rows", "nbytes", "rtt_s")
    kinds = {"dataset": str, "condition": str, **dict.fromkeys(numbers, float)}
    if not isinstance(fetches, Mapping) or not all(isinstance(rows, pd.DataFrame) for rows in fetches.values()):
        raise ConfigError(f"fetches={shortened(fetches)}: give a mapping of dataset to table, as from fetches_of().")
    tables = {}
    for name, rows in fetches.items():
        what = f"fetches of {name}, row"
        table = _table(rows.to_dict("records"), kinds, what)
        if table.empty:
            raise DataError(f"fetches of {name}: the table has no rows.")
        wrong = table[~np.isfinite(table[list(numbers)]).all(axis=1) | (table[["rows", "nbytes"]] <= 0).any(axis=1)]
        if len(wrong):
            row = wrong.iloc[0][list(numbers)].to_dict()
            raise DataError(f"{what} {wrong.index[0] + 1}, {row}: give finite numbers, with rows and nbytes above 0.")
        tables[name] = table
    return tables


def read_power(folder: str | Path) -> Watts | None:
    """Return the watts of a host, averaged over hosts, from ``power.csv`` of a folder; None without such a file.

    Raises:
        DataError: a state is missing, or a row is invalid.
    """
    path = as_path(folder, "folder") / POWER
    if not path.is_file():
        return None
    kinds = {"state": str, "cpu_w": float, "gpu_w": float}
    table = _table(_read_csv(path), kinds, f"{path}, row")
    watts = (table["cpu_w"] + table["gpu_w"]).groupby(table["state"]).mean()
    try:
        return Watts(*(float(watts[state]) for state in ("gpu_compute", "cpu_spin", "idle")))
    except KeyError as error:
        raise DataError(f"{path} has no state {error}: gpu_compute, cpu_spin and idle are needed.") from error


def _table(rows: Iterable[Mapping[str, Any]], kinds: Mapping[str, type], what: str) -> pd.DataFrame:
    return pd.DataFrame(_parse_rows(rows, kinds, what), columns=list(kinds))


def _parse_rows(rows: Iterable[Mapping[str, Any]], kinds: Mapping[str, type], what: str) -> Iterator[tuple[Any, ...]]:
    """Yield the columns of each row, as values of their types.

    Raises:
        DataError: a row lacks a column, or a value is of another type; the message has the row.
    """
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise DataError(f"{what} {number}, {shortened(row)}: give a mapping of column to value.")
        try:
            yield tuple(kind(row[name]) for name, kind in kinds.items())
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{what} {number}, {shortened(dict(row))}: {', '.join(kinds)} are needed "
                f"({type(error).__name__}: {error})."
            ) from error


def _rows(source: str | Path | Iterable[Mapping[str, Any]], name: str) -> Iterator[Mapping[str, Any]]:
    if isinstance(source, str | Path):
        path = Path(source)
        path = path / name if path.is_dir() else path
        if not path.is_file():
            raise DataError(f"{path} has no measured steps. Give a folder with {name}, such a file, or rows.")
        yield from _read_csv(path)
        return
    records = getattr(source, "to_dict", None)  # a table of pandas
    rows = source if records is None else records("records")
    if not isinstance(rows, Iterable) or isinstance(rows, Mapping):
        raise ConfigError(f"measured steps {shortened(source)}: give a folder, a file or rows (mappings).")
    yield from rows


def _read_csv(path: Path) -> Iterator[dict[str, str]]:
    open_file = gzip.open if path.suffix == ".gz" else open
    guard = reading(path, remedy="Give a valid CSV file.", damaged="cannot be read", damage=(csv.Error,))
    with guard, open_file(path, "rt", newline="") as file:
        yield from csv.DictReader(file)


def fetches_of(rows: Iterable[Mapping[str, Any]], dataset: str) -> dict[str, pd.DataFrame]:
    """Return the fetches of a run by data set, for ``calibrate(..., fetches=)``.

    A row is a fetch. Columns: ``dataset`` and ``condition``; ``concurrent``, True if all owners were requested at once;
    ``requester`` and ``owner``, indices of parts; ``rows`` and their ``nbytes``; ``rtt_s``.

    Args:
        rows: rows of the table ``fetches``, with part, owner, rows, bytes and rtt_s. A run requests from all owners at
            once.
        dataset: name of the dataset.

    Raises:
        DataError: there are no rows, or a row lacks a column.
    """
    table = _table(rows, dict.fromkeys(("part", "owner", "rows", "bytes", "rtt_s"), float), "fetch")
    if table.empty:
        raise DataError(f"no fetches of {dataset} were recorded. Train it with a system that fetches features.")
    named = table.rename(columns={"part": "requester", "bytes": "nbytes"})
    return {dataset: named.assign(dataset=dataset, condition="clean", concurrent=True)}


def cells_of(steps: Iterable[tuple[int, float]], dataset: str, *, condition: str = "clean") -> list[dict[str, Any]]:
    """Return the mean time of a run's steps by window, as cells for :func:`dtdg_lab.calibration.calibrate`.

    Args:
        steps: window and seconds of every step.
        dataset: name of the dataset.
        condition: the links' condition throughout the run: "clean", or the setting of one owner's links. X Mbit/s of
            ``c1_X`` are P - 1 times the rate of one link.
    """
    by_window: dict[int, list[float]] = {}
    for window, seconds in steps:
        by_window.setdefault(window, []).append(seconds)
    return [
        {"dataset": dataset, "condition": condition, "window": window, "measured_ms": 1e3 * float(np.mean(times))}
        for window, times in sorted(by_window.items())
    ]
