"""Liveness of a run's processes: each writes a note to the run's ``live`` folder, and touches it while it is alive."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from dtdg_lab.core.child_process import is_running
from dtdg_lab.runs.json_files import write_json


@dataclass(frozen=True, slots=True)
class RankNote:
    """The note of a training rank.

    ``host`` names the machine and its boot, so that process numbers are only used where they are valid.
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
    """Return an anonymous name of this machine and boot.

    Containers on one machine get different names if they have separate networks or process numbers, because their
    loopback and their process numbers differ from ours.
    """
    boot = Path("/proc/sys/kernel/random/boot_id")
    if not boot.is_file():
        return f"boot-{int(psutil.boot_time())}"
    spaces = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "pid")]  # net:[4026531840]
    return "-".join([boot.read_text().strip(), *(space.partition("[")[2].rstrip("]") for space in spaces)])


def own_note(rank: int, attempt: int, telemetry: str, *, control: str = "", store: str = "") -> RankNote:
    """Return the note of the calling process."""
    pid = os.getpid()
    return RankNote(rank, attempt, pid, psutil.Process(pid).create_time(), host_id(), telemetry, control, store)


def note_file(live: Path, rank: int) -> Path:
    """Return the path of a rank's note."""
    return live / f"rank{rank}.json"


def write_note(live: Path, note: RankNote) -> None:
    """Write a rank's note."""
    write_json(note_file(live, note.rank), asdict(note))


def touch_note(live: Path, rank: int) -> None:
    """Touch a rank's note, as a sign of life."""
    with suppress(FileNotFoundError):  # the rank has exited, or has not started
        os.utime(note_file(live, rank))


def remove_note(live: Path, rank: int) -> None:
    """Remove a rank's note when it exits normally."""
    note_file(live, rank).unlink(missing_ok=True)


def read_notes(live: Path, attempt: int) -> dict[int, RankNote]:
    """Return rank -> note, for the ranks of an attempt that have not exited."""
    notes = {}
    for path in live.glob("rank*.json"):
        try:
            data: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            continue  # the rank exited after the listing
        if data["attempt"] == attempt:
            notes[data["rank"]] = RankNote(**data)
    return notes


def is_alive(note: RankNote) -> bool:
    """Return True if the note's process exists on this machine."""
    return note.host == host_id() and is_running(note.pid, note.started_s)


def is_dead(note: RankNote) -> bool:
    """Return True if the note's process was on this machine and is gone; False for other machines."""
    return note.host == host_id() and not is_running(note.pid, note.started_s)


def dead_ranks(live: Path, attempt: int) -> list[int]:
    """Return the ranks of an attempt whose process died without removing its note."""
    return sorted(rank for rank, note in read_notes(live, attempt).items() if is_dead(note))


MOST_GAP_S = 3.0  # a longer gap between two checks means that this process was stopped, or the machine asleep


class Silence:
    """Seconds since the last sign of life of each rank, counted only while this process itself runs.

    Args:
        live: the run's folder of notes.
        clock: monotonic clock in seconds.
    """

    def __init__(self, live: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._live, self._clock = live, clock
        self._looked: float | None = None
        self._seen: dict[int, tuple[int, float]] = {}  # rank -> time of its note, seconds since that changed

    def look(self, notes: Mapping[int, RankNote]) -> dict[int, float]:
        """Return rank -> seconds of silence, for the ranks of these notes."""
        now_s = self._clock()
        passed_s = 0.0 if self._looked is None else min(now_s - self._looked, MOST_GAP_S)
        self._looked = now_s
        signs = {}
        for rank in notes:
            with suppress(FileNotFoundError):  # the rank has just exited
                touched = note_file(self._live, rank).stat().st_mtime_ns
                last_touched, silent_s = self._seen.get(rank, (touched, -passed_s))
                signs[rank] = (touched, silent_s + passed_s if touched == last_touched else 0.0)
        self._seen = signs
        return {rank: silent_s for rank, (_, silent_s) in signs.items()}


SILENT_S = 60.0


def silent_beyond(silent: Mapping[int, float], notes: Mapping[int, RankNote], limit_s: float) -> tuple[int, str] | None:
    """Return the first rank that is silent beyond the limit although its process exists, and the reason.

    Args:
        silent: rank -> seconds, see :class:`Silence`.
        notes: notes of the ranks.
        limit_s: ``silent_s`` of the session.
    """
    for rank, silent_s in sorted(silent.items()):
        note = notes[rank]
        if silent_s > limit_s and is_alive(note):
            return rank, (
                f"rank {rank} gave no sign of life for {silent_s:.0f} s although its process {note.pid} exists: it is "
                f"stopped or blocked (limit: Session(silent_s={limit_s:g})). The last checkpoint and earlier records "
                "are kept: session.repair() replaces its engine, then run.resume()."
            )
    return None


TOUCH_S = 1.0


class Pulse:
    """Touches the note of a process that trains without a cluster; removes the note when closed."""

    def __init__(self, live: Path) -> None:
        self._live = live
        self._stop = threading.Event()
        write_note(live, own_note(0, 1, ""))
        self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._stop.wait(TOUCH_S):
            touch_note(self._live, 0)

    def close(self) -> None:
        """End the thread and remove the note."""
        self._stop.set()
        self._thread.join()
        remove_note(self._live, 0)
