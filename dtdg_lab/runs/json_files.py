"""JSON files that are either whole or not there, and errors that say what to do about a disk."""

from __future__ import annotations

import errno
import json
import math
import os
import uuid
from pathlib import Path
from typing import Any

from dtdg_lab.core.errors import RunStoreError

_ADVICE = {
    errno.ENOSPC: "The disk is full: free some space, or give another folder with root=.",
    errno.EDQUOT: "Your quota is used up: free some space, or give another folder with root=.",
    errno.EROFS: "The file system is read-only: give a folder you can write with root=.",
    errno.EACCES: "You may not write there: give a folder you can write with root=.",
    errno.EPERM: "You may not write there: give a folder you can write with root=.",
    errno.ENOTDIR: "A file stands where a folder is needed: move it away, or give another folder with root=.",
    errno.EEXIST: "Something else stands there: move it away, or give another folder with root=.",
    errno.EISDIR: "A folder stands where a file is needed: move it away.",
    errno.ENOENT: "Check the path; open_run takes the folder that Session.train or lab.train made.",
}


def store_error(action: str, path: str | Path, error: OSError) -> RunStoreError:
    """A RunStoreError that names the action, the path, the cause and what to do."""
    advice = _ADVICE.get(error.errno or 0, "Check the disk, or give another folder with root=.")
    return RunStoreError(f"cannot {action} {path}: {error.strerror or error}. {advice}")


def finite(value: Any) -> Any:
    """A copy that JSON can hold: numpy scalars and arrays as Python's, NaN and infinities as None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if hasattr(value, "tolist"):
        return finite(value.tolist())
    return value


def dumps(value: Any, *, indent: int | None = None) -> str:
    """JSON text without NaN literals; see :func:`finite`."""
    return json.dumps(finite(value), indent=indent, allow_nan=False)


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file so that readers see the old one or the new one, never a part (temporary file, then rename).

    Raises:
        RunStoreError: the file cannot be written; nothing half-written is left.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        discard(temporary)
        raise store_error("write", path, error) from error
    return path


def discard(path: Path) -> None:
    """Remove a temporary file that may not exist; a parent that is no folder counts as not existing."""
    if path.exists():
        path.unlink()


def write_json(path: str | Path, value: Any) -> Path:
    """Write indented JSON atomically (see :func:`write_text`); NaN and infinities become null.

    Raises:
        RunStoreError: the file cannot be written; nothing half-written is left.
    """
    return write_text(path, dumps(value, indent=2) + "\n")


def read_json(path: str | Path) -> Any:
    """Read a JSON file.

    Raises:
        RunStoreError: the file cannot be read or is not JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise store_error("read", path, error) from error
    except ValueError as error:
        raise RunStoreError(
            f"{path} is not valid JSON ({error}). It was not written by this program; restore it."
        ) from error
