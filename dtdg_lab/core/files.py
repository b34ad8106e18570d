"""Files that are replaced as a whole, and stored arrays, read in any thread."""

from __future__ import annotations

import contextlib
import math
import os
import tokenize
import uuid
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from dtdg_lab.core.lazy import PARSING

# Files that readers see as they were before or as they are now, never in part.


def draft_path(path: Path) -> Path:
    """A new hidden name beside a file or folder, to write it under before it is renamed."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = 0o666, draft: Path | None = None) -> Iterator[Path]:
    """An empty file to write beside ``path``, which it replaces at the end of the block, synced to disk.

    Args:
        path: the file; its folder must exist.
        mode: who may read and write the file, less the umask.
        draft: the file to write, where there is one writer only: what one that was killed has left is overwritten.

    Raises:
        OSError: it cannot be written or replaced. After any error ``path`` is as before, and no other file remains.
    """
    draft = draft or draft_path(path)
    try:
        draft.touch(mode)
        yield draft
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


# Arrays: only their headers are parsed one at a time.


# what reading a damaged, truncated or foreign file of arrays raises
DAMAGE = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    RuntimeError,  # as zipfile does, also by its subclass NotImplementedError, where a header is damaged
    MemoryError,
    OverflowError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_array(stream: IO[bytes]) -> NDArray[Any]:
    """The read-only array of an ``.npy`` file that is open.

    Raises:
        Any of ``DAMAGE``: it is damaged or cut short, or it holds objects.
    """
    read_header = _HEADERS[npy.read_magic(stream)]
    with PARSING:
        shape, fortran, dtype = read_header(stream)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded: reading one may run code")
    values = np.frombuffer(stream.read(), dtype, count=math.prod(shape))
    return values.reshape(shape, order="F" if fortran else "C")


def read_arrays(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` file by name; their checksums are verified.

    Raises:
        Any of ``DAMAGE``: it cannot be read, or is damaged.
    """
    with zipfile.ZipFile(file) as archive:
        return {name.removesuffix(".npy"): read_array(archive.open(name)) for name in archive.namelist()}


def write_arrays(file: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays to one compressed file, as a whole; its folder is made.

    Raises:
        OSError: it cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as draft, draft.open("wb") as out:
        np.savez_compressed(out, allow_pickle=False, **dict(arrays))
