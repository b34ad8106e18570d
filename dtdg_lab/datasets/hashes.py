"""SHA-256 of files: computed, remembered for large ones, and recorded at first use where nobody published one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import uuid
from pathlib import Path
from typing import Any

from dtdg_lab.core.errors import ChecksumError, DataError
from dtdg_lab.graphs.store import cache_folder

REMEMBERED_FROM_BYTES = 64 << 20  # smaller files are hashed whenever they are read
_CHUNK_BYTES = 1 << 20


def file_hash(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal.

    For files of ``REMEMBERED_FROM_BYTES`` or more it is kept in the cache beside size and time of change, and
    computed again only where one of these is another.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        state = path.stat()
        if state.st_size < REMEMBERED_FROM_BYTES:
            return _computed(path)
        stamp = {"path": str(path.absolute()), "bytes": state.st_size, "changed_ns": state.st_mtime_ns}
        note = cache_folder() / "hashes" / f"{hashlib.sha256(str(stamp['path']).encode()).hexdigest()[:32]}.json"
        known: dict[str, Any] | None = None
        with contextlib.suppress(OSError, ValueError):  # such a note costs time only
            known = _read(note)
        if known is None or known != {**stamp, "sha256": known.get("sha256")}:
            known = {**stamp, "sha256": _computed(path)}
            with contextlib.suppress(OSError):
                _write(note, known)
        return str(known["sha256"])
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}. Check its permissions.") from error


def check_recorded(dataset: str, name: str, path: Path, digest: str) -> None:
    """Refuse a file with another hash than the one on record, if there is one.

    Args:
        dataset: name of the data set.
        name: what the file is called; the record is kept under both names.
        path: where it is.
        digest: its SHA-256.

    Raises:
        ChecksumError: another hash is on record.
        DataError: the record cannot be read.
    """
    note = _note_of(dataset, name)
    known = _recorded(note)
    if known is not None and known.get("sha256") != digest:
        raise ChecksumError(
            f"{path} has SHA-256 {digest}; when {dataset!r} was first used on this machine ({known.get('recorded')}, "
            f"from {known.get('file')}) {name} had {known.get('sha256')}. Put that file back; or, where the new one is "
            f"right, delete {note} and run again: its hash is then the one on record."
        )


def record(dataset: str, name: str, path: Path, digest: str) -> None:
    """Put the hash of a file on record, unless there is one; see :func:`check_recorded`.

    Raises:
        DataError: the record cannot be read or written.
    """
    note = _note_of(dataset, name)
    if _recorded(note) is None:
        moment = time.strftime("%Y-%m-%d %H:%M:%S%z")
        try:
            _write(note, {"sha256": digest, "recorded": moment, "file": str(path.absolute())})
        except OSError as error:
            raise DataError(
                f"cannot write {note}: {error.strerror or error}. Set DTDG_LAB_CACHE to a folder you can write."
            ) from error


def _note_of(dataset: str, name: str) -> Path:
    return cache_folder() / "recorded" / f"{dataset}--{name.replace('/', '--')}.json"


def _recorded(note: Path) -> dict[str, Any] | None:
    try:
        return _read(note)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {note}: {error}. Delete the file, and the hash is recorded anew.") from error


def _computed(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _read(note: Path) -> dict[str, Any] | None:
    """The note, or None where there is none.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no JSON object.
    """
    if not note.exists():
        return None
    found = json.loads(note.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    return found


def _write(note: Path, found: dict[str, Any]) -> None:
    """Write a note whole: two processes that write at once leave one of the two."""
    note.parent.mkdir(parents=True, exist_ok=True)
    draft = note.with_name(f".{note.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    draft.write_text(json.dumps(found, indent=2), encoding="utf-8")
    draft.replace(note)
