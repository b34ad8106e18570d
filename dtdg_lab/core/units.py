"""Human-readable numbers and lists, paths, and the process's peak memory."""

from __future__ import annotations

import os
import re
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dtdg_lab.core.errors import ClusterError, DataError, LabError, shortened

STATE = "DTDG_LAB_STATE"
NETEM = "netem"  # folder in the state directory: marks network devices with traffic control


def as_path(path: Any, called: str, raises: type[LabError] = DataError) -> Path:
    """Return an absolute path, with ~ and environment variables expanded as a shell does.

    The path need not exist. The part that exists literally is not expanded.

    Args:
        path: text, or a path object.
        called: its name in error messages: an argument such as ``root``, or an environment variable.
        raises: the class of the error.

    Raises:
        LabError: of the class ``raises``: the value is no path, names an unknown user or variable, or is relative to a
            removed working folder.
    """
    try:
        text = os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise raises(
            f"{called}={shortened(path)} is of type {type(path).__name__}; the path of a file or folder is needed, "
            "as text or pathlib.Path."
        )
    if not text or "\0" in text:
        raise raises(f"{called}={shortened(text)} is no path; the path of a file or folder is needed.")
    try:
        expanded = _expand_variables(Path(text)).expanduser()
    except KeyError as error:
        raise raises(
            f"{called}={shortened(text)}: the environment variable {error.args[0]} is not set. Set it, or give the "
            "whole path."
        ) from error
    except RuntimeError as error:
        raise raises(f"{called}={shortened(text)}: {error} Give the whole path.") from error
    if expanded.is_absolute():
        return expanded
    return working_folder(f"{called}={shortened(text)}", raises) / expanded


def _expand_variables(path: Path) -> Path:
    """Return a path with variables expanded in the part that does not exist literally.

    Raises:
        KeyError: a variable is not set.
    """
    present = path
    while not os.path.lexists(present) and present != present.parent:
        present = present.parent
    rest = os.path.expandvars(str(path.relative_to(present)))
    if unset := _VARIABLE.search(rest):
        raise KeyError(unset.group().strip("${}"))
    return Path(rest) if present == Path() else Path(f"{present}/{rest}")  # a variable may hold an absolute path


def working_folder(needed_for: str, raises: type[LabError]) -> Path:
    """Return the working folder.

    Args:
        needed_for: the setting that needs it, for messages.
        raises: the class of the error.

    Raises:
        LabError: of the class ``raises``: the folder has been removed.
    """
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise raises(
            f"{needed_for}: the working folder of this process has been removed. Change to another one: os.chdir(...) "
            "in a notebook, cd in a terminal."
        ) from error


_VARIABLE = re.compile(r"\$(\w+|\{[^}]*\})", re.ASCII)  # as os.path.expandvars knows them


def state_root() -> Path:
    """Return the directory of sessions and of marks for clean-up: ``$DTDG_LAB_STATE``, else ``~/.local/state``.

    Raises:
        ClusterError: the variable is no path.
    """
    variable = os.environ.get(STATE)
    return as_path(variable or "~/.local/state/dtdg-lab", STATE, ClusterError)


_STATUS = Path("/proc/self/status")


def peak_rss_bytes() -> int:
    """Return the peak resident set size of this process, in bytes.

    On Linux from VmHWM, because ``getrusage`` there includes the memory of the parent process before exec.
    """
    if _STATUS.exists():
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def format_bytes(count: float | None) -> str:
    """Return bytes with a binary prefix, such as ``1.5 MiB``; ``unknown`` for None."""
    if count is None:
        return "unknown"
    if round(abs(count)) < 1024:
        return f"{count:.0f} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if round(abs(value), 1) < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


def format_seconds(seconds: float | None) -> str:
    """Return a duration with a fitting unit, such as ``12 ms``, ``3.4 s`` or ``1 h 02 min``; ``unknown`` for None."""
    if seconds is None:
        return "unknown"
    if abs(seconds) < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min"


def format_joules(joules: float | None) -> str:
    """Return energy with a fitting unit, such as ``12.3 J`` or ``4.56 kJ``; ``unknown`` for None (never 0)."""
    if joules is None:
        return "unknown"
    if abs(joules) < 999.5:
        return f"{joules:.3g} J"
    return f"{joules / 1e3:.2f} kJ" if abs(joules) < 999_995 else f"{joules / 1e6:.2f} MJ"


def join_words(items: Sequence[str]) -> str:
    """Return ``a``, ``a and b``, or ``a, b and c``."""
    if len(items) < 2:
        return "".join(items)
    return ", ".join(items[:-1]) + " and " + items[-1]


def percent(share: float) -> str:
    """Return a share in whole percent, such as ``31%``."""
    return f"{100 * share:.0f}%"


def format_percent(share: float) -> str:
    """Return a share in percent, with a decimal below 10%, such as ``28%`` or ``5.2%``."""
    percent = 100 * share
    return f"{percent:.1f}%" if 0 < percent < 9.95 else f"{percent:.0f}%"
