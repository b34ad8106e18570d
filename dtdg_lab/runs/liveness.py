"""Liveness of a run's processes: each writes a note to the run's ``live`` folder, and touches it while it lives."""

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
from dtdg_lab.runs.directory import ENDED, RunDirectory, read_kept, write_json
from dtdg_lab.runs.record_lines import last_step


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
    """A name for this machine and boot that reveals nothing about it.

    Containers on one machine get separate names if they have their own network or process numbers: their
    loopback and their process numbers differ from ours.
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
    """Path of a rank's note while it trains."""
    return live / f"rank{rank}.json"


def write_note(live: Path, note: RankNote) -> None:
    """Write the note."""
    write_json(note_file(live, note.rank), asdict(note))


def touch_note(live: Path, rank: int) -> None:
    """Give a sign of life."""
    with suppress(FileNotFoundError):  # the rank has exited, or not begun
        os.utime(note_file(live, rank))


def remove_note(live: Path, rank: int) -> None:
    """Remove the note: the rank has exited normally."""
    note_file(live, rank).unlink(missing_ok=True)


def read_notes(live: Path, attempt: int) -> dict[int, RankNote]:
    """Rank -> note, for the ranks of an attempt that have not exited."""
    notes = {}
    for path in live.glob("rank*.json"):
        try:
            data: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            continue  # the rank exited between the listing and the reading
        if data["attempt"] == attempt:
            notes[data["rank"]] = RankNote(**data)
    return notes


def is_dead(note: RankNote) -> bool:
    """Whether the process of a note is gone, for notes of this machine; others are never considered dead here."""
    return note.host == host_id() and not is_running(note.pid, note.started_s)


def dead_ranks(live: Path, attempt: int) -> list[int]:
    """Ranks of an attempt whose process died without removing its note."""
    return sorted(rank for rank, note in read_notes(live, attempt).items() if is_dead(note))


MOST_GAP_S = 3.0  # between two looks; after a longer one this process was stopped itself, or the machine asleep


class Silence:
    """Seconds since the last sign of life of each rank of an attempt, counted only while this process runs itself.

    Args:
        live: the run's folder of notes.
        clock: seconds that never decrease.
    """

    def __init__(self, live: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._live, self._clock = live, clock
        self._looked: float | None = None
        self._seen: dict[int, tuple[int, float]] = {}  # rank -> time of its note, seconds since that changed

    def look(self, notes: Mapping[int, RankNote]) -> dict[int, float]:
        """Rank -> seconds of silence, for the ranks of these notes."""
        now = self._clock()
        passed_s = 0.0 if self._looked is None else min(now - self._looked, MOST_GAP_S)
        self._looked = now
        seen = {}
        for rank in notes:
            with suppress(FileNotFoundError):  # the rank exited meanwhile
                touched = note_file(self._live, rank).stat().st_mtime_ns
                before, silent_s = self._seen.get(rank, (touched, -passed_s))
                seen[rank] = (touched, silent_s + passed_s if touched == before else 0.0)
        self._seen = seen
        return {rank: silent_s for rank, (_, silent_s) in seen.items()}


SILENT_S = 60.0


def silent_beyond(silent: Mapping[int, float], notes: Mapping[int, RankNote], limit_s: float) -> tuple[int, str] | None:
    """The first rank that is silent for longer than the limit though its process exists on this machine, and why.

    Args:
        silent: rank -> seconds, see :class:`Silence`.
        notes: of the ranks.
        limit_s: of the session: ``silent_s``.
    """
    for rank, silent_s in sorted(silent.items()):
        note = notes[rank]
        if silent_s > limit_s and note.host == host_id() and is_running(note.pid, note.started_s):
            return rank, (
                f"rank {rank} gave no sign of life for {silent_s:.0f} s although its process {note.pid} exists: it is "
                f"stopped or blocked (limit: Session(silent_s={limit_s:g})). The last checkpoint and every record "
                "written before are kept: session.repair() replaces its engine, then run.resume()."
            )
    return None


TOUCH_S = 1.0


class Pulse:
    """Touches the note of a process that trains without a cluster, until it is closed; then the note is removed."""

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


# Runs that no process continues, although their last recorded state is not an end.


OLD_S = 90.0  # above the 60 s that engines have to start, and that a network file system may show an old time


def interruption(run: RunDirectory, attempt: int) -> str:
    """Why an attempt that has not ended is interrupted: its processes are gone; empty if it may be alive.

    Processes of this machine are looked up by number and start time. For others, and before there are any, the last
    sign of life decides: the newest time of a note, a record file or the status.
    """
    notes, here = read_notes(run.live, attempt).values(), host_id()
    if any(note.host == here and is_running(note.pid, note.started_s) for note in notes):
        return ""
    if notes and all(note.host == here for note in notes):
        count = "its process is" if len(notes) == 1 else f"all its {len(notes)} processes are"
        cause = f"{count} gone (killed, or out of memory)"
    else:
        seen_s = _last_sign_s(run)
        age_s = time.time() - seen_s
        if age_s < OLD_S:
            return ""
        elsewhere = (
            "its processes ran on another machine, or before a restart of this one" if notes else "no process trains it"
        )
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seen_s))
        cause = f"{elsewhere}; the last sign of life was at {at}, {age_s:.0f} s ago (limit {OLD_S:g} s)"
    steps = [last_step(path) for path in run.record_files().values()]
    step = max((step for step in steps if step is not None), default=None)
    where = "before its first step" if step is None else f"at step {step}"
    kept = (
        f"Its records and last checkpoint are kept: {_resume(run)} continues it."
        if run.checkpoint_file.is_file()
        else "It has no checkpoint yet: start it again with session.train(run.config)."
    )
    return f"interrupted {where}: {cause}. {kept}"


def _resume(run: RunDirectory) -> str:
    """Return the call that continues a run, in any session of as many engines."""
    return f"lab.Session(ranks={run.config().ranks}).resume({str(run.path)!r})"


def mark_interrupted(run: RunDirectory, attempt: int, name: str, *, rank: int, overdue_s: float | None = None) -> None:
    """Record that a signal ended an attempt, unless its end is recorded already.

    Args:
        run: the run.
        attempt: its number.
        name: of the signal.
        rank: which got it.
        overdue_s: seconds after which the rank leaves without a checkpoint of its last step; None if it wrote one.

    Raises:
        RunStoreError: the status cannot be written.
    """
    status = run.recorded_status()
    if status["attempt"] != attempt or status["state"] in ENDED:
        return
    kept = [read_kept(path).step for path in (run.checkpoint_file, run.begin_file) if path.is_file()]
    recorded = [step for path in run.record_files().values() if (step := last_step(path)) is not None]
    step = max(kept, default=0)
    who = "its process" if run.config().ranks == 1 else f"rank {rank}"
    cause = f"{who} was asked to leave"
    if overdue_s is not None:
        step = max([step, *(1 + step for step in recorded)])
        cause += f", and left after {overdue_s:g} s without waiting for a step or preparation that took longer"
    remedy = (
        f"It has no checkpoint yet: {_resume(run)} starts it from the beginning."
        if not kept
        else f"Its records and its checkpoint after {kept[0]} steps are kept: {_resume(run)} continues it."
    )
    run.write_status(
        "interrupted", reason=f"interrupted by {name} at step {step}: {cause}. {remedy}", rank=rank, attempt=attempt
    )


def _last_sign_s(run: RunDirectory) -> float:
    times = []
    for path in (*run.live.glob("rank*.json"), *run.record_files().values(), run.status_file):
        with suppress(FileNotFoundError):  # a rank exited meanwhile
            times.append(path.stat().st_mtime)
    return max(times)
