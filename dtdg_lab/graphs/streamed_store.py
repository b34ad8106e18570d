"""Folders of arrays that are written as they come, and appear whole or not at all.

The files grow in a hidden folder beside the place, which is renamed at the end. Whoever is killed in the middle leaves
only that hidden folder; the next one who writes to the same place removes it. Files are not forced to the disk: after
a power failure they may be shorter than their headers say, which reading refuses.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.store import FORMAT, META, SCHEMA, holds_graph, read_meta

_LOCK = "writing"
_AT_ONCE = 2**22  # bytes read again at a time
_ATTEMPTS, _PAUSE_S = 100, 0.002
_FORGOTTEN_S = 60.0


class ArrayFile:
    """A .npy file that grows along its first axis; its header is put right when it is closed.

    Args:
        path: the file, which must not exist.
        dtype: type of the entries.
        row: shape of one entry of the first axis.
    """

    def __init__(self, path: Path, dtype: DTypeLike, row: tuple[int, ...]) -> None:
        self.dtype, self.row, self.length = np.dtype(dtype), row, 0
        self._path = path
        self._file: BinaryIO = path.open("xb")
        self._file.write(self._header())

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all that was written so far."""
        return (self.length, *self.row)

    def extend(self, array: NDArray[Any]) -> None:
        """Append the entries of an array of shape (k, *row).

        Raises:
            DataError: it has another type or shape, or the disk is full.
        """
        if array.dtype != self.dtype or array.shape[1:] != self.row:
            raise DataError(
                f"{self._path.stem} is {self.dtype} of shape (any, {self.row}) and gets {array.dtype} {array.shape}."
            )
        with written(self._path):
            if array.size:
                self._file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        self.length += len(array)

    def close(self) -> None:
        """Write the header with the final length, and close the file."""
        with written(self._path):
            self._file.seek(0)
            self._file.write(self._header())
            self._file.close()

    def pieces(self) -> Iterator[NDArray[Any]]:
        """All entries, flat, piece by piece from a closed file."""
        with self._path.open("rb") as file:
            file.seek(len(self._header()))
            while data := file.read(_AT_ONCE):
                yield np.frombuffer(data, dtype=np.uint8)

    def abandon(self) -> None:
        """Close the file as it is."""
        self._file.close()

    def _header(self) -> bytes:
        # numpy leaves room for the digits of the first axis, so that all headers of one file have the same length
        header = BytesIO()
        fields = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(header, fields)
        return header.getvalue()


class Draft:
    """A hidden folder of growing arrays; ``finish`` puts it into place. A context manager.

    Args:
        folder: where the arrays are to appear.

    Raises:
        DataError: no folder can be made there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(os.path.abspath(folder))
        self.files: dict[str, ArrayFile] = {}
        # not tempfile: its folders are closed to other users, and a cache may be shared
        self._path = self.folder.parent / f".{self.folder.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
        with written(self.folder):
            _remove_dead(self.folder)
            # a draft may be seen only once its lock is held: else another writer takes it for one left behind
            unseen = self._path.with_name(f".new{self._path.name}")
            unseen.mkdir(parents=True)
            self._lock = (unseen / _LOCK).open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            unseen.rename(self._path)

    def __enter__(self) -> Draft:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self.files.values():
            with contextlib.suppress(OSError):  # a full disk was said before; what is left goes now
                file.abandon()
        self._lock.close()
        shutil.rmtree(self._path, ignore_errors=True)

    def file(self, name: str, dtype: DTypeLike, row: tuple[int, ...] = ()) -> ArrayFile:
        """The growing array of this name, made at the first call."""
        if name not in self.files:
            with written(self.folder):
                self.files[name] = ArrayFile(self._path / f"{name}.npy", dtype, row)
        return self.files[name]

    def put(self, name: str, array: NDArray[Any]) -> None:
        """Write a whole array."""
        self.file(name, array.dtype, array.shape[1:]).extend(array)

    def close_files(self) -> None:
        """Close all arrays; they can be read again, and not be extended any more."""
        for file in self.files.values():
            file.close()

    def finish(self, meta: Mapping[str, Any]) -> Path:
        """Write meta.json and rename the folder to its place; another graph that lies there is replaced.

        Where several processes write the same graph at once, one wins and the
        others find the equal result in place.

        Raises:
            DataError: the place holds something else, or cannot be written.
        """
        with written(self.folder):
            text = json.dumps({"format": FORMAT, "schema": SCHEMA, **meta, "arrays": sorted(self.files)})
            (self._path / META).write_text(text, encoding="utf-8")
            _put(self._path, self.folder)
            (self.folder / _LOCK).unlink(missing_ok=True)  # held until now: a draft left behind must be known for one
        return self.folder


@contextlib.contextmanager
def written(folder: Path) -> Iterator[None]:
    """Say what to do where the system refuses to write.

    Raises:
        DataError: in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot write the graph into {folder}: {error.strerror or error}. "
            "Free space there, or set DTDG_LAB_CACHE to a folder you can write."
        ) from error


def _remove_dead(folder: Path) -> None:
    """Remove drafts of the same place whose writers are gone: nobody holds their lock."""
    drafts = f".{glob.escape(folder.name)}.*"
    for lock in folder.parent.glob(f"{drafts}/{_LOCK}"):
        with contextlib.suppress(OSError), lock.open("r") as file:  # its writer is at work, or has just finished
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
    for aside in folder.parent.glob(f"{drafts}.old"):
        shutil.rmtree(aside, ignore_errors=True)
    for unseen in folder.parent.glob(f".new{drafts}"):
        with contextlib.suppress(FileNotFoundError):  # it lives for microseconds, unless its writer was killed
            if time.time() - unseen.stat().st_mtime > _FORGOTTEN_S:
                shutil.rmtree(unseen, ignore_errors=True)


def _put(draft: Path, folder: Path) -> None:
    """Rename ``draft`` to ``folder``, moving an older graph out of the way."""
    for attempt in range(_ATTEMPTS):  # others may put or move theirs between any two steps
        with contextlib.suppress(OSError):  # taken: looked at below
            draft.rename(folder)
            return
        if holds_graph(folder):
            if _told(folder) == _told(draft):
                return
            aside = draft.with_name(f"{draft.name}.{attempt}.old")
            with contextlib.suppress(FileNotFoundError):  # somebody else was faster
                folder.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            time.sleep(_PAUSE_S)
    if folder.exists() and not holds_graph(folder):
        raise DataError(f"{folder} exists and holds no graph; nothing was written. Choose a new or an empty folder.")
    draft.rename(folder)  # fails again, with the reason


def _told(folder: Path) -> dict[str, Any] | None:
    """The meta.json of a graph; None where it is damaged, or has just been moved away."""
    try:
        return read_meta(folder)
    except DataError:
        return None
