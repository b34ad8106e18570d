"""Waiting for a run to get somewhere, changing its settings on the way, ending it, and reading what it recorded."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dtdg_lab.cluster.run import Run
from dtdg_lab.cluster.session import Session
from dtdg_lab.core.errors import ClusterError
from dtdg_lab.runs.liveness import read_notes
from dtdg_lab.runs.stored_run import open_run


def until(condition: Callable[[], bool], *, timeout_s: float = 60.0, what: str = "") -> float:
    """Wait until a condition holds; returns the seconds it took, fails the test when it never does."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > timeout_s:
            raise AssertionError(f"not within {timeout_s:g} s: {what or condition}")
        time.sleep(0.01)
    return time.monotonic() - started


def until_step(run: Run, step: int, *, timeout_s: float = 90.0) -> Run:
    """Wait until a run has made some steps, and return it."""
    until(
        lambda: (run.status not in ("starting",) and run.live.progress.step >= step) or run.status == "failed",
        timeout_s=timeout_s,
        what=f"step {step} of {run}",
    )
    assert run.status != "failed", run.reason
    return run


def knob_steps(run: Run, name: str) -> dict[tuple[int, object], set[int]]:
    """(version, value) -> steps at which ranks applied the change, from the records on disk."""
    events = open_run(run.path).table("events")
    found: dict[tuple[int, object], set[int]] = {}
    for row in events[events.kind == "settings"].itertuples():
        if name in row.data["changes"]:
            found.setdefault((row.data["version"], row.data["changes"][name]), set()).add((row.rank, row.step))
    return found


def change(run: Run, **live_settings: Any) -> None:
    """Ask for changes, see them applied, and the run going on."""
    before = run.reason  # of what was refused earlier
    run.set(**live_settings)

    def applied() -> bool:
        now = {**run.config.flat, "system": run.config.system}
        return all(now.get(name) == value for name, value in live_settings.items())

    until(lambda: applied() or run.reason != before, timeout_s=30, what=f"{live_settings} applied")
    assert applied(), run.reason
    goes_on(run)


def refused(run: Run, said: str, **live_settings: Any) -> None:
    """Ask for changes that cannot be made; see why, and the run going on as it was."""
    before = run.config
    run.set(**live_settings)
    until(
        lambda: "was refused" in run.reason and said in run.reason, timeout_s=30, what=f"{live_settings}: {run.reason}"
    )
    assert run.status == "running" and run.config == before
    goes_on(run)


def goes_on(run: Run, steps: int = 3) -> None:
    """Wait until a run has made some more steps."""
    now = run.live.progress.step
    until(lambda: run.live.progress.step > now + steps or run.status == "failed", what=f"steps of {run}")
    assert run.status != "failed", run.reason


def pause(run: Run) -> None:
    """Pause a run, and wait until it is paused."""
    run.pause()
    until(lambda: run.status == "paused", what=f"a pause of {run}")


def stop(run: Run) -> None:
    """Stop a run, and wait until it has ended."""
    run.stop()
    run.wait(60)


def kill_rank(run: Run, rank: int) -> None:
    """Kill the process of a rank."""
    os.kill(read_notes(run.path / "live", run.attempt)[rank].pid, signal.SIGKILL)


def events(run: Run, kind: str) -> list[dict[str, Any]]:
    """Return the data of the events of a kind, in order of time, with their step, rank and attempt."""
    table = open_run(run.path).table("events")
    rows = table[table.kind == kind].sort_values("time_ns")
    return [{**row.data, "step": row.step, "rank": row.rank, "attempt": row.attempt} for row in rows.itertuples()]


def losses_of(run: Run, steps: int) -> list[float]:
    """Return the loss of each of these steps; a run that has others fails the test."""
    table = open_run(run.path).table("steps")
    table = table[table["rank"] == 0].sort_values("step")
    assert table.step.tolist() == list(range(steps))
    return list(table.global_loss)


def applied_at_one_step(run: Run, name: str) -> None:
    """Fail unless both ranks applied each change of a setting, and at the same step."""
    for (_, value), applied in knob_steps(run, name).items():
        assert {rank for rank, _ in applied} == {0, 1}, f"{name}={value}"
        assert len({step for _, step in applied}) == 1, f"ranks applied {name}={value} at different steps: {applied}"


def attached(cluster: str | Path, runs_dir: Path) -> Session:
    """Return a session of a cluster that somebody else started, once it has two engines."""
    deadline = time.monotonic() + 90
    while True:
        try:
            session = Session.attach(cluster, runs_dir=runs_dir)
            if session.ranks == 2:
                return session
            session.close()
        except ClusterError:
            pass  # engines are still registering
        assert time.monotonic() < deadline, "two engines never appeared"
        time.sleep(0.5)
