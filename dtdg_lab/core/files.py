"""Files that are replaced as a whole, folders for results, and stored arrays, read in any thread."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import tempfile
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from dtdg_lab.core.errors import LabError
from dtdg_lab.core.source_code import PARSING
from dtdg_lab.core.system_errors import explain
from dtdg_lab.core.units import as_path, working_folder


def draft_path(path: Path) -> Path:
    """Return a new hidden name beside a file or folder, for a draft that is renamed when complete."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = 0o666, draft: Path | None = None) -> Iterator[Path]:
    """Yield an empty file beside ``path``, which it replaces at the end of the block, synced to disk.

    Args:
        path: the file; its folder must exist.
        mode: permissions of the file, before the umask.
        draft: the file to write, if there is a single writer: the draft of a killed process is overwritten.

    Raises:
        OSError: the file cannot be written or replaced. After any error ``path`` is unchanged, and no draft remains.
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


_PROBE_BYTES = 4096  # one block: a full disk refuses it


def writable_folder(path: Any, called: str, raises: type[LabError]) -> Path:
    """Return the absolute path of a folder for results, after writing and removing a test file.

    Where the folder does not exist, its nearest existing ancestor is tested. The folder is not made.

    Args:
        path: as in :func:`~dtdg_lab.core.units.as_path`.
        called: the argument or environment variable that names it.
        raises: the class of the error.

    Raises:
        LabError: of the class ``raises``: ``path`` is no path, or nothing can be written there.
    """
    ancestor = folder = as_path(path, called, raises)
    working_folder(f"{called}={str(path)!r}", raises)  # libraries of torch abort the process without one
    try:
        while not _exists(ancestor):
            ancestor = ancestor.parent
        with tempfile.TemporaryFile(dir=ancestor) as probe:
            probe.write(bytes(_PROBE_BYTES))
    except OSError as error:
        raise raises(f"nothing can be written into {folder}: {explain(error, ancestor, setting=called)}") from error
    return folder


def writable_file(path: Any, called: str, raises: type[LabError]) -> Path:
    """Return the absolute path of a file for results, once its folder is known to be writable; as `writable_folder`.

    Raises:
        LabError: of the class ``raises``: ``path`` is no path, or nothing can be written there.
    """
    file = as_path(path, called, raises)
    writable_folder(file.parent, called, raises)
    return file


def _exists(folder: Path) -> bool:
    """Return whether a folder exists.

    Raises:
        OSError: a folder above it may not be entered, or a file is there.
    """
    try:
        folder.lstat()
    except FileNotFoundError:
        return False
    if folder.is_symlink() and not folder.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    return True


_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_array(stream: IO[bytes]) -> NDArray[Any]:
    """Return the read-only array of an open ``.npy`` file.

    Raises:
        Any of ``system_errors.DAMAGE``: it is damaged or cut short, or it holds objects.
    """
    read_header = _HEADERS[npy.read_magic(stream)]
    with PARSING:
        shape, fortran, dtype = read_header(stream)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded: reading one may run code")
    values = np.frombuffer(stream.read(), dtype, count=math.prod(shape))
    return values.reshape(shape, order="F" if fortran else "C")


def read_arrays(file: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an ``.npz`` file by name; their checksums are verified.

    Raises:
        Any of ``system_errors.DAMAGE``: it cannot be read, or is damaged.
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
