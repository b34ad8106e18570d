"""Rows: what was measured in each cell of an experiment, in ``reproduce/<paper>/results/<name>.json``."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dtdg_lab.core.errors import RunStoreError
from dtdg_lab.runs.json_files import finite, write_text


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """The result of one cell.

    Attributes:
        key: of the cell.
        labels: its value on each axis.
        seed: its seed.
        values: the numbers that were measured, by name; None where one is unknown.
        curve: (seconds of steps, joules or None, validation loss) of every evaluation, for trainings.
        failed: why there are no values; empty if there are.
        seconds: how long the cell took.
        rules: digests of the claims as they were when it ran.
        commit: the commit that ran.
        date: day of the run.
        device: ``cpu`` or ``cuda``; the GPUs' names are in ``machine``.
        machine: processor, cores, memory and version of torch.
        busy: share of the machine's processors that other programs used just before a timed cell; otherwise None.
    """

    key: str
    labels: Mapping[str, Any]
    seed: int
    values: Mapping[str, Any]
    seconds: float
    rules: tuple[str, ...]
    commit: str
    date: str
    device: str
    machine: Mapping[str, Any]
    curve: tuple[tuple[float, float | None, float], ...] = ()
    failed: str = ""
    busy: float | None = None

    @property
    def machine_text(self) -> str:
        """The machine in words."""
        machine = self.machine
        return f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, torch {machine['torch']}"


def read_rows(file: Path) -> list[MeasuredRow]:
    """Read stored rows; none if the file does not exist.

    Raises:
        RunStoreError: the file is damaged.
    """
    if not file.is_file():
        return []
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        origins = stored["origins"]
        rows = [{**origins[row.pop("origin")], **row} for row in stored["rows"]]
        return [
            MeasuredRow(**{**row, "rules": tuple(row["rules"]), "curve": tuple(map(tuple, row.get("curve", ())))})
            for row in rows
        ]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise RunStoreError(f"the rows {file} are damaged ({error}). Take the file from git, or remove it.") from error


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Keep a file or folder to this process until the end of the block, or until the process ends.

    Args:
        path: it must exist.
        wait: whether to wait for another process that has it; otherwise the block gets False.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def write_rows(file: Path, rows: Sequence[MeasuredRow]) -> None:
    """Write rows atomically, one a line; what many rows share (commit, date, machine) stands once.

    Raises:
        RunStoreError: the file cannot be written.
    """
    origins: list[dict[str, Any]] = []
    lines = []
    for row in rows:
        content = {
            name: value
            for name, value in asdict(row).items()
            if value not in ((), "", None) or name in ("values", "rules")
        }
        origin = {name: content.pop(name) for name in ("commit", "date", "device", "machine", "rules")}
        if origin not in origins:
            origins.append(origin)
        lines.append("  " + json.dumps(finite({**content, "origin": origins.index(origin)})))
    head = ",\n".join("  " + json.dumps(origin) for origin in origins)
    write_text(file, f'{{"origins": [\n{head}\n ],\n "rows": [\n' + ",\n".join(lines) + "\n ]}\n")
