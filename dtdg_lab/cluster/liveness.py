"""Who is alive: each rank of a running attempt leaves a note in the run's ``live`` folder, and others look at it."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from dtdg_lab.core.errors import ClusterError
from dtdg_lab.runs.json_files import write_json


@dataclass(frozen=True, slots=True)
class RankNote:
    """What a rank says about itself while it trains.

    ``host`` names the machine and its boot, so that process numbers are only trusted where they mean something.
    """

    rank: int
    attempt: int
    pid: int
    started_s: float
    host: str
    telemetry: str
    control: str = ""
    store: str = ""


def host_id() -> str:
    """A name for this machine and boot that says nothing about it.

    Containers on one machine have names of their own where they have a network or process numbers of their own: their
    loopback is not ours, nor are their process numbers.
    """
    boot = Path("/proc/sys/kernel/random/boot_id")
    if not boot.is_file():
        return f"boot-{int(psutil.boot_time())}"
    spaces = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "pid")]  # net:[4026531840]
    return "-".join([boot.read_text().strip(), *(space.partition("[")[2].rstrip("]") for space in spaces)])


def own_note(rank: int, attempt: int, telemetry: str, *, control: str = "", store: str = "") -> RankNote:
    """The note of the calling process."""
    pid = os.getpid()
    return RankNote(rank, attempt, pid, psutil.Process(pid).create_time(), host_id(), telemetry, control, store)


def note_file(live: Path, rank: int) -> Path:
    """Where a rank's note is while it trains."""
    return live / f"rank{rank}.json"


def write_note(live: Path, note: RankNote) -> None:
    """Leave the note."""
    write_json(note_file(live, note.rank), asdict(note))


def remove_note(live: Path, rank: int) -> None:
    """Take the note away: the rank has left by itself."""
    note_file(live, rank).unlink(missing_ok=True)


def read_notes(live: Path, attempt: int) -> dict[int, RankNote]:
    """Rank -> note, for the ranks of an attempt that have not left."""
    notes = {}
    for path in live.glob("rank*.json"):
        try:
            data: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            continue  # the rank left between the listing and the reading
        if data["attempt"] == attempt:
            notes[data["rank"]] = RankNote(**data)
    return notes


def wait_for_note(live: Path, rank: int, attempt: int, *, timeout_s: float = 60.0) -> RankNote:
    """The note of a rank, waited for.

    Raises:
        ClusterError: it did not appear in time.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        note = read_notes(live, attempt).get(rank)
        if note is not None:
            return note
        time.sleep(0.01)
    raise ClusterError(
        f"rank {rank} did not start within {timeout_s:g} s. Look at its engine's log; ranks on several machines need "
        "the runs folder on a disk they share."
    )


def is_dead(note: RankNote) -> bool:
    """Whether the process of a note is gone, for notes of this machine; others are never called dead here."""
    if note.host != host_id():
        return False
    try:
        process = psutil.Process(note.pid)
        replaced = abs(process.create_time() - note.started_s) > 1.0
        return replaced or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def dead_ranks(live: Path, attempt: int) -> list[int]:
    """Ranks of an attempt whose process died without taking its note away."""
    return sorted(rank for rank, note in read_notes(live, attempt).items() if is_dead(note))
