"""The error tree: every message says what was given, what is allowed, and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def shortened(value: object, length: int = 80) -> str:
    """Return the repr of a value for an error message, on one line and truncated."""
    try:
        text = " ".join(repr(value).split(maxsplit=length))
    except Exception as error:  # even repr() may fail, such as for an int of 5,000 digits
        return f"a {type(value).__name__} that cannot be shown ({type(error).__name__})"
    return text if len(text) <= length else f"{text[:length]}..."


class LabError(Exception):
    """Base of every error DTDG Lab raises on purpose."""


class ConfigError(LabError, ValueError):
    """Raised when a setting has a value that is not allowed."""


class UnknownNameError(ConfigError):
    """Raised when a name (system, model, data set, option) is not in the catalogue."""

    def __init__(self, kind: str, name: object, allowed: Iterable[str], advice: str = "", reason: str = "") -> None:
        names = sorted(allowed)
        close = difflib.get_close_matches(shortened(name).strip("'"), names, n=1)
        hint = f" Did you mean {close[0]!r}?" if close and not reason else ""
        first = reason or f"Unknown {kind} {shortened(name)}."
        super().__init__(f"{first}{hint}{' ' + advice if advice else ''} Allowed: {', '.join(names) or 'none yet'}.")
        self.given = name
        self.close = close[0] if close else None


class UnsupportedError(ConfigError):
    """Raised when two settings are incompatible, such as a model and a strategy that does not support its memory."""


class PredictionError(LabError):
    """Raised when a lesson is asked for an answer before the reader has predicted it."""

    def _render_traceback_(self) -> list[str]:
        """Return the text that a notebook shows: the message alone."""
        return [str(self)]


class PlanError(LabError, ValueError):
    """Raised when index arrays do not form a valid plan."""


class PartitionError(LabError):
    """Raised when a graph cannot be divided into the requested parts, or a partition belongs to another graph."""


class DataError(LabError):
    """Raised when a data set cannot be found, read or parsed."""


class ChecksumError(DataError, ValueError):
    """Raised when a file's SHA-256 differs from the recorded one."""


class NotAvailableError(LabError):
    """Raised when this machine or installation lacks a requested feature."""


class ClusterError(LabError):
    """Raised when engines cannot be started, reached or repaired."""


class RunStoreError(LabError, OSError):
    """Raised when a run's files cannot be written or read."""


class RunFailedError(LabError):
    """Raised when a run ended without finishing; the message names the rank and the cause."""


class RunInterruptedError(RunFailedError):
    """Raised when a run was interrupted: a signal asked its processes to leave, or they are gone.

    Attributes:
        signal: name of the signal that this process got; empty without one.
    """

    def __init__(self, message: str, signal: str = "") -> None:
        super().__init__(message)
        self.signal = signal


class StoppedError(LabError):
    """Raised when a run is stopped before its first step."""


class StepFailedError(Exception):
    """Raised when a rank failed in a collective step; the run cannot continue, because other ranks wait in the step."""


class NotFiniteError(RunFailedError):
    """Raised when a loss is NaN or infinite; the last good checkpoint is kept."""


class TestPartError(LabError):
    """Raised when the test split is read while a run trains; the message names who may read it, and when."""

    __test__ = False  # keeps pytest from collecting it


class ControlError(LabError):
    """Raised when a control request cannot be delivered or is refused."""


class ContractError(LabError, AssertionError):
    """Raised when a plug-in breaks the contract of its kind; the message names the rule and the case."""


def require(holds: bool, rule: str) -> None:
    """Raise unless a rule holds.

    Raises:
        ContractError: the rule does not hold.
    """
    if not holds:
        raise ContractError(rule)
