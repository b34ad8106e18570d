"""RunDirectory: the folder of all files of one run."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from dtdg_lab.config import extensions
from dtdg_lab.config.extensions import Extension
from dtdg_lab.config.run_config import SCHEMA, RunConfig
from dtdg_lab.core import system_errors
from dtdg_lab.core.errors import ConfigError, RunStoreError
from dtdg_lab.core.system_errors import store_error
from dtdg_lab.core.units import as_path
from dtdg_lab.records.lines import last_step
from dtdg_lab.runs.checkpoints import StoredCheckpoint, read_checkpoint, stored_checkpoints
from dtdg_lab.runs.environment import ENVIRONMENT_SCHEMA, describe_environment
from dtdg_lab.runs.json_files import read_object, reading, write_json, write_text
from dtdg_lab.runs.liveness import host_id, is_alive, read_notes
from dtdg_lab.runs.registered_code import add_extensions, learn_extensions, read_extensions

# interrupted: recorded if a signal ended the processes, otherwise derived from their absence
ENDED = ("finished", "stopped", "failed", "interrupted")
STATES = ("starting", "running", "paused", "stopping", *ENDED)
_FOLDERS = ("records", "checkpoints", "live")
OLD_S = 90.0  # more than the 60 s for starting engines, and for which a network file system may show an old time
_MOST_RUNS_A_SECOND = 1000
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


class _Within:
    """A file or folder of a run, by its path within the run's folder."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, run: RunDirectory, _: object) -> Path:
        return run.path / self._path


def record_file(records: Path, rank: int) -> Path:
    """Return the record file of a rank in a folder of records."""
    return records / f"rank{rank}.jsonl"


@dataclass(frozen=True)
class RunDirectory:
    """The folder ``<root>/<yyyymmdd-hhmmss>-<system>-<config hash>/`` of one run and the files in it.

    Attributes:
        path: the folder.
        config_file: the settings, as written by RunConfig.to_json.
        extensions_file: descriptions of the registered code that the run uses; missing if it uses none.
        environment_file: versions, devices and commit at the start of the run.
        status_file: the current state (see :meth:`status`).
        records: folder of record tables.
        checkpoint_file: the last checkpoint.
        begin_file: checkpoint of another run from which a fork started.
        summary_file: summary of the run, after its end.
        report_file: HTML report, after the end.
        live: folder of notes of the active run's processes.
        name_file: name given by a user; missing if there is none.
    """

    path: Path
    config_file = _Within("config.json")
    extensions_file = _Within(extensions.FILE)
    environment_file = _Within("environment.json")
    status_file = _Within("status.json")
    records = _Within("records")
    checkpoint_file = _Within("checkpoints/last.pt")
    begin_file = _Within("checkpoints/begun.pt")
    summary_file = _Within("summary.json")
    report_file = _Within("report.html")
    live = _Within("live")
    name_file = _Within("name.txt")

    @classmethod
    def create(
        cls,
        config: RunConfig,
        *,
        root: str | Path = "runs",
        environment: dict[str, Any] | None = None,
        begin: Path | None = None,
    ) -> RunDirectory:
        """Create the folder of a new run with its config, environment and status ``starting``.

        The folder appears atomically: it is filled under a hidden name and then renamed.

        Args:
            config: settings of the run.
            root: folder of runs; created if missing.
            environment: content of environment.json; by default ``describe_environment(config)``.
            begin: checkpoint of another run to start from; it is copied.

        Raises:
            ConfigError: the config uses code that is not registered in this process.
            RunStoreError: the folder cannot be created: the disk is full or read-only, or a file is in the way.
        """
        extensions.check_registered(config)
        root = as_path(root, "root", RunStoreError)
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
            add_extensions(hidden, config, begin=begin.parent.parent if begin is not None else None)
            draft.write_status("starting")
            return cls(_place(hidden, root, name))
        except BaseException as error:
            _clear(hidden, root if made_root else None)
            if isinstance(error, OSError) and not isinstance(error, RunStoreError):
                raise store_error("make a run in", root, error, setting="root=") from error
            raise

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """Open the folder of an existing run.

        Raises:
            RunStoreError: there is no run at that path.
        """
        directory = cls(as_path(path, "path", RunStoreError))
        with system_errors.reading(directory.path, remedy="", raises=RunStoreError):
            is_run = directory.config_file.is_file()
        if not is_run:
            raise RunStoreError(
                f"{path} is not a run: it has no config.json. Give the folder of one run, such as "
                "runs/20260131-120000-psg-1a2b3c4d."
            )
        return directory

    @property
    def id(self) -> str:
        """The name of the run: its folder's name."""
        return self.path.resolve().name

    def record_file(self, rank: int) -> Path:
        """Return the record file of a rank."""
        return record_file(self.records, rank)

    def record_files(self) -> dict[int, Path]:
        """Return rank -> record file, in order of ranks, for ranks with records."""
        return self.rank_files(".jsonl")

    def rank_files(self, suffix: str) -> dict[int, Path]:
        """Return rank -> its file ``rank<number><suffix>`` in the folder of records, in order of ranks.

        Raises:
            RunStoreError: the folder cannot be read.
        """
        try:
            names = os.listdir(self.records)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise store_error("read", self.records, error) from error
        numbers = [name.removeprefix("rank").removesuffix(suffix) for name in names]
        pairs = zip(numbers, names, strict=True)
        ranks = sorted(int(number) for number, name in pairs if number.isdigit() and name == f"rank{number}{suffix}")
        return {rank: self.records / f"rank{rank}{suffix}" for rank in ranks}

    @property
    def checkpoints(self) -> tuple[StoredCheckpoint, ...]:
        """All checkpoints that can be forked, in order of steps, each with name, epoch, iteration and step."""
        return stored_checkpoints(self.checkpoint_file.parent)

    def config(self) -> RunConfig:
        """Return the settings at the start of the run."""
        learn_extensions(self.path)
        return RunConfig.load(self.config_file, stored=True)

    def extensions(self) -> tuple[Extension, ...]:
        """Return the descriptions of the registered code that the run uses, in order of registration.

        Raises:
            RunStoreError: they are unreadable, damaged, or of a newer version.
        """
        return read_extensions(self.path)

    def environment(self) -> dict[str, Any]:
        """Read environment.json.

        Raises:
            RunStoreError: it is unreadable, damaged, or of a newer version.
        """
        return read_object(self.environment_file, newest=ENVIRONMENT_SCHEMA)

    def name(self) -> str:
        """Return the name given by a user; empty without one."""
        try:
            return self.name_file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return ""

    def rename(self, name: str) -> None:
        """Set the name of the run; an empty name removes it.

        Raises:
            RunStoreError: the file cannot be written.
        """
        write_text(self.name_file, name.strip() + "\n")

    def add_environment(self, **facts: Any) -> None:
        """Add facts that are known only later, such as the data hash or the energy reader."""
        write_json(self.environment_file, self.environment() | facts)

    def write_status(self, state: str, *, reason: str = "", rank: int | None = None, attempt: int = 1) -> None:
        """Replace status.json atomically.

        Args:
            state: one of ``STATES``.
            reason: explanation of an unusual state.
            rank: rank that caused it, if any.
            attempt: number of the attempt, from 1.

        Raises:
            ConfigError: the state is unknown.
            RunStoreError: the file cannot be written.
        """
        if state not in STATES:
            raise ConfigError(f"state={state!r} is unknown: choose one of {', '.join(STATES)}.")
        facts = {"state": state, "reason": reason, "rank": rank, "attempt": attempt, "time_ns": time.time_ns()}
        write_json(self.status_file, facts)

    def recorded_status(self) -> dict[str, Any]:
        """Return the last status written: ``state``, ``reason``, ``rank``, ``attempt``, ``time_ns``."""
        return read_object(self.status_file, needs=("state", "reason"))

    def status(self) -> dict[str, Any]:
        """Return the status; the state is ``interrupted`` if the attempt has not ended, but no process continues it."""
        status = self.recorded_status()
        reason = "" if status["state"] in ENDED else self._interruption(int(status.get("attempt", 1)))
        return {**status, "state": "interrupted", "reason": reason} if reason else status

    def _interruption(self, attempt: int) -> str:
        """Return why an unfinished attempt is interrupted; empty if it may be alive.

        Processes of this machine are identified by number and start time. For other machines, and before there are
        processes, the last sign of life decides: the newest time of a note, a record file or the status.
        """
        notes, this_host = read_notes(self.live, attempt).values(), host_id()
        if any(is_alive(note) for note in notes):
            return ""
        if notes and all(note.host == this_host for note in notes):
            count = "its process is" if len(notes) == 1 else f"all its {len(notes)} processes are"
            cause = f"{count} gone (killed, or out of memory)"
        else:
            sign_s = self._last_sign_s()
            age_s = time.time() - sign_s
            if age_s < OLD_S:
                return ""
            suspicion = (
                "its processes ran on another machine, or before a restart of this one"
                if notes
                else "no process trains it"
            )
            sign_time = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(sign_s))
            cause = f"{suspicion}; the last sign of life was at {sign_time}, {age_s:.0f} s ago (limit {OLD_S:g} s)"
        step = self._last_step()
        position = "before its first step" if step is None else f"at step {step}"
        remedy = (
            f"Its records and last checkpoint are kept. It continues by: {self._resume_call()}"
            if self.checkpoint_file.is_file()
            else "It has no checkpoint yet: start it again with session.train(run.config)."
        )
        return f"interrupted {position}: {cause}. {remedy}"

    def _last_sign_s(self) -> float:
        times = []
        for path in (*self.live.glob("rank*.json"), *self.record_files().values(), self.status_file):
            with suppress(FileNotFoundError):  # a rank has just exited
                times.append(path.stat().st_mtime)
        return max(times)

    def _last_step(self) -> int | None:
        """Return the newest step in the records of any rank; None without one."""
        steps = [last_step(path) for path in self.record_files().values()]
        return max((step for step in steps if step is not None), default=None)

    def _resume_call(self) -> str:
        """Return the line that resumes the run, and ends the engines after it."""
        return f"with lab.Session(ranks={self.config().ranks}) as session: session.resume({str(self.path)!r}).wait()"

    def mark_interrupted(self, attempt: int, signal_name: str, *, rank: int, overdue_s: float | None = None) -> None:
        """Record that a signal ended an attempt, unless its end is already recorded.

        Args:
            attempt: number of the attempt.
            signal_name: name of the signal, such as ``SIGTERM``.
            rank: rank that received it.
            overdue_s: seconds after which the rank exits without a checkpoint of its last step; None if it wrote one.

        Raises:
            RunStoreError: the status cannot be written.
        """
        status = self.recorded_status()
        if status["attempt"] != attempt or status["state"] in ENDED:
            return
        saved = [read_checkpoint(path).step for path in (self.checkpoint_file, self.begin_file) if path.is_file()]
        newest = self._last_step()
        step = max([*saved, 0 if newest is None else newest + 1])
        process = "its process" if self.config().ranks == 1 else f"rank {rank}"
        cause = f"{process} was asked to leave"
        if overdue_s is not None:
            cause += f", and left after {overdue_s:g} s without waiting for a step or preparation that took longer"
        remedy = (
            f"Its records and its checkpoint after {saved[0]} steps are kept. It continues by: {self._resume_call()}"
            if saved
            else f"It has no checkpoint yet. It starts from the beginning by: {self._resume_call()}"
        )
        reason = f"interrupted by {signal_name} at step {step}: {cause}. {remedy}"
        self.write_status("interrupted", reason=reason, rank=rank, attempt=attempt)

    def summary(self) -> dict[str, Any]:
        """Return the content of summary.json; empty before the end of the run."""
        try:
            return dict(json.loads(self.summary_file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}


def _place(hidden: Path, root: Path, name: str) -> Path:
    """Rename to the first free name of name, name-2, name-3, ...; never replace a non-empty folder."""
    for number in range(1, _MOST_RUNS_A_SECOND):
        target = root / (name if number == 1 else f"{name}-{number}")
        try:
            return hidden.rename(target)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
    raise RunStoreError(f"cannot create a run in {root}: {_MOST_RUNS_A_SECOND} runs have the name {name}. Try again.")


def _clear(hidden: Path, made_root: Path | None) -> None:
    """Remove the remains of a failed creation: the hidden folder, and the root if it is new and otherwise empty."""
    if hidden.is_dir():
        shutil.rmtree(hidden)
    if made_root is not None and made_root.is_dir() and not any(made_root.iterdir()):
        made_root.rmdir()


def read_config(path: Path) -> RunConfig:
    """Read the settings of a run.

    Raises:
        RunStoreError: they are unreadable, damaged, or of a newer version, with another schema or unknown settings.
    """
    read_object(path, newest=SCHEMA)
    learn_extensions(path.parent)
    try:
        with reading(path):
            return RunConfig.load(path, stored=True)
    except ConfigError as error:
        raise RunStoreError(
            f"{path} cannot be used by this version of DTDG Lab: {error} If a newer version wrote it (see "
            "environment.json beside it), update dtdg_lab; if it was damaged, restore it from a copy."
        ) from error
