"""Reads the measurements that costs are calibrated from: steps by window, fetches, and power."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.conditions import condition
from dtdg_lab.core.errors import ConfigError, DataError, shortened

STEPS, FETCHES, POWER = "step_time.csv", "fetch_rtt.csv.gz", "power.csv"
FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class StepCell:
    """The mean of a step under one condition at one window.

    Attributes:
        dataset: its name.
        condition: see :func:`dtdg_lab.control.conditions.condition`.
        window: W, at least 1.
        ms: milliseconds, above 0.
    """

    dataset: str
    condition: str
    window: int
    ms: float


@dataclass(frozen=True, slots=True, eq=False)
class Fetches:
    """M measured fetches of one data set.

    Attributes:
        dataset: its name.
        condition: (M,) names.
        concurrent: (M,) whether all owners were asked at once.
        requester, owner: (M,) int64 numbers of parts.
        rows: (M,) int64 asked for.
        nbytes: (M,) float64 of the rows.
        rtt_s: (M,) float64 seconds.
    """

    dataset: str
    condition: NDArray[np.str_]
    concurrent: NDArray[np.bool_]
    requester: NDArray[np.int64]
    owner: NDArray[np.int64]
    rows: NDArray[np.int64]
    nbytes: NDArray[np.float64]
    rtt_s: NDArray[np.float64]

    def where(self, mask: NDArray[np.bool_]) -> Fetches:
        """Those of a mask (M,)."""
        names = ("condition", "concurrent", "requester", "owner", "rows", "nbytes", "rtt_s")
        return Fetches(self.dataset, *(getattr(self, name)[mask] for name in names))


@dataclass(frozen=True, slots=True)
class Watts:
    """Mean power of one host.

    Attributes:
        busy: while its GPU computes.
        stall: while its CPU threads spin and its GPU is idle: what waiting for features looks like.
        idle: while nothing runs.
    """

    busy: float
    stall: float
    idle: float


def read_steps(source: str | Path | Iterable[Mapping[str, Any]]) -> dict[str, list[StepCell]]:
    """Cells by data set, from a folder with ``step_time.csv``, from such a file, or from rows with its columns.

    Raises:
        DataError: the file is not there, holds nothing, or a row is not what it should be; the row is told.
        ConfigError: a row's condition has no known form.
    """
    cells: dict[str, list[StepCell]] = {}
    for number, row in enumerate(_rows(source, STEPS), 1):
        try:
            cell = StepCell(str(row["dataset"]), str(row["condition"]), int(row["window"]), float(row["measured_ms"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"row {number} of the measured steps, {shortened(dict(row))}: dataset, condition, window (whole) and "
                f"measured_ms are needed ({type(error).__name__}: {error})."
            ) from error
        condition(cell.condition)
        if cell.window < 1 or not 0 < cell.ms < np.inf:
            raise DataError(f"row {number} of the measured steps, {cell}: a window of at least 1, time above 0.")
        cells.setdefault(cell.dataset, []).append(cell)
    if not cells:
        raise DataError(f"no measured steps in {shortened(source)}: rows with dataset, condition, window, measured_ms.")
    return cells


def read_fetches(folder: str | Path) -> dict[str, Fetches]:
    """Fetches by data set, from ``fetch_rtt.csv.gz`` of a folder; none where it has no such file.

    Raises:
        DataError: a row is not what it should be.
    """
    path = Path(folder) / FETCHES
    if not path.is_file():
        return {}
    names = ("concurrent", "requester", "owner", "rows", "rtt_s", "feat_dim")
    columns: dict[str, list[list[Any]]] = {}
    for number, row in enumerate(_of_file(path), 1):
        try:
            values = [row["condition"], *(float(row[name]) for name in names)]
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"row {number} of {path}: {type(error).__name__}: {error}.") from error
        columns.setdefault(row["dataset"], []).append(values)
    return {dataset: _fetches(dataset, values) for dataset, values in columns.items()}


def read_power(folder: str | Path) -> Watts | None:
    """Watts of a host, mean over hosts, from ``power.csv`` of a folder; None where it has no such file.

    Raises:
        DataError: a state is not there.
    """
    path = Path(folder) / POWER
    if not path.is_file():
        return None
    by_state: dict[str, list[float]] = {}
    for row in _of_file(path):
        by_state.setdefault(row["state"], []).append(float(row["cpu_w"]) + float(row["gpu_w"]))
    try:
        busy, stall, idle = (float(np.mean(by_state[state])) for state in ("gpu_compute", "cpu_spin", "idle"))
    except KeyError as error:
        raise DataError(f"{path} has no state {error}: gpu_compute, cpu_spin and idle are needed.") from error
    return Watts(busy, stall, idle)


def _rows(source: str | Path | Iterable[Mapping[str, Any]], name: str) -> Iterator[Mapping[str, Any]]:
    if isinstance(source, str | Path):
        path = Path(source)
        path = path / name if path.is_dir() else path
        if not path.is_file():
            raise DataError(f"no measured steps at {path}: a folder with {name}, such a file, or rows are needed.")
        yield from _of_file(path)
        return
    records = getattr(source, "to_dict", None)  # a table of pandas
    rows = source if records is None else records("records")
    if not isinstance(rows, Iterable) or isinstance(rows, Mapping):
        raise ConfigError(f"measured steps {shortened(source)}: a folder, a file or rows (mappings) are needed.")
    for row in rows:
        if not isinstance(row, Mapping):
            raise DataError(f"a row {shortened(row)} of measured steps: a mapping of column to value is needed.")
        yield row


def _of_file(path: Path) -> Iterator[dict[str, str]]:
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", newline="") as file:
            yield from csv.DictReader(file)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error


def _fetches(dataset: str, values: list[list[Any]]) -> Fetches:
    concurrent, requester, owner, rows, rtt_s, floats = np.array([row[1:] for row in values]).T
    requester, owner, rows = (column.astype(np.int64) for column in (requester, owner, rows))
    named = np.array([row[0] for row in values])
    return Fetches(dataset, named, concurrent > 0, requester, owner, rows, rows * floats * FLOAT_BYTES, rtt_s)
