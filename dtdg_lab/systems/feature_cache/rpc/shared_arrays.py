"""Arrays in memory-mapped files, shared by two processes without copying."""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray


def share_array(array: NDArray[Any], files: contextlib.ExitStack) -> dict[str, Any]:
    """Put an array where a child process can map it: its own file if it is a whole memory map, else a file in memory.

    Args:
        array: of any shape and a plain type.
        files: closes the file in memory, which exists as long as a process maps it.

    Returns:
        JSON for :func:`open_array`: ``shape``, ``dtype``, and ``path`` and ``offset``, or an ``fd`` to inherit.
    """
    layout: dict[str, Any] = {"shape": array.shape, "dtype": array.dtype.str}
    # a view of a map has the map's offset: only the whole map lies at that offset
    if isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap) and array.flags.c_contiguous:
        path, offset, mode = (getattr(array, name) for name in ("filename", "offset", "mode"))
        if path is not None and mode in ("r", "r+"):
            return {**layout, "path": str(path), "offset": offset}
    if hasattr(os, "memfd_create"):
        file: Any = os.fdopen(os.memfd_create("features"), "wb")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the others)
    files.enter_context(file)
    np.ascontiguousarray(array).tofile(file)
    file.flush()
    return {**layout, "fd": file.fileno()}


def open_array(layout: dict[str, Any]) -> NDArray[Any]:
    """Return the array described by :func:`share_array`, mapped read-only; a descriptor is closed.

    Raises:
        OSError: the file does not exist.
        ValueError: it is shorter than the array.
    """
    shape, dtype = tuple(layout["shape"]), np.dtype(layout["dtype"])
    count = int(np.prod(shape))
    if "path" in layout:
        return np.memmap(layout["path"], dtype, "r", layout["offset"], shape) if count else np.empty(shape, dtype)
    try:
        if not count:
            return np.empty(shape, dtype)
        content = mmap.mmap(layout["fd"], count * dtype.itemsize, prot=mmap.PROT_READ)
    finally:
        os.close(layout["fd"])  # the map holds its own descriptor
    return np.frombuffer(content, dtype).reshape(shape)
