"""Vertices that a file calls by names: numbered in the order of their names."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.graphs.arrays import give_up


def numbered(src: Any, dst: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
    """Numbers 0 .. N - 1 for the names of sources and targets.

    Args:
        src: names of the sources, E of them, as an Arrow array of text.
        dst: names of the targets.

    Returns:
        Sources and targets as numbers, shape (E,) each, and the names, shape (N,), sorted: int64 where every name
        is the usual spelling of a whole number, else text.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    both = pa.chunked_array([*src.chunks, *dst.chunks], type=pa.string())
    names = pc.unique(both)
    whole = _whole(names)
    names = names.take(pc.sort_indices(names if whole is None else whole))
    numbers = pc.index_in(both, value_set=names).to_numpy().astype(np.int64)
    ids = np.array(names.to_pylist()) if whole is None else np.sort(whole.to_numpy())
    return give_up(numbers[: len(src)]), give_up(numbers[len(src) :]), give_up(ids)


def _whole(names: Any) -> Any:
    """The names as whole numbers, or None where one of them is none, or is spelled in another way (``007``)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        whole = pc.cast(names, pa.int64())
    except pa.ArrowInvalid:
        return None
    return whole if pc.all(pc.equal(pc.cast(whole, pa.string()), names)).as_py() else None
