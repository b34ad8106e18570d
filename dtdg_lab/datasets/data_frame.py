"""Dynamic graphs from tables: data frames and Parquet files."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dtdg_lab.core.errors import DataError, shortened
from dtdg_lab.core.system_errors import reading
from dtdg_lab.core.units import as_path
from dtdg_lab.datasets.user_data import (
    check_folder,
    different_columns,
    fits_pieces,
    from_edges,
    from_pieces,
    from_vectors,
    known_only,
)
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.edge_list import MISSING_WORDS, NO_EDGE_VECTORS, missing_id
from dtdg_lab.graphs.interval_files import EdgePiece
from dtdg_lab.graphs.pieces import AT_ONCE


def from_pandas(
    frame: Any,
    src: str = "src",
    dst: str = "dst",
    time: str = "time",
    weight: str | None = None,
    *,
    features: Any = None,
    labels: Any = None,
    name: str = "mine",
    **cutting: Any,
) -> DynamicGraph:
    """Return a dynamic graph from a data frame with one edge a row.

    Args:
        frame: a pandas DataFrame, or any table with named columns.
        src: column of the sources, whole numbers or text; see :func:`from_edges`.
        dst: column of the targets.
        time: column of the times, numbers or datetimes.
        weight: column of the weights, finite numbers of at least 0; None where edges carry none.
        features: as in :func:`from_edges`.
        labels: as in :func:`from_edges`.
        name: the graph's name in runs and reports.
        **cutting: ``cut=n`` or ``interval=x``, and the other options of :func:`from_edges`.

    Raises:
        DataError: a column is missing, a row has a missing or wrong value, or the edges cannot be cut.
        ConfigError: an option is out of its bounds.
    """
    known_only(cutting, from_pandas, from_edges)
    check_folder(cutting.get("folder"))
    has = getattr(frame, "column_names", getattr(frame, "columns", None))  # Arrow's tables have both
    if isinstance(frame, type) or has is None or not hasattr(frame, "__getitem__"):
        raise DataError(
            f"the frame is {shortened(frame)}, of type {type(frame).__name__}; a data frame is needed, such as "
            "pandas.DataFrame(rows). For vectors there is from_edges, for files from_csv and from_parquet."
        )
    columns = _wanted(list(has), "the frame", src=src, dst=dst, time=time, weight=weight)
    vectors = _vectors(frame, "the frame", columns)
    return from_vectors(
        **vectors, columns=(src, dst), source="", features=features, labels=labels, name=name, **cutting
    )


def from_parquet(
    path: str | Path,
    src: str = "src",
    dst: str = "dst",
    time: str = "time",
    weight: str | None = None,
    *,
    features: Any = None,
    labels: Any = None,
    name: str | None = None,
    **cutting: Any,
) -> DynamicGraph:
    """Return a dynamic graph from a Parquet file with one edge a row. Only the named columns are read.

    With ``folder``, a number of ``nodes``, and whole numbers, timestamps or dates as times, it is read in pieces: see
    ``folder`` of :func:`from_edges`.

    Args:
        path: the file.
        src: column of the sources, whole numbers or text; see :func:`from_edges`.
        dst: column of the targets.
        time: column of the times, numbers or timestamps.
        weight: column of the weights, finite numbers of at least 0; None where edges carry none.
        features: as in :func:`from_edges`.
        labels: as in :func:`from_edges`.
        name: the graph's name in runs and reports; by default the file's name.
        **cutting: ``cut=n`` or ``interval=x``, and the other options of :func:`from_edges`.

    Raises:
        DataError: the file is no Parquet file, a column is missing, a row has a missing or wrong value, or the edges
            cannot be cut.
        ConfigError: an option is out of its bounds.
    """
    import pyarrow as pa
    from pyarrow import parquet

    known_only(cutting, from_parquet, from_edges)
    check_folder(cutting.get("folder"))
    path = as_path(path, "path")
    if not os.path.isfile(path):
        raise DataError(f"{str(path)[:500]} is not a file. Give the path of a Parquet file with one edge a row.")
    remedy = "Write it again, or use from_csv for a text file."
    as_parquet = reading(path, remedy=remedy, damaged="cannot be read as Parquet", damage=(pa.ArrowException,))
    settings = {"features": features, "labels": labels, "name": path.name if name is None else name, **cutting}
    source = f"file {path.name} in {path.absolute().parent}"
    with as_parquet, parquet.ParquetFile(path) as file:
        columns = _wanted(file.schema_arrow.names, str(path), src=src, dst=dst, time=time, weight=weight)
        wanted = list(columns.values())
        types = {column: file.schema_arrow.field(column).type for column in wanted}
        is_exact = any(
            is_kind(types[time]) for is_kind in (pa.types.is_integer, pa.types.is_timestamp, pa.types.is_date)
        )
        in_pieces = is_exact and all(pa.types.is_integer(types[end]) for end in (src, dst)) and fits_pieces(cutting)
        table = None if in_pieces else file.read(columns=wanted)
    if table is not None:
        return from_vectors(**_vectors(table, str(path), columns), columns=(src, dst), source=source, **settings)

    def pieces() -> Iterator[EdgePiece]:
        first = 0
        with parquet.ParquetFile(path) as file:
            batches = file.iter_batches(AT_ONCE, columns=wanted)
            while True:
                with reading(path, remedy=remedy, damaged="cannot be read as Parquet", damage=(pa.ArrowException,)):
                    batch = next(batches, None)
                if batch is None:
                    return
                if len(batch):
                    yield EdgePiece(**_vectors(batch, str(path), columns, first), first=first)
                first += len(batch)

    return from_pieces(pieces, columns=(src, dst), source=source, **settings)


def _wanted(has: list[Any], source: str, **columns: Any) -> dict[str, Any]:
    """Return the columns by the argument names of from_edges, without a weight of None.

    Raises:
        DataError: a name matches no column or several, or has two roles.
    """
    given_columns = {role: column for role, column in columns.items() if column is not None or role != "weight"}
    if isinstance(columns.get("weight"), list | tuple):
        raise DataError(f"weight={shortened(columns['weight'])} are several columns. {NO_EDGE_VECTORS}")
    for role, column in given_columns.items():
        count = has.count(column) if isinstance(column, Hashable) else 0
        if count != 1:
            names = ", ".join(str(one) for one in has[:20])
            raise DataError(
                f"{source} has {'several columns' if count else 'no column'} {shortened(column)} for {role}; it has "
                f"{names or 'none'}. Say which columns are src, dst, time and weight, as in src='from'."
            )
    different_columns(given_columns)
    return given_columns


def _vectors(table: Any, source: str, columns: dict[str, Any], first: int = 0) -> dict[str, Any]:
    """Return the columns of a table by the argument names of from_edges; ``first`` is the number of its first row."""
    vectors = {role: _column(table[column], role, column, source, first) for role, column in columns.items()}
    if not len(vectors["src"]):
        raise DataError(f"{source} holds no rows; one for each edge is needed.")
    return vectors


def _column(values: Any, role: str, name: str, source: str, first: int) -> Any:
    """Return a column without missing values as numpy, or as pandas for times with a zone.

    Raises:
        DataError: a value is missing; the message names its row.
    """
    values = values.to_pandas() if hasattr(values, "to_pandas") else values  # of Arrow and of polars
    missing = np.asarray(values.isna())
    if missing.any():
        raise DataError(
            f"row {first + int(missing.argmax())} of {source} (from 0) has no {name!r}. Drop such rows, or fill them."
        )
    if role in ("src", "dst") and values.dtype.kind in "OUT":
        missing = np.asarray(values.isin(MISSING_WORDS))
        if missing.any():
            row = int(missing.argmax())
            raise DataError(f"row {first + row} of {source} (from 0): {name!r} is {missing_id(str(values.iloc[row]))}.")
    if getattr(values.dtype, "tz", None) is not None:
        return values
    array = np.asarray(values.to_numpy())
    if role == "time" and array.dtype.kind == "f":
        wide = array.astype(np.float64)
        if (np.abs(wide) < 2**53).all() and (wide == np.floor(wide)).all():
            return wide.astype(np.int64)  # gaps in a table turn whole numbers into floats
    return array
