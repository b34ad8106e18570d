"""The lock of a study's or race's folder: one writer at a time."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from dtdg_lab.core.errors import RunStoreError
from dtdg_lab.runs.json_files import read_json, store_error, write_json

LOCK, WRITER = "lock", "writer.json"


@contextmanager
def one_writer(folder: Path, kind: str = "study") -> Iterator[None]:
    """Hold a folder for writing; the operating system releases it when the process ends, even by a kill.

    Args:
        folder: of a study or race.
        kind: ``study`` or ``race``.

    Raises:
        RunStoreError: another process, or another call in this one, writes it; the message names it.
    """
    lock = filelock.FileLock(folder / LOCK, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout as error:
        raise RunStoreError(
            f"the {kind} {folder} is being written by {_writer(folder)}: a {kind} has one writer. Wait for it or end "
            f"it, give another name=, or look at it meanwhile with lab.open({str(folder)!r})."
        ) from error
    except OSError as error:
        raise store_error("lock", folder / LOCK, error) from error
    try:
        facts = {"pid": os.getpid(), "host": socket.gethostname(), "command": " ".join(sys.argv)[:200]}
        write_json(folder / WRITER, facts)
        yield
    finally:
        (folder / WRITER).unlink(missing_ok=True)
        lock.release()


def _writer(folder: Path) -> str:
    try:
        facts = read_json(folder / WRITER)
        if (facts["pid"], facts["host"]) == (os.getpid(), socket.gethostname()):
            return f"another call in this process ({os.getpid()})"
        return f"process {facts['pid']} on {facts['host']} ({facts['command']})"
    except (RunStoreError, KeyError, TypeError, json.JSONDecodeError):
        return "another process"
