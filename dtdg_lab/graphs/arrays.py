"""Arrays that nobody can change, and the checks every array of a graph passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dtdg_lab.core.errors import DataError


def frozen(array: Any, *, name: str, dtype: DTypeLike, shape: Sequence[int | None]) -> NDArray[Any]:
    """The array, checked, contiguous and read-only.

    A writable array is copied, so that its owner can go on changing it; a read-only one (a memory map, or an array
    its maker has given up) is shared.

    Args:
        array: what the caller gave.
        name: what the message calls it.
        dtype: the type it must have; nothing is converted, so that no value is rounded unseen.
        shape: the shape it must have; None fits any length.

    Raises:
        DataError: it is no array, has another type or shape, or entries are masked.
    """
    wanted = np.dtype(dtype)
    refuse_masked(array, name)
    if not isinstance(array, np.ndarray):
        raise DataError(
            f"{name} is a {type(array).__name__}; a numpy array of {wanted} is needed: use np.asarray(...)."
        )
    if array.dtype != wanted:
        raise DataError(f"{name} has type {array.dtype}; {wanted} is needed: convert it with .astype(np.{wanted}).")
    fits = array.ndim == len(shape) and all(want in (None, have) for have, want in zip(array.shape, shape, strict=True))
    if not fits:
        words = ", ".join("any" if want is None else str(want) for want in shape)
        raise DataError(f"{name} has shape {array.shape}; ({words}{',' if len(shape) == 1 else ''}) is needed.")
    if array.flags.writeable:
        array = np.array(array, order="C")
        array.setflags(write=False)
    # asarray turns a memory map into a plain array over the same pages
    return np.asarray(np.ascontiguousarray(array))


def refuse_masked(array: Any, name: str) -> None:
    """Refuse an array with masked entries: numpy would take what lies under the mask for values.

    Raises:
        DataError: there are some; the first is named.
    """
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        mask = np.ma.getmaskarray(array)
        first = ", ".join(str(place) for place in np.argwhere(mask)[0])
        raise DataError(
            f"{name}[{first}] is masked ({int(mask.sum())} of {mask.size} entries are); all must have values. "
            "Drop what is masked, in all vectors alike, with array[keep], keep = ~np.ma.getmaskarray(array); or fill "
            "it with array.filled(value)."
        )


def give_up(array: NDArray[Any]) -> NDArray[Any]:
    """The same array made read-only, for one that its maker has just built and will not touch again."""
    array.setflags(write=False)
    return array


def over_time(array: Any, *, name: str, dtype: DTypeLike, steps: int, shape: Sequence[int | None]) -> NDArray[Any]:
    """A checked, read-only array with one entry of ``shape`` for each of T steps.

    An array of ``shape`` itself stands for all steps: it is repeated by a view, which takes no memory.

    Returns:
        Shape (T, *shape).

    Raises:
        DataError: as :func:`frozen`.
    """
    if isinstance(array, np.ndarray) and array.ndim == len(shape) + 1 and repeats(array):
        array = array[0]
    if isinstance(array, np.ndarray) and array.ndim == len(shape):
        one = frozen(array, name=name, dtype=dtype, shape=shape)
        return np.broadcast_to(one, (steps, *one.shape))
    return frozen(array, name=name, dtype=dtype, shape=(steps, *shape))


def repeats(array: NDArray[Any]) -> bool:
    """Whether an array over time is one entry that a view repeats."""
    return array.size > 0 and array.strides[0] == 0


def stored_once(array: NDArray[Any]) -> NDArray[Any]:
    """What has to be kept of an array over time: its only entry where it repeats, else all of it."""
    return array[0] if repeats(array) else array
