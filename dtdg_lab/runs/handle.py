"""Protocols of run handles: what readers of an active or a stored run use."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.frames import RunFrames

R_co = TypeVar("R_co", covariant=True)


class RunHandle(Protocol):
    """An active run.

    Attributes:
        live: its record tables as columns; hold ``lock`` while reading them.
    """

    live: RunTables

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """The lock of ``live``."""

    @property
    def status(self) -> str:
        """The state of the run."""

    @property
    def reason(self) -> str:
        """The explanation of an unusual state."""


class ReadableRun(Protocol):
    """A run that is read from its folder."""

    id: str
    path: Path
    directory: RunDirectory
    tables: RunFrames
    config: RunConfig

    @property
    def live(self) -> RunTables:
        """The record tables as columns."""

    @property
    def status(self) -> str:
        """The state of the run."""

    @property
    def summary(self) -> dict[str, Any]:
        """The run's summary; empty before its end."""

    @property
    def environment(self) -> dict[str, Any]:
        """The environment of the run."""

    @property
    def events(self) -> Sequence[dict[str, Any]]:
        """All events of all attempts."""


class ResumingSession(Protocol[R_co]):
    """A session whose engines can resume a stored run."""

    def resume(self, run: Any, **changes: Any) -> R_co:
        """Resume a run and return its handle."""
