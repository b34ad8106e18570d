"""Runs read back from exported files: whole ones, and what some files hold of one."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import UnknownNameError
from dtdg_lab.runs.open import StoredRun
from dtdg_lab.runs.packed_run import read_about, unpack

if TYPE_CHECKING:
    import pandas as pd


def temporary_folder(owner: object) -> Path:
    """A new folder that goes when its owner goes, also where that could not even be made."""
    folder = tempfile.mkdtemp(prefix="dtdg-lab-export-")
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


class ExportedRun(StoredRun):
    """A run read back from an exported file, with all that a run read from its folder has but checkpoints.

    It is unpacked to a temporary folder (``path``), which goes when the object goes.

    Attributes:
        source: the file it was read from.
        thinned: what the file left out of the tables, in words; empty where they are whole.
    """

    def __init__(self, files: Mapping[str, bytes], source: Path, *, points: int = 1500) -> None:
        about = read_about(files, "run")
        super().__init__(unpack(files, temporary_folder(self)), points=points)
        self.source = source
        self.thinned: str = about.get("thinned") or ""

    def __repr__(self) -> str:
        note = f", thinned: {self.thinned}" if self.thinned else ""
        return f"ExportedRun({self.id!r}, {self.status!r}, from {str(self.source)!r}{note})"


@dataclass(frozen=True, slots=True, eq=False)
class PartialRun:
    """What an exported file that does not hold a whole run holds of it.

    Attributes:
        id: of the run.
        kind: of the file: ``tensorboard``, ``trace``, ``script``, ``notebook`` or ``table``.
        source: the file or folder it was read from.
        config: the settings the run was started with.
        tables: record tables, or parts of their columns, by name.
        summary: the numbers of the whole run, where the file holds them.
        environment: what the run was done with, where the file holds it.
        holds: what of the run is here, in words.
    """

    id: str
    kind: str
    source: Path
    config: RunConfig
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    holds: str = ""

    def __repr__(self) -> str:
        return f"PartialRun({self.id!r}, from the {self.kind} {str(self.source)!r}: {self.holds})"

    def table(self, name: str) -> pd.DataFrame:
        """One of ``tables``.

        Raises:
            UnknownNameError: the file does not hold it.
        """
        if name not in self.tables:
            raise UnknownNameError(
                f"record table of a {self.kind}", name, self.tables,
                "An HTML or Parquet export, or the run's folder, has all tables.",
            )  # fmt: skip
        return self.tables[name]
