"""One writer of a study at a time, whatever becomes of it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dtdg_lab.core.errors import RunStoreError
from dtdg_lab.runs.json_files import read_json, store_error, write_json

LOCK, WRITER = "lock", "writer.json"
_HELD: set[str] = set()  # a lock of a file is a whole process's: its threads need to know of each other
_GUARD = threading.Lock()


@contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Hold a study's folder for writing; the system lets go of it when the process ends, however it does.

    Raises:
        RunStoreError: another process, or another call in this one, writes it; the message names it.
    """
    name = str(folder.resolve())
    with _GUARD:
        if name in _HELD:
            raise _busy(folder, f"another call in this process ({os.getpid()})")
        _HELD.add(name)
    try:
        with _open(folder / LOCK) as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError) as error:
                raise _busy(folder, _told(folder)) from error
            except OSError as error:
                raise store_error("lock", folder / LOCK, error) from error
            facts = {"pid": os.getpid(), "host": socket.gethostname(), "command": " ".join(sys.argv)[:200]}
            write_json(folder / WRITER, facts)
            try:
                yield
            finally:
                (folder / WRITER).unlink(missing_ok=True)
    finally:
        with _GUARD:
            _HELD.discard(name)


def _open(path: Path) -> Any:
    try:
        return path.open("a")
    except OSError as error:
        raise store_error("lock", path, error) from error


def _told(folder: Path) -> str:
    try:
        facts = read_json(folder / WRITER)
        return f"process {facts['pid']} on {facts['host']} ({facts['command']})"
    except (RunStoreError, KeyError, TypeError, json.JSONDecodeError):
        return "another process"


def _busy(folder: Path, who: str) -> RunStoreError:
    return RunStoreError(
        f"the study {folder} is being written by {who}: a study has one writer. Wait for it or end it, give another "
        "name=, or look at it meanwhile with lab.open_study(path)."
    )
