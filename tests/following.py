"""Waiting for a run to get somewhere, and changing its settings on the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dtdg_lab.cluster.run import Run


def until(condition: Callable[[], bool], *, timeout_s: float = 60.0, what: str = "") -> float:
    """Wait until a condition holds; returns the seconds it took, fails the test when it never does."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > timeout_s:
            raise AssertionError(f"not within {timeout_s:g} s: {what or condition}")
        time.sleep(0.01)
    return time.monotonic() - started


def until_step(run: Run, step: int, *, timeout_s: float = 90.0) -> None:
    """Wait until a run has made some steps."""
    until(
        lambda: (run.status not in ("starting",) and run.live.progress.step >= step) or run.status == "failed",
        timeout_s=timeout_s,
        what=f"step {step} of {run}",
    )
    assert run.status != "failed", run.reason


def knob_steps(run: Run, name: str) -> dict[tuple[int, object], set[int]]:
    """(version, value) -> steps at which ranks applied the change, from the records on disk."""
    from dtdg_lab.runs.stored_run import open_run

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
    now = run.live.progress.step
    until(lambda: run.live.progress.step > now + steps or run.status == "failed", what=f"steps of {run}")
    assert run.status != "failed", run.reason
