"""The facts that the head of the page shows, from a run, its files and the session."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from dtdg_lab.dashboard.run_files import RunFiles
from dtdg_lab.dashboard.run_list import started_text
from dtdg_lab.dashboard.session_watch import SessionState
from dtdg_lab.dashboard.states import PageFacts
from dtdg_lab.runs.tables import RunTables
from dtdg_lab.visualization.run_names import run_title

if TYPE_CHECKING:
    from dtdg_lab.cluster.run import Run

ABOUT = ", about "  # before the seconds that are left, in the words of a preparation


class PauseClock:
    """How long a run has been paused, as this page has seen it."""

    def __init__(self) -> None:
        self._since_s: float | None = None

    def look(self, status: str) -> float:
        """Return the seconds since the run was paused; 0 where it is not."""
        if status != "paused":
            self._since_s = None
            return 0.0
        if self._since_s is None:
            self._since_s = time.monotonic()
        return time.monotonic() - self._since_s


def session_facts(session_state: SessionState) -> PageFacts:
    """Return what is known without a run."""
    return PageFacts(
        engines=len(session_state.engines),
        engines_ready=sum(session_state.engines.values()),
        ready=session_state.ready,
        left_behind=session_state.interrupted is not None,
        newcomer=session_state.run is None and session_state.interrupted is None,
    )


def run_facts(facts: PageFacts, run: Run, files: RunFiles, paused_s: float) -> PageFacts:
    """Return the facts with those of a run, whose lock the caller holds."""
    tables, config = run.live, run.config
    progress = tables.progress
    preparing, about, time_left = tables.preparing.partition(ABOUT)
    started = started_text(run.id)
    ranks = f"{config.ranks} rank" if config.ranks == 1 else f"{config.ranks} ranks"
    parts = f", {config.parts} parts" if config.parts != config.ranks else ""
    test_loss, below = test_result(tables)
    sub = [config.model, ranks + parts, *([f"started {started}"] if started else [])]
    return replace(
        facts,
        status=run.status,
        name=files.name or run_title(config),
        sub=" · ".join(sub),
        preparing=preparing,
        left_words=f"about {time_left}" if about else "",
        step=progress.step,
        epoch=progress.epoch,
        epochs=progress.epochs,
        seconds=progress.seconds,
        seconds_left=progress.seconds_left,
        paused_s=paused_s,
        ended=files.ended,
        test_loss=test_loss,
        below=below,
        damaged=tables.damaged[-1] if tables.damaged else "",
        silent=dict(run.silent),
        reason=run.reason,
        checkpoint_step=files.checkpoint_step,
    )


def test_result(tables: RunTables) -> tuple[float | None, float | None]:
    """Return the test loss of a run that has finished, and by which share it is below persistence."""
    rows = tables.rows("evaluations")
    rows = rows.where(rows["split"] == "test") if len(rows) else rows
    if not len(rows):
        return None, None
    loss, persistence = (float(rows[name][-1]) for name in ("loss", "persistence_loss"))
    return loss, 1 - loss / persistence if persistence > 0 else None
