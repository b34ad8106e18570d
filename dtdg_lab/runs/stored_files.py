"""Files of a stored run that may be damaged, or of a newer version: read whole, or refused by one clear error."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dtdg_lab.core.config import SCHEMA, RunConfig
from dtdg_lab.core.errors import ConfigError, DataError, LabError, RunStoreError, shortened
from dtdg_lab.runs.json_files import read_json

RESTORE = "Restore it from a copy; nothing in the run's folder was changed."
_PARSING = (
    ArithmeticError, AttributeError, LookupError, MemoryError, NotImplementedError, RecursionError, TypeError,
    ValueError,
)  # fmt: skip


@contextmanager
def reading(path: str | Path, remedy: str = RESTORE) -> Iterator[None]:
    """Turn what parsing a damaged file may come upon into one error that names the file; ours pass as they are.

    Args:
        path: what is read within the block.
        remedy: what to do about it, in a sentence.

    Raises:
        DataError: its content is not what this version writes.
    """
    try:
        yield
    except LabError:
        raise
    except _PARSING as error:
        said = " ".join(str(error).split())[:200]
        raise DataError(f"{path} is damaged ({type(error).__name__}: {said}). {remedy}") from error


def read_object(path: Path, *, newest: int | None = None, needs: Collection[str] = ()) -> dict[str, Any]:
    """A JSON file that holds an object.

    Args:
        path: the file.
        newest: the schema this version writes; files without a number are as old as can be.
        needs: names it must hold.

    Raises:
        RunStoreError: it cannot be read, is damaged, or its schema is newer.
    """
    try:
        found = read_json(path)
    except RecursionError as error:
        raise RunStoreError(f"{path} is damaged (it is nested too deeply to be read). {RESTORE}") from error
    if not isinstance(found, dict):
        raise RunStoreError(f"{path} is damaged: it holds a JSON {type(found).__name__}, not an object. {RESTORE}")
    if newest is not None:
        check_schema(path, found.get("schema", newest), newest)
    missing = [name for name in needs if name not in found]
    if missing:
        raise RunStoreError(f"{path} is damaged: it lacks {', '.join(missing)}. {RESTORE}")
    return found


def check_schema(path: str | Path, schema: Any, newest: int) -> None:
    """Refuse what a newer version wrote: names may have other meanings there.

    Raises:
        RunStoreError: the schema is no number, or above ``newest``.
    """
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise RunStoreError(f"{path} is damaged: its schema is {shortened(schema)}, not a number from 1. {RESTORE}")
    if schema > newest:
        raise RunStoreError(
            f"{path} was written by a newer version of DTDG Lab: it has schema {schema}, and this version reads up to "
            f"{newest}. Update dtdg_lab, or open the run where it was made; nothing in its folder was changed."
        )


def read_config(path: Path) -> RunConfig:
    """The settings of a run.

    Raises:
        RunStoreError: they cannot be read, are damaged, or are of a newer version: of another schema, or with settings
            that this version does not have.
    """
    read_object(path, newest=SCHEMA)
    try:
        with reading(path):
            return RunConfig.load(path)
    except ConfigError as error:
        raise RunStoreError(
            f"{path} cannot be used by this version of DTDG Lab: {error} If a newer version wrote it (environment.json "
            "beside it names the version), update dtdg_lab; if it was damaged, restore it from a copy."
        ) from error
