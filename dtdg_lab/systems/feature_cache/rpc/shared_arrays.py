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
    """Make an array available to a child process: by its own file if it is a whole memory map, or in memory.

    Args:
        array: of any shape and a plain type.
        files: closes the file in memory, which exists as long as a process maps it.

    Returns:
        Arguments of :func:`open_array` as JSON: ``shape``, ``dtype``, and ``path`` and ``offset``, or an ``fd`` to
        inherit.
    """
    layout: dict[str, Any] = {"shape": array.shape, "dtype": array.dtype.str}
    # a view of a map has the map's offset, but only the whole map starts there
    if isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap) and array.flags.c_contiguous:
        path, offset, mode = (getattr(array, name) for name in ("filename", "offset", "mode"))
        if path is not None and mode in ("r", "r+"):
            return {**layout, "path": str(path), "offset": offset}
    if hasattr(os, "memfd_create"):
        file: Any = os.fdopen(os.memfd_create("features"), "wb")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by ``files``)
    files.enter_context(file)
    np.ascontiguousarray(array).tofile(file)
    file.flush()
    return {**layout, "fd": file.fileno()}


def open_array(layout: dict[str, Any]) -> NDArray[Any]:
    """Map an array of :func:`share_array` read-only, and close its descriptor.

    Raises:
        OSError: the file does not exist.
        ValueError: the file is shorter than the array.
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
        os.close(layout["fd"])  # the map has its own descriptor
    return np.frombuffer(content, dtype).reshape(shape)
