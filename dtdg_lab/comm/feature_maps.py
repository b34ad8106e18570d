"""Arrays in files that two processes map, so that neither sends them to the other."""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray


def placed(array: NDArray[Any], files: contextlib.ExitStack) -> dict[str, Any]:
    """Put an array where a child finds it: where its file is, if it is the map of one, else in a file in memory.

    Args:
        array: of any shape and a plain type.
        files: closes the file in memory, which lives on while a process maps it.

    Returns:
        For :func:`opened`, as JSON: ``shape``, ``dtype``, and ``path`` and ``offset``, or an ``fd`` to inherit.
    """
    told: dict[str, Any] = {"shape": array.shape, "dtype": array.dtype.str}
    # a view into a map keeps the map's own offset: only the whole map is where it says
    if isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap) and array.flags.c_contiguous:
        path, offset, mode = (getattr(array, name) for name in ("filename", "offset", "mode"))
        if path is not None and mode in ("r", "r+"):
            return {**told, "path": str(path), "offset": offset}
    if hasattr(os, "memfd_create"):
        file: Any = os.fdopen(os.memfd_create("features"), "wb")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the others)
    files.enter_context(file)
    np.ascontiguousarray(array).tofile(file)
    file.flush()
    return {**told, "fd": file.fileno()}


def opened(told: dict[str, Any]) -> NDArray[Any]:
    """The array that :func:`placed` told of, mapped to be read; a descriptor is closed.

    Raises:
        OSError: the file is not there.
        ValueError: it is shorter than the array.
    """
    shape, dtype = tuple(told["shape"]), np.dtype(told["dtype"])
    count = int(np.prod(shape))
    if "path" in told:
        return np.memmap(told["path"], dtype, "r", told["offset"], shape) if count else np.empty(shape, dtype)
    try:
        if not count:
            return np.empty(shape, dtype)
        content = mmap.mmap(told["fd"], count * dtype.itemsize, prot=mmap.PROT_READ)
    finally:
        os.close(told["fd"])  # a map holds its own
    return np.frombuffer(content, dtype).reshape(shape)
