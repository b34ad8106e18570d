"""The user's own edges from tables: data frames and Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.own import from_edges
from dtdg_lab.graphs.dynamic_graph import DynamicGraph


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
    """A dynamic graph from a data frame with one edge a row.

    Args:
        frame: a pandas DataFrame, or any table that gives its columns by name.
        src: column of the sources, whole numbers or text.
        dst: column of the targets.
        time: column of the times, numbers or datetimes.
        weight: column of the weights, finite numbers of at least 0; None where edges carry none.
        features: as :func:`from_edges` takes them.
        labels: as :func:`from_edges` takes them.
        name: what runs and reports call the graph.
        **cutting: ``cut=n`` or ``interval=x``, and the other options of :func:`from_edges`.

    Raises:
        DataError: a column is missing, or a row has a missing or another value; or the edges cannot be cut.
        ConfigError: an option is out of its bounds.
    """
    has = [str(column) for column in frame.columns]
    wanted = [column for column in (src, dst, time, weight) if column is not None]
    _refuse_missing(wanted, has, "the frame")
    vectors = _vectors(frame, "the frame", src=src, dst=dst, time=time, weight=weight)
    return from_edges(**vectors, features=features, labels=labels, name=name, **cutting)


def from_parquet(
    path: str | Path,
    src: str = "src",
    dst: str = "dst",
    time: str = "time",
    weight: str | None = None,
    *,
    features: Any = None,
    labels: Any = None,
    name: str = "",
    **cutting: Any,
) -> DynamicGraph:
    """A dynamic graph from a Parquet file with one edge a row; only the columns asked for are read.

    Args:
        path: the file.
        src: column of the sources, whole numbers or text.
        dst: column of the targets.
        time: column of the times, numbers or timestamps.
        weight: column of the weights, finite numbers of at least 0; None where edges carry none.
        features: as :func:`from_edges` takes them.
        labels: as :func:`from_edges` takes them.
        name: what runs and reports call the graph; by default the file's name.
        **cutting: ``cut=n`` or ``interval=x``, and the other options of :func:`from_edges`.

    Raises:
        DataError: it is no Parquet file, a column is missing, or a row has a missing or another value; or the edges
            cannot be cut.
        ConfigError: an option is out of its bounds.
    """
    import pyarrow as pa
    from pyarrow import parquet

    path = Path(path).expanduser()
    if not path.is_file():
        raise DataError(f"{path} is not a file. Give the path of a Parquet file with one edge a row.")
    wanted = [column for column in (src, dst, time, weight) if column is not None]
    try:
        with parquet.ParquetFile(path) as file:
            _refuse_missing(wanted, file.schema_arrow.names, str(path))
            table = file.read(columns=wanted)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}. Write it again.") from error
    vectors = _vectors(table, str(path), src=src, dst=dst, time=time, weight=weight)
    return from_edges(**vectors, features=features, labels=labels, name=name or path.name, **cutting)


def _refuse_missing(wanted: list[str], has: list[str], where: str) -> None:
    missing = [column for column in wanted if column not in has]
    if missing:
        raise DataError(
            f"{where} has no column {missing[0]!r}; it has {', '.join(has[:20]) or 'none'}. Say which columns are src, "
            "dst, time and weight, as in src='from'."
        )


def _vectors(table: Any, where: str, **places: str | None) -> dict[str, Any]:
    """The columns of a table as from_edges calls them; ``places`` are their names there."""
    return {key: _column(table[name], name, where) for key, name in places.items() if name is not None}


def _column(values: Any, name: str, where: str) -> NDArray[Any]:
    """A column as numpy, without missing values.

    Raises:
        DataError: a value is missing; its row is named.
    """
    if getattr(getattr(values, "dtype", None), "tz", None) is not None:  # pandas' times with a zone are objects else
        values = values.dt.tz_convert(None)
    array = np.asarray(values.to_numpy())
    missing = np.zeros(len(array), dtype=bool)
    nothing: Any = None
    if array.dtype.kind in "mM":
        missing = np.isnat(array)
    elif array.dtype.kind in "fO":
        missing = np.asarray(np.not_equal(array, array) | np.equal(array, nothing), dtype=bool)  # NaN is not itself
    if missing.any():
        raise DataError(
            f"row {int(np.flatnonzero(missing)[0])} of {where} (from 0) has no {name!r}. Drop such rows, or fill them."
        )
    if array.dtype.kind == "f" and (np.abs(array) < 2**53).all() and (array == np.floor(array)).all():
        return array.astype(np.int64)  # whole numbers that gaps elsewhere in the table had made into floats
    return array
