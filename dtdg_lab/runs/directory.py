"""RunDirectory: where everything one run leaves is kept."""

from __future__ import annotations

import errno
import json
import shutil
import time
import uuid
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunStoreError
from dtdg_lab.runs.environment import describe_environment
from dtdg_lab.runs.json_files import read_json, store_error, write_json, write_text
from dtdg_lab.runs.kept import Kept, kept_checkpoints

STATES = ("starting", "running", "paused", "stopping", "finished", "stopped", "failed")
ENDED = ("finished", "stopped", "failed")
_FOLDERS = ("records", "checkpoints", "live")
_MOST_RUNS_A_SECOND = 1000
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The folder ``<root>/<yyyymmdd-hhmmss>-<system>-<config hash>/`` of one run and the files in it."""

    path: Path

    @classmethod
    def create(
        cls,
        config: RunConfig,
        *,
        root: str | Path = "runs",
        environment: dict[str, Any] | None = None,
        begin: Path | None = None,
    ) -> RunDirectory:
        """Make the folder of a new run with its config, environment and status ``starting``.

        It appears whole or not at all: it is filled under a hidden name and then renamed.

        Args:
            config: the settings of the run.
            root: the folder that holds runs; made when missing.
            environment: what environment.json shall hold; ``describe_environment(config)`` when not given.
            begin: a checkpoint of another run that this one begins with; it is copied.

        Raises:
            RunStoreError: the disk is full, the folder is read-only, or a file is in the way.
        """
        root = Path(root)
        made_root = not root.exists()
        hidden = root / f".new-{uuid.uuid4().hex[:12]}"
        name = f"{datetime.now():%Y%m%d-%H%M%S}-{config.system}-{config.short_hash}"
        try:
            for folder in _FOLDERS:
                (hidden / folder).mkdir(parents=True)
            draft = cls(hidden)
            write_text(draft.config_file, config.to_json() + "\n")
            write_json(draft.environment_file, environment or describe_environment(config))
            if begin is not None:
                shutil.copyfile(begin, draft.begin_file)
            draft.write_status("starting")
            return cls(_place(hidden, root, name))
        except BaseException as error:
            _clear(hidden, root if made_root else None)
            if isinstance(error, OSError) and not isinstance(error, RunStoreError):
                raise store_error("make a run in", root, error) from error
            raise

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """The folder of an existing run.

        Raises:
            RunStoreError: there is no run at that path.
        """
        directory = cls(Path(path))
        if not directory.config_file.is_file():
            raise RunStoreError(
                f"{path} is not a run: it has no config.json. Give the folder of one run, such as "
                "runs/20260131-120000-psg-1a2b3c4d."
            )
        return directory

    @property
    def id(self) -> str:
        """The folder's name, which names the run."""
        return self.path.resolve().name

    @property
    def config_file(self) -> Path:
        """The settings, as RunConfig.to_json wrote them."""
        return self.path / "config.json"

    @property
    def environment_file(self) -> Path:
        """Versions, devices and commit the run was started with."""
        return self.path / "environment.json"

    @property
    def status_file(self) -> Path:
        """The present state (see :meth:`status`)."""
        return self.path / "status.json"

    @property
    def records(self) -> Path:
        """The folder of record tables."""
        return self.path / "records"

    def record_file(self, rank: int) -> Path:
        """The lines that ``rank`` appends to."""
        return self.records / f"rank{rank}.jsonl"

    def record_files(self) -> dict[int, Path]:
        """Rank -> its lines, in order of ranks, for the ranks that wrote any."""
        found = {int(path.stem[4:]): path for path in self.records.glob("rank*.jsonl") if path.stem[4:].isdigit()}
        return dict(sorted(found.items()))

    def table_file(self, table: str) -> Path:
        """A table merged over ranks, after the end."""
        return self.records / f"{table}.parquet"

    @property
    def merged_file(self) -> Path:
        """Which lines the merged tables hold: the size of each rank's file when they were merged."""
        return self.records / "merged.json"

    @property
    def checkpoint_file(self) -> Path:
        """The last checkpoint."""
        return self.path / "checkpoints" / "last.pt"

    @property
    def begin_file(self) -> Path:
        """The checkpoint of another run that this one began with, where it is a fork."""
        return self.path / "checkpoints" / "begun.pt"

    @property
    def checkpoints(self) -> tuple[Kept, ...]:
        """All checkpoints that can be branched from, in order of steps: ``name epoch iteration step``."""
        return kept_checkpoints(self.checkpoint_file.parent)

    @property
    def summary_file(self) -> Path:
        """The numbers of the whole run, after the end."""
        return self.path / "summary.json"

    @property
    def report_file(self) -> Path:
        """The report for people, after the end."""
        return self.path / "report.html"

    @property
    def live(self) -> Path:
        """The folder of addresses used while the run is under way."""
        return self.path / "live"

    def config(self) -> RunConfig:
        """The settings the run was started with."""
        return RunConfig.load(self.config_file)

    def environment(self) -> dict[str, Any]:
        """What environment.json holds."""
        return read_json(self.environment_file)

    def add_environment(self, **facts: Any) -> None:
        """Add facts that are known only later, such as the data hash or the energy reader."""
        write_json(self.environment_file, self.environment() | facts)

    def write_status(self, state: str, *, reason: str = "", rank: int | None = None, attempt: int = 1) -> None:
        """Replace status.json atomically; a reader sees the old or the new one, never a part.

        Args:
            state: one of ``STATES``.
            reason: why, in words, for a state that is not the usual one.
            rank: the rank that caused it, where one did.
            attempt: how many times the run was started, from 1.

        Raises:
            ConfigError: there is no such state.
            RunStoreError: the file cannot be written.
        """
        if state not in STATES:
            raise ConfigError(f"state={state!r}: allowed {', '.join(STATES)}.")
        facts = {"state": state, "reason": reason, "rank": rank, "attempt": attempt, "time_ns": time.time_ns()}
        write_json(self.status_file, facts)

    def status(self) -> dict[str, Any]:
        """The last status written: ``state``, ``reason``, ``rank``, ``attempt``, ``time_ns``."""
        return read_json(self.status_file)

    def summary(self) -> dict[str, Any]:
        """What summary.json holds; empty before the end."""
        return json.loads(self.summary_file.read_text(encoding="utf-8")) if self.summary_file.is_file() else {}


def _place(hidden: Path, root: Path, name: str) -> Path:
    """Rename to the first free of name, name-2, name-3, ...; renaming never replaces a folder that holds something."""
    for number in range(1, _MOST_RUNS_A_SECOND):
        target = root / (name if number == 1 else f"{name}-{number}")
        try:
            return hidden.rename(target)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
    raise RunStoreError(f"cannot make a run in {root}: {_MOST_RUNS_A_SECOND} runs are called {name}. Try again.")


def _clear(hidden: Path, made_root: Path | None) -> None:
    """Remove what a failed create made: the hidden folder, and the root where it is new and otherwise empty."""
    if hidden.is_dir():
        shutil.rmtree(hidden)
    if made_root is not None and made_root.is_dir() and not any(made_root.iterdir()):
        made_root.rmdir()
