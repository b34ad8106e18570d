"""A long trial of robustness: a run at short steps is watched, steered, killed and resumed until the time is over.

    python tests/soak.py [--minutes 60] [--kill-every 300] [--turn-every 3] [--seed 0] [--folder DIR]

Two dashboards follow the run. Live settings are turned at random, the congestion of emulated links among them. An
engine is killed at random every ``--kill-every`` seconds, the first one after a third of them; then the session is
repaired and the run resumed. A table ends the trial. The exit code is 1 where records were lost, memory or handles grew
beyond ``LIMITS``, or something failed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from dtdg_lab.cluster import run as followed
from dtdg_lab.cluster.run import Run
from dtdg_lab.cluster.session import Session
from dtdg_lab.config.record_tables import rows_of
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError
from dtdg_lab.dashboard.app import Dashboard
from dtdg_lab.dashboard.page_updates import PERIOD_MS
from dtdg_lab.records.lines import read_lines
from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.liveness import read_notes
from dtdg_lab.runs.stored_run import open_run
from dtdg_lab.training.live_settings import live_names
from tests.dashboards import notice

MIB = 1 << 20
WARM_S = 120.0  # of a process's life, in which libraries are loaded and caches fill; a quarter of a shorter trial
LIMITS = {  # MiB and handles that a process may gain after it is warm, however long the trial
    "kernel": (200, 24),
    "controller": (60, 24),
    "engine": (100, 40),  # sockets of feature servers and of the ranks' groups come and go with the system
}
SAMPLE_S = 5.0
WAIT_S = 600.0  # for a failed run's files, or a resumed run's first step
# One rank for each of two engines; steps of 5 ms on an idle machine
SIZES = {"generated_nodes": 120, "generated_edges": 500, "generated_snapshots": 10, "hidden": 8}
BATCHES = {"batch_size": 40, "batch_length": 2, "cache_rows": 100, "cache_window": 4, "partitioner": "hash"}
WATCHED = {"threads": 1, "checkpoint_every_s": 1.0, "evaluate_every": 50}
CONFIG = RunConfig(
    system="fixed-window", dataset="growing", ranks=2, parts=2, epochs=1_000_000, **SIZES, **BATCHES, **WATCHED
)
SYSTEMS = ("fixed-window", "adgnn-t", "psg", "threshold-window")


def turned(draw: random.Random) -> dict[str, Any]:
    """Random values of live settings, as a person would turn them; some that a run refuses."""
    return draw.choice(
        [
            {"learning_rate": 10 ** draw.uniform(-5, -3)},
            {"slow_rank": draw.choice([-1, 0, 1]), "slow_ms": draw.uniform(0, 2)},
            {"congestion": draw.choice(["none", "oscillating"]), "congestion_ms": draw.uniform(0, 2)},
            {"congestion_mbit": draw.choice([0.0, 100.0])},
            {"links": draw.choice(["", "0>1 delay=0.5", "1 rate=100", "*>0 delay=1; 0>1 rate=50"])},
            {"power_max_w": draw.uniform(80, 120)},
            {"cache_window": draw.randint(2, 6)},
            {"cache_policy": draw.choice(["fixed", "threshold", "prefetch", "on_demand"])},
            {"cache_rows": draw.randint(40, 100)},
            {"evaluate_every": draw.randint(20, 100)},
            {"congestion_cycle": draw.randint(2, 9), "congestion_from": draw.randint(0, 3)},
            {"partitioner": draw.choice(["hash", "metis"])},
            {"system": draw.choice(SYSTEMS)},
            {"learning_rate": -1.0},
            {"partitioner": "none such"},
        ]
    )


@dataclass
class Received:
    """What live tables took in of a rank's file: lines in order, each once."""

    lines: int = 0
    gaps: int = 0
    steps: int = 0


class CountingTables(RunTables):
    """Live tables that count what they take in."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.received: dict[int, Received] = {}

    def add_lines(self, lines: Iterable[Any]) -> int:
        """Count the lines."""
        lines = list(lines)
        for line in lines:
            of_rank = self.received.setdefault(line["rank"], Received())
            of_rank.gaps += line["seq"] != of_rank.lines
            of_rank.lines = line["seq"] + 1
            of_rank.steps += len(line["rows"]) if line["table"] == "steps" else 0
        return super().add_lines(lines)


@dataclass(frozen=True)
class Sample:
    """Of a process: its role, age in seconds, resident memory in bytes, and open files and sockets."""

    role: str
    pid: int
    age_s: float
    rss_bytes: int
    handles: int


@dataclass
class Trial:
    """What happened, and what failed."""

    steps: int = 0
    attempts: int = 0
    kills: int = 0
    turns: int = 0
    refused: int = 0
    lost: int = 0
    failed_s: float = 0.0  # longest time from a death to the failed run's files
    stop_s: float = 0.0
    finish_s: float = 0.0
    record_bytes: int = 0
    samples: list[Sample] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def growth(self, warm_s: float) -> Iterator[tuple[Sample, Sample]]:
        """Of each process that was seen after it was warm, the first such sample and the last."""
        for pid in dict.fromkeys(sample.pid for sample in self.samples):
            own = [sample for sample in self.samples if sample.pid == pid and sample.age_s >= warm_s]
            if len(own) > 1:
                yield own[0], own[-1]


def _handles(process: psutil.Process) -> int:
    return len(os.listdir(f"/proc/{process.pid}/fd"))


class Soak:
    """One session, one run, two dashboards.

    Args:
        folder: of runs and of the session's state.
        seconds: how long it trains.
        kill_every_s: between two deaths.
        turn_every_s: mean time between two changes of live settings.
        seed: of everything that is random here.
    """

    def __init__(
        self, folder: Path, seconds: float, *, kill_every_s: float = 300.0, turn_every_s: float = 3.0, seed: int = 0
    ) -> None:
        self.folder, self.seconds = folder, seconds
        self.kill_every_s, self.turn_every_s = kill_every_s, turn_every_s
        self.draw = random.Random(seed)
        self.warm_s = min(WARM_S, seconds / 4)
        self.trial = Trial()

    def go(self) -> Trial:
        """Train, disturb, and check what is left."""
        original, followed.RunTables = followed.RunTables, CountingTables  # type: ignore[misc]
        try:
            with Session(ranks=2, runs_dir=self.folder, idle_s=600) as session:
                run = self._train(session)
                self.trial.attempts = run.attempt
                self._stop(run)
                self._check_records(run)
        except (LabError, TimeoutError) as error:
            self.trial.failures.append(f"{type(error).__name__}: {error}")
        finally:
            followed.RunTables = original  # type: ignore[misc]
        self._check_growth()
        return self.trial

    def _train(self, session: Session) -> Run:
        run = session.train(CONFIG)
        shown = [Dashboard(session), Dashboard(session)]
        models = [dashboard.layout.get_root() for dashboard in shown]  # as a page that looks
        now = time.monotonic()
        end, kill, turn, sample = now + self.seconds, now + self.kill_every_s / 3, now + 1.0, now
        try:
            while (now := time.monotonic()) < end:
                for dashboard in shown:
                    dashboard.tick()
                if now >= turn:
                    turn = now + self.draw.expovariate(1 / self.turn_every_s)
                    self._turn(run)
                if now >= kill:
                    run = self._kill(session, run, shown)
                    kill = time.monotonic() + self.kill_every_s
                if now >= sample:
                    sample = now + SAMPLE_S
                    self._sample(session, run)
                if run.status not in ("running", "starting"):
                    self.trial.failures.append(f"{run} by itself: {run.reason}")
                    break
                time.sleep(PERIOD_MS / 1000)
            alerts = {notice(dashboard) for dashboard in shown}
            self.trial.failures += sorted(alert for alert in alerts if "could not be brought" in alert)
        finally:
            del models
            for dashboard in shown:
                dashboard.close()
        return run

    def _turn(self, run: Run) -> None:
        asked = {name: value for name, value in turned(self.draw).items() if name in live_names(run.config)}
        if not asked or run.status != "running":
            return
        self.trial.turns += 1
        try:
            run.set(**asked)
        except ConfigError:
            self.trial.refused += 1
        except LabError as error:
            self.trial.failures.append(f"{asked}: {error}")

    def _kill(self, session: Session, run: Run, shown: list[Dashboard]) -> Run:
        notes = read_notes(run.path / "live", run.attempt)
        os.kill(notes[self.draw.choice(sorted(notes))].pid, signal.SIGKILL)
        self.trial.kills += 1
        started = time.monotonic()
        self._wait(lambda: run.status == "failed" and run._ended.is_set(), shown, f"{run} fails after a kill")
        self.trial.failed_s = max(self.trial.failed_s, time.monotonic() - started)
        self._check_live(run)
        self._wait(lambda: not session.ready, shown, "the session sees the death")
        session.repair()
        again = run.resume()
        self._wait(lambda: again.status == "running", shown, f"{again} trains after it was resumed")
        return again

    def _wait(self, condition: Any, shown: list[Dashboard], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {WAIT_S:g} s: {what}")
            for dashboard in shown:
                dashboard.tick()
            time.sleep(PERIOD_MS / 1000)

    def _stop(self, run: Run) -> None:
        started = time.monotonic()
        run.stop()
        run.wait(WAIT_S)
        self.trial.stop_s = time.monotonic() - started
        self._check_live(run)

    def _check_live(self, run: Run) -> None:
        """The live tables of an attempt have every line on disk, once and in order."""
        tables: Any = run.live
        for rank, file in run._directory.record_files().items():
            lines = steps = 0
            for line in read_lines(file):
                lines += 1
                steps += len(line["rows"]) if line["table"] == "steps" else 0
            seen = tables.received.get(rank, Received())
            if (seen.lines, seen.steps, seen.gaps, tables.sequence.missing) != (lines, steps, 0, 0):
                self.trial.lost += abs(lines - seen.lines) + seen.gaps
                self.trial.failures.append(
                    f"attempt {run.attempt}, rank {rank}: the live tables have {seen} and miss "
                    f"{tables.sequence.missing}, the file has {lines} lines with {steps} steps"
                )

    def _check_records(self, run: Run) -> None:
        """Lines are numbered without gaps, and so are the steps that count; the Parquet files have them all."""
        trial = self.trial
        for rank, file in run._directory.record_files().items():
            trial.record_bytes += file.stat().st_size
            for place, line in enumerate(read_lines(file)):
                if line["seq"] != place:
                    trial.lost += 1
                    trial.failures.append(f"rank {rank}: line {place} has number {line['seq']}")
                    break
            steps: dict[int, list[int]] = {}
            for line in read_lines(file):
                if line["table"] == "steps":
                    steps.setdefault(line["attempt"], []).extend(row["step"] for row in rows_of(line))
            self._check_steps(rank, steps)
        started = time.monotonic()
        for note in run._directory.records.glob("rank*.json"):  # without them lines are written again
            note.unlink()
        finish(run.path, "stopped")
        trial.finish_s = time.monotonic() - started
        table = open_run(run.path).table("steps")
        for rank, rows in table.groupby("rank"):
            numbers = rows["step"].tolist()
            trial.steps = max(trial.steps, len(numbers))
            if numbers != list(range(len(numbers))):
                missing = set(range(max(numbers) + 1)) - set(numbers)
                trial.lost += len(missing)
                trial.failures.append(
                    f"rank {rank}: the Parquet files lack {len(missing)} steps, {sorted(missing)[:5]}"
                )

    def _check_steps(self, rank: int, steps: dict[int, list[int]]) -> None:
        """Within an attempt steps follow each other, and each attempt begins where earlier ones have come to."""
        reached = 0
        for attempt, numbers in sorted(steps.items()):
            jumps = sum(later != step + 1 for step, later in pairwise(numbers))
            missing = max(0, numbers[0] - reached)
            if jumps or missing:
                self.trial.lost += jumps + missing
                self.trial.failures.append(
                    f"rank {rank}, attempt {attempt}: {jumps} jumps in its steps; it begins at {numbers[0]}, and the "
                    f"records before reach {reached}"
                )
            reached = max(reached, numbers[-1] + 1)

    def _sample(self, session: Session, run: Run) -> None:
        engines = {note.pid for note in read_notes(run.path / "live", run.attempt).values()}
        own = {psutil.Process(): "kernel"}
        own |= {of: "engine" if of.pid in engines else "controller" for of in session._files.processes()}
        for process, role in own.items():
            try:
                age_s, rss = time.time() - process.create_time(), process.memory_info().rss
                self.trial.samples.append(Sample(role, process.pid, age_s, rss, _handles(process)))
            except (psutil.NoSuchProcess, FileNotFoundError):
                continue  # it ended between the listing and the look

    def _check_growth(self) -> None:
        for first, last in self.trial.growth(self.warm_s):
            most_mib, most_handles = LIMITS[first.role]
            grown = (last.rss_bytes - first.rss_bytes) / MIB
            if grown > most_mib or last.handles - first.handles > most_handles:
                self.trial.failures.append(
                    f"{first.role} {first.pid} grew by {grown:.0f} MiB and {last.handles - first.handles} handles; "
                    f"allowed {most_mib} MiB and {most_handles}"
                )


def table(trial: Trial, warm_s: float) -> str:
    """The trial in lines of text."""
    lines = [
        f"steps                 {trial.steps}",
        f"attempts              {trial.attempts} ({trial.kills} engines killed)",
        f"live settings turned  {trial.turns} ({trial.refused} refused at once)",
        f"records lost          {trial.lost}",
        f"records on disk       {trial.record_bytes / MIB:.1f} MiB",
        f"death to complete     {trial.failed_s:.1f} s at most",
        f"stop to complete      {trial.stop_s:.1f} s",
        f"finish() from lines   {trial.finish_s:.1f} s",
        f"processes, from {warm_s:.0f} s after their start: MiB and handles at first and at last",
    ]
    grown = list(trial.growth(warm_s))
    for role in LIMITS:
        of_role = [pair for pair in grown if pair[0].role == role]
        worst = sorted(of_role, key=lambda pair: pair[0].rss_bytes - pair[1].rss_bytes)[:4]
        lines += [
            f"  {role:11s} {last.age_s - first.age_s:6.0f} s {first.rss_bytes / MIB:7.1f} -> "
            f"{last.rss_bytes / MIB:7.1f} MiB {first.handles:4d} -> {last.handles:4d}"
            for first, last in worst
        ]
        lines += [f"  {role:11s} {len(of_role) - len(worst)} more processes grew less"] * (len(of_role) > len(worst))
    return "\n".join([*lines, *(f"FAILED: {each}" for each in trial.failures)])


def main() -> int:
    """Run the trial; 1 where it failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--kill-every", type=float, default=300.0, metavar="SECONDS")
    parser.add_argument("--turn-every", type=float, default=3.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="keep the run there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        os.environ["DTDG_LAB_STATE"] = str(Path(temporary) / "state")
        soak = Soak(
            folder, 60 * given.minutes, kill_every_s=given.kill_every, turn_every_s=given.turn_every, seed=given.seed
        )
        trial = soak.go()
    print(table(trial, soak.warm_s))
    return 1 if trial.failures else 0


if __name__ == "__main__":
    sys.exit(main())
