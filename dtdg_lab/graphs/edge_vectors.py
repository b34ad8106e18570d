"""Reading the vectors of an edge list that somebody gives: ids, times, weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import DataError


def read_ids(values: ArrayLike, name: str) -> NDArray[Any]:
    """Ids as int64 or text, shape (E,).

    Raises:
        DataError: they are neither, or too large for int64.
    """
    array = np.asarray(values)
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array.flat):
        array = array.astype(str)
    if array.dtype.kind not in "iuU" or array.ndim != 1:
        raise DataError(
            f"{name} has type {array.dtype} and shape {array.shape}; a vector of whole numbers or text is needed."
        )
    return array if array.dtype.kind == "U" else _int64(array, name)


def read_times(values: ArrayLike) -> NDArray[Any]:
    """Times as int64 or finite float64, shape (E,); datetimes become nanoseconds since 1970.

    Raises:
        DataError: they are no times, or out of the range of int64.
    """
    array = np.asarray(values)
    if array.dtype.kind == "M":
        return _nanoseconds(array)
    if array.dtype.kind not in "iuf" or array.ndim != 1:
        raise DataError(
            f"time has type {array.dtype} and shape {array.shape}; a vector of numbers or datetimes is needed."
        )
    if array.dtype.kind in "iu":
        return _int64(array, "time")
    if not np.isfinite(array).all():
        first = np.flatnonzero(~np.isfinite(array))[0]
        raise DataError(f"time[{first}] is not finite ({array[first]}). Drop such edges.")
    return array.astype(np.float64)


def read_weights(values: ArrayLike | None, count: int) -> NDArray[np.float64] | None:
    """Weights as finite float64 of at least 0, shape (E,); None for None.

    Raises:
        DataError: they are no such numbers, or not ``count`` of them.
    """
    if values is None:
        return None
    array = np.asarray(values)
    if array.dtype.kind not in "iuf" or array.shape != (count,):
        raise DataError(f"weight has type {array.dtype} and shape {array.shape}; {count} numbers are needed.")
    return check_weights(array.astype(np.float64))


def check_weights(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same weights.

    Raises:
        DataError: one is negative, or not finite; the message names the first.
    """
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if len(wrong):
        raise DataError(
            f"weight[{wrong[0]}] is {array[wrong[0]]}; finite weights of at least 0 are needed, because degrees are "
            "sums of weights. Drop such edges, or shift the weights."
        )
    return array


def _int64(array: NDArray[Any], name: str) -> NDArray[np.int64]:
    if array.dtype.kind == "u" and len(array) and int(array.max()) >= 2**63:
        raise DataError(f"{name}[{array.argmax()}] is {array.max()}; whole numbers below 2^63 are needed.")
    return array.astype(np.int64)


def _nanoseconds(array: NDArray[Any]) -> NDArray[np.int64]:
    if array.ndim != 1:
        raise DataError(f"time has shape {array.shape}; a vector is needed.")
    if np.isnat(array).any():
        raise DataError(f"time[{np.flatnonzero(np.isnat(array))[0]}] is not a time (NaT). Drop such edges.")
    seconds = array.astype("datetime64[s]").astype(np.int64)
    wrong = np.flatnonzero(np.abs(seconds) >= 2**63 // 10**9)
    if len(wrong):
        raise DataError(f"time[{wrong[0]}] is {array[wrong[0]]}; years 1678 to 2261 can be kept to the nanosecond.")
    return array.astype("datetime64[ns]").astype(np.int64)
