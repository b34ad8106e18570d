"""Marks of devices whose traffic is being shaped, so that the next start undoes what a killed process left."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from dtdg_lab.core.errors import DataError


@dataclass(frozen=True, slots=True)
class Mark:
    """Who shapes which device.

    Attributes:
        device: its name.
        space: number of the network namespace it is in, which has devices of its own.
        process: number of the process.
        started_s: when that process started: numbers are used again.
        boot: of the machine; nothing outlives it.
    """

    device: str
    space: int
    process: int
    started_s: float
    boot: str

    @classmethod
    def own(cls, device: str) -> Mark:
        """The mark of this process on a device."""
        return cls(device, network_space(), os.getpid(), psutil.Process().create_time(), _boot())

    def file(self, folder: Path) -> Path:
        """Where it is kept: one for each device of a namespace."""
        return folder / f"netem-{self.device}-{self.space}.json"

    @property
    def is_here(self) -> bool:
        """Whether its device is one that this process sees, since the last start of the machine."""
        return (self.space, self.boot) == (network_space(), _boot())

    @property
    def is_alive(self) -> bool:
        """Whether its process still runs."""
        try:
            process = psutil.Process(self.process)
            return abs(process.create_time() - self.started_s) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def write(self, folder: Path) -> None:
        """Keep it, before the first change.

        Raises:
            DataError: the folder cannot be written: nothing should be changed that could not be undone.
        """
        path = self.file(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(f".{os.getpid()}.tmp")
            draft.write_text(json.dumps(asdict(self)), encoding="utf-8")
            draft.replace(path)
        except OSError as error:
            raise DataError(
                f"cannot write {path}, which tells the next start what to undo: {error}. Give a folder you can write."
            ) from error


def marks(folder: Path) -> Iterator[Mark]:
    """All marks kept in a folder.

    Raises:
        DataError: a file is damaged.
    """
    for path in sorted(folder.glob("netem-*.json")):
        try:
            yield Mark(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            continue  # its process has just undone what it did
        except (OSError, ValueError, TypeError) as error:
            raise DataError(
                f"{path} is damaged ({error}). Look at its device with 'tc qdisc show', remove the queue d7d6: with "
                "'tc qdisc del dev DEVICE root' if it has one, then remove the file."
            ) from error


def network_space() -> int:
    """The number of this process's network namespace; 0 where there are none."""
    try:
        return os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return 0


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return str(int(psutil.boot_time()))
