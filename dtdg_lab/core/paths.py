"""Paths that somebody gives, as text or pathlib.Path, with ~ for a home folder; and where the lab keeps its state."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dtdg_lab.core.errors import DataError, shortened

NETEM = "netem"  # folder in the state of the lab: marks of devices whose traffic is shaped


def as_path(given: Any, called: str) -> Path:
    """The path, with ~ expanded; nothing need be there.

    Args:
        given: text, or a path object that stands for text.
        called: what the message calls it, such as ``root``.

    Raises:
        DataError: it is no path.
    """
    try:
        text = os.fspath(given)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise DataError(
            f"{called}={shortened(given)} is of type {type(given).__name__}; the path of a file or folder is needed, "
            "as text or pathlib.Path."
        )
    if not text or "\0" in text:
        raise DataError(f"{called}={shortened(text)} is no path; the name of a file or folder is needed.")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise DataError(f"{called}={shortened(text)}: {error} Give the whole path.") from error


def state_root() -> Path:
    """Where sessions, and marks of what is to be undone, are kept: ``$DTDG_LAB_STATE``, else ``~/.local/state``."""
    return Path(os.environ.get("DTDG_LAB_STATE") or Path.home() / ".local" / "state" / "dtdg-lab")
