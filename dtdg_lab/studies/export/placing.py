"""Where an exported file goes: whole or not at all, and never over something else."""

from __future__ import annotations

import gzip
import os
import shutil
import uuid
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from dtdg_lab.core.errors import RunStoreError
from dtdg_lab.core.paths import as_path
from dtdg_lab.runs.json_files import discard, store_error
from dtdg_lab.runs.open_any import CONFIG_MARK, PACKED
from dtdg_lab.runs.read_trace import MADE_BY

MARK = "export.json"  # in a folder or zip that was exported: only such a one is ever replaced
# one of these is in every other file that is written here: pages, settings of scripts, notebooks, timelines, and how
# scripts begin
_MARKS = tuple(
    text.encode() for text in (f"id='{PACKED}'", CONFIG_MARK, f'"{MADE_BY}": {{', '"""Repeats a race of DTDG Lab')
)
_HEAD = 2**20  # bytes of a compressed file that are looked through


def target(path: str | Path | None, name: str, *, again: bool) -> Path:
    """The file or folder to write: the one given, or ``name`` in the folder given or in the present one.

    Args:
        path: a file to be written, a folder that is there (and was not exported itself), or None.
        name: what it is called where no name is given.
        again: whether something exported before may be replaced.

    Raises:
        DataError: it is no path.
        RunStoreError: something is there, or the folder it shall be in is not.
    """
    where = Path(name) if path is None else as_path(path, "path")
    if where.is_dir() and not (where / MARK).is_file():
        where = where / name
    if not where.parent.is_dir():
        raise RunStoreError(f"cannot export to {where}: there is no folder {where.parent}. Make it first.")
    if where.exists() or where.is_symlink():
        if not again:
            raise _taken(where)
        if not _was_exported(where):
            raise RunStoreError(
                f"cannot export to {where}: what is there was not exported, so again=True does not replace it. "
                "Give another path=."
            )
    return where


def _was_exported(where: Path) -> bool:
    if where.is_dir():
        return (where / MARK).is_file()
    try:
        if zipfile.is_zipfile(where):
            with zipfile.ZipFile(where) as archive:
                return MARK in archive.namelist()
        content = where.read_bytes()
        if content[:2] == b"\x1f\x8b":
            with gzip.open(where) as file:
                content = file.read(_HEAD)
    except (OSError, EOFError, ValueError, zlib.error, zipfile.BadZipFile):
        return False  # whatever it is, it was not made here
    return any(mark in content for mark in _MARKS)


def place_file(where: Path, content: bytes, *, again: bool) -> Path:
    """Write a file: others see all of it or none.

    Raises:
        RunStoreError: something is there and may not be replaced, or the file cannot be written; nothing is left.
    """
    temporary = where.with_name(f".{where.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if not again and where.exists():
            raise _taken(where)
        temporary.replace(where)
    except OSError as error:
        discard(temporary)
        if isinstance(error, RunStoreError):
            raise
        raise store_error("write", where, error) from error
    return where


def place_folder(where: Path, fill: Callable[[Path], None], *, again: bool) -> Path:
    """Make a folder that ``fill`` fills: others see all of it or none; one exported before goes only then.

    Raises:
        RunStoreError: something is there and may not be replaced, or it cannot be written; nothing is left.
    """
    if where.is_file():
        raise RunStoreError(
            f"cannot export to {where}: it is not a folder, and this kind makes one. Give another path=."
        )
    hidden = where.with_name(f".{where.name}.{uuid.uuid4().hex[:12]}.tmp")
    old = hidden.with_suffix(".old")
    try:
        hidden.mkdir()
        fill(hidden)
        if where.exists():
            if not again:
                raise _taken(where)
            where.rename(old)
        hidden.rename(where)
    except OSError as error:
        if old.is_dir() and not where.exists():
            old.rename(where)
        if isinstance(error, RunStoreError):
            raise
        raise store_error("write", where, error) from error
    finally:
        for left in (hidden, old):
            if left.is_dir():
                shutil.rmtree(left)
    return where


def _taken(where: Path) -> RunStoreError:
    return RunStoreError(f"cannot export to {where}: it is there already. Give another path=, or again=True.")
