"""Trials of a study on disk: a file that is only appended to, a line for all that happens to one."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.errors import RunStoreError
from dtdg_lab.runs.json_files import dumps, store_error

FILE = "trials.jsonl"
WAITING, RUNNING, FINISHED, PRUNED, FAILED, INTERRUPTED, REFUSED = (
    "waiting", "running", "finished", "pruned", "failed", "interrupted", "refused",
)  # fmt: skip
OVER = (FINISHED, PRUNED, REFUSED)  # is not run again
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_EVENTS = ("asked", "begun", "ended", "noted")


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a study, or what is to become one.

    Attributes:
        key: what tells it from every other.
        number: of its combination of settings, from 0, as they come.
        settings: what it is called along what is studied.
        seed: of its run.
        status: waiting, running, finished, pruned, failed, interrupted, or, in a search, refused: no config allows it.
        reason: why it was pruned or failed.
        run: folder of its run, where it has one.
        values: numbers of its run; see ``runs.summary.MEANINGS``.
        provenance: protocol, purge gap and data of its run; see ``runs.provenance``.
        curve: (epochs done, loss) of every evaluation of the validation part.
        seconds: that it took.
        notes: what else happened to it, in words.
        asked_ns: when it was begun last, nanoseconds since 1970.
        on_engines: whether it was begun on a session's engines, which outlive the process that asked them.
    """

    key: str
    number: int
    settings: Mapping[str, Any]
    seed: int
    status: str = WAITING
    reason: str = ""
    run: Path | None = None
    values: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    provenance: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    curve: tuple[tuple[int, float], ...] = ()
    seconds: float | None = None
    notes: tuple[str, ...] = ()
    asked_ns: int = 0
    on_engines: bool = False


class TrialLog:
    """The file of a study's trials; made with the first line.

    Args:
        folder: of the study, ``<runs>/studies/<name>``: runs in ``<runs>`` are named relative to that.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._runs = folder.parent.parent

    def read(self) -> list[Trial]:
        """The trials as they stand, in the order in which they were begun first.

        A last line that was cut off by a kill is left out.

        Raises:
            RunStoreError: the file cannot be read, or another line is damaged.
        """
        try:
            raw = self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise store_error("read", self.path, error) from error
        found: dict[str, Trial] = {}
        whole = raw[: raw.rfind(b"\n") + 1]  # what a kill cut off is left out, and written over by the next line
        for number, each in enumerate(whole.splitlines(), start=1):
            try:
                line = json.loads(each)
                if line["event"] not in _EVENTS or not isinstance(line["key"], str):
                    raise ValueError(f"event {line['event']!r}")
                if (now := self._after(found.get(line["key"]), line)) is not None:
                    found[line["key"]] = now
            except (ValueError, KeyError, TypeError) as error:
                raise RunStoreError(
                    f"line {number} of {self.path} is damaged ({error}). Restore the file from a copy, or remove that "
                    "line: its trial is then made anew. Nothing was changed."
                ) from error
        return list(found.values())

    def _after(self, before: Trial | None, line: Mapping[str, Any]) -> Trial | None:
        """A trial after a line of it; None where the line with which it was begun is not there any more."""
        if line["event"] == "asked":
            known = before or Trial(line["key"], int(line["number"]), line["settings"], int(line["seed"]))
            return replace(
                known, status=RUNNING, reason="", run=None, asked_ns=int(line["time_ns"]),
                on_engines=bool(line["on_engines"]),
            )  # fmt: skip
        if before is None:
            return None
        if line["event"] == "begun":
            return replace(before, status=RUNNING, run=self._path(line["run"]))
        if line["event"] == "noted":
            return replace(before, notes=(*before.notes, str(line["note"])))
        return self._ended(before, line)

    def _ended(self, trial: Trial, line: Mapping[str, Any]) -> Trial:
        return replace(
            trial, status=line["status"], reason=line["reason"], run=self._path(line["run"]), values=line["values"],
            provenance=line["provenance"], curve=tuple((int(epoch), float(loss)) for epoch, loss in line["curve"]),
            seconds=line["seconds"],
        )  # fmt: skip

    def asked(self, trial: Trial, *, on_engines: bool) -> None:
        """A trial is about to be begun, in this process or on engines."""
        self._append(
            "asked", trial.key, number=trial.number, settings=dict(trial.settings), seed=trial.seed,
            on_engines=on_engines,
        )  # fmt: skip

    def begun(self, key: str, run: Path) -> None:
        """Its run has a folder."""
        self._append("begun", key, run=self._name(run))

    def noted(self, key: str, note: str) -> None:
        """Something happened to it that its people should know."""
        self._append("noted", key, note=note)

    def ended(self, trial: Trial) -> None:
        """A trial is over, for now or for ever: as its status says."""
        self._append(
            "ended", trial.key, status=trial.status, reason=trial.reason,
            run=None if trial.run is None else self._name(trial.run), values=dict(trial.values),
            provenance=dict(trial.provenance), curve=trial.curve, seconds=trial.seconds,
        )  # fmt: skip

    def _append(self, event: str, key: str, **told: Any) -> None:
        line = dumps({"event": event, "key": key, "time_ns": time.time_ns(), **told}) + "\n"
        try:
            with self.path.open("ab") as file:
                drop_torn_end(self.path)
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise store_error("write", self.path, error) from error

    def _name(self, run: Path) -> str:
        run, runs = run.resolve(), self._runs.resolve()
        return str(run.relative_to(runs)) if run.is_relative_to(runs) else str(run)

    def _path(self, name: str | None) -> Path | None:
        return None if name is None else self._runs / name


def drop_torn_end(path: Path) -> None:
    """Cut off a last line that has no newline: whoever wrote it was killed in the middle of it.

    Raises:
        OSError: the file cannot be changed.
    """
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return
        file.seek(size - 1)
        if file.read(1) != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
