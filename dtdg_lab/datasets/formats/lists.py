"""Lists in JSON as arrays: text is no number, fractions are no whole numbers, rows have the length they should."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.formats.text import shown
from dtdg_lab.graphs.arrays import give_up


def read_json(data: bytes, where: str) -> dict[str, Any]:
    """The object a JSON text holds.

    Raises:
        DataError: it is no JSON, or something else than an object; the message has the line.
    """
    try:
        found = json.loads(data)
    except json.JSONDecodeError as error:
        raise DataError(f"line {error.lineno} of {where} is no JSON: {error.msg}. Fetch the file again.") from error
    except (ValueError, RecursionError) as error:  # no UTF-8, a number of thousands of digits, nested without end
        raise DataError(f"{where} is no JSON that can be read: {error}. Fetch the file again.") from error
    if not isinstance(found, dict):
        raise DataError(f"{where} holds a {type(found).__name__}; an object is needed. Fetch the file again.")
    return found


def entry(found: Any, name: str, where: str) -> Any:
    """The value of a name in an object.

    Raises:
        DataError: there is none; the names there are, are told.
    """
    if not isinstance(found, dict) or name not in found:
        known = ", ".join(list(found)[:8]) if isinstance(found, dict) else type(found).__name__
        raise DataError(f"{where} has no {name!r}; it has {shown(known)}. Fetch the file again.")
    return found[name]


def numbers(values: Any, what: str, where: str) -> NDArray[np.float64]:
    """A list of E finite numbers, shape (E,).

    Raises:
        DataError: it is something else.
    """
    return _array(values, "a list of numbers", what, where, depth=1, kind="double")[0]


def matrix(values: Any, what: str, where: str, *, width: int | None = None) -> NDArray[np.float64]:
    """A list of R lists of C finite numbers each, shape (R, C).

    Args:
        values: the list.
        what: its name, for messages.
        where: the file's name, for messages.
        width: C; None takes that of the first row.

    Raises:
        DataError: it is something else, or a row has another length.
    """
    flat, lengths = _array(values, "a list of lists of numbers", what, where, depth=2, kind="double")
    return give_up(flat.reshape(_same_length(lengths, width, what, where)))


def pairs(values: Any, nodes: int, what: str, where: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A list of E pairs of vertices, as sources and targets, shape (E,) each.

    Raises:
        DataError: it is something else, or a vertex is not in 0 .. ``nodes`` - 1.
    """
    expected = "a list of pairs of whole numbers"
    flat, lengths = _array(values, expected, what, where, depth=2, kind="int64")
    cut = np.flatnonzero(
        flat != _array(values, expected, what, where, depth=2, kind="double")[0]
    )  # Arrow cuts them off
    if len(cut):
        raise DataError(f"{where}: number {cut[0]} of {what} is a fraction; {expected} is needed. Fetch it again.")
    both = flat.reshape(_same_length(lengths, 2, what, where))
    wrong = np.flatnonzero(((both < 0) | (both >= nodes)).any(axis=1))
    if len(wrong):
        raise DataError(
            f"{where}: {what}[{wrong[0]}] is {both[wrong[0]].tolist()}; vertices 0 to {nodes - 1} are allowed. "
            "Fetch the file again."
        )
    return both[:, 0], both[:, 1]


def _array(
    values: Any, expected: str, what: str, where: str, *, depth: int, kind: str
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The numbers in a list one after the other, and the lengths of its rows where it has rows."""
    import pyarrow as pa

    each = pa.type_for_alias(kind)
    try:
        # Arrow refuses what numpy would convert: text to numbers, None to NaN
        found = pa.array(values, type=pa.list_(each) if depth == 2 else each)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = shown(str(error).partition("\n")[0], 120)
        raise DataError(f"{where}: {what} is not {expected}: {reason}. Fetch the file again.") from error
    lengths = np.diff(found.offsets.to_numpy()) if depth == 2 else np.zeros(0, dtype=np.int64)
    flat = found.flatten() if depth == 2 else found
    if found.null_count or flat.null_count:
        raise DataError(f"{where}: {what} has a null; {expected} is needed. Fetch the file again.")
    array = flat.to_numpy()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        at = int(np.flatnonzero(~np.isfinite(array))[0])
        raise DataError(f"{where}: number {at} of {what} is {array[at]}; finite numbers are needed. Fetch it again.")
    return give_up(array), lengths


def _same_length(lengths: NDArray[np.int64], width: int | None, what: str, where: str) -> tuple[int, int]:
    wanted = width if width is not None else int(lengths[0]) if len(lengths) else 0
    wrong = np.flatnonzero(lengths != wanted)
    if len(wrong):
        raise DataError(
            f"{where}: {what}[{wrong[0]}] has {lengths[wrong[0]]} entries; {wanted} are needed. Fetch the file again."
        )
    return len(lengths), wanted
