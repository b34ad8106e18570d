"""JSON files of runs: written atomically, and read with clear errors if damaged."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from dtdg_lab.core import files, system_errors
from dtdg_lab.core.errors import RunStoreError, shortened
from dtdg_lab.core.system_errors import store_error


def finite(value: Any) -> Any:
    """Return a JSON-compatible copy: numpy scalars and arrays become Python's, NaN and infinities become None."""
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
    """Return JSON text without NaN literals; see :func:`finite`."""
    return json.dumps(finite(value), indent=indent, allow_nan=False)


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file atomically: readers see the old or the new file (temporary file, rename).

    Raises:
        RunStoreError: the file cannot be written; no partial file remains.
    """
    path = Path(path)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file to write; it replaces ``path`` at the end of the block.

    Raises:
        RunStoreError: the file cannot be written; no partial file remains.
    """
    try:
        with files.replacing(path) as temporary:
            yield temporary
    except OSError as error:
        raise error if isinstance(error, RunStoreError) else store_error("write", path, error) from error


def write_json(path: str | Path, value: Any) -> Path:
    """Write indented JSON atomically (see :func:`write_text`); NaN and infinities become null.

    Raises:
        RunStoreError: the file cannot be written; no partial file remains.
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


RESTORE = "Restore it from a copy; nothing in the run's folder was changed."


def reading(path: str | Path, remedy: str = RESTORE) -> AbstractContextManager[None]:
    """Distinguish damaged files of a run from system errors; see :func:`system_errors.reading`.

    Raises:
        DataError: the content is not of this version's format, or cannot be read.
    """
    return system_errors.reading(path, remedy=remedy)


def read_object(path: Path, *, newest: int | None = None, needs: Collection[str] = ()) -> dict[str, Any]:
    """Read a JSON file with an object.

    Args:
        path: path of the file.
        newest: this version's schema; files without a schema number have the oldest.
        needs: required names.

    Raises:
        RunStoreError: the file is unreadable, damaged, or of a newer schema.
    """
    try:
        content = read_json(path)
    except RecursionError as error:
        raise RunStoreError(f"{path} is damaged (it is nested too deeply to be read). {RESTORE}") from error
    if not isinstance(content, dict):
        raise RunStoreError(f"{path} is damaged: it contains a JSON {type(content).__name__}, not an object. {RESTORE}")
    if newest is not None:  # names may have other meanings in a newer version
        schema = content.get("schema", newest)
        if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
            raise RunStoreError(f"{path} is damaged: its schema is {shortened(schema)}, not a number from 1. {RESTORE}")
        if schema > newest:
            raise RunStoreError(
                f"{path} was written by a newer version of DTDG Lab, with schema {schema}; this version reads up "
                f"to {newest}. Update dtdg_lab, or open the run where it was made; nothing in its folder was changed."
            )
    missing = [name for name in needs if name not in content]
    if missing:
        raise RunStoreError(f"{path} is damaged: it lacks {', '.join(missing)}. {RESTORE}")
    return content
