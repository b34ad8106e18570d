"""Progress of a run in terminals and notebooks: a line before its first step, then a progress bar of epochs."""

from __future__ import annotations

import math
import time
from typing import Any

from tqdm.auto import tqdm

from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.directory import ENDED
from dtdg_lab.runs.handle import RunHandle
from dtdg_lab.visualization.runs.loss import step_losses
from dtdg_lab.visualization.runs.step_time import imbalance, step_times


class PreparationLine:
    """A line with a run's activity before its first step; it appears with the first text."""

    def __init__(self) -> None:
        self._bar: Any = None

    def show(self, text: str) -> None:
        """Show a text in place of the previous one; an empty text removes the line."""
        if not text:
            self.__exit__()
            return
        if self._bar is None:
            self._bar = tqdm(bar_format="{desc}", leave=False)
        self._bar.set_description_str(f"starting: {text}")

    def __enter__(self) -> PreparationLine:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def show_progress(run: RunHandle, *, every_s: float = 0.25, **bar_options: Any) -> str:
    """Show a progress bar of epochs, with step, loss and imbalance, until the run ends; return its last status.

    Interrupting it does not affect the run.

    Args:
        run: a run handle, such as from ``session.train(config)``.
        every_s: seconds between updates.
        bar_options: passed to ``tqdm.auto.tqdm``, such as ``file`` or ``leave``.
    """
    with run.lock:
        epochs = run.live.config.epochs
    with tqdm(total=epochs, unit="epoch", **bar_options) as bar:
        while True:
            status = run.status  # read before the tables, so that the last update is complete
            with run.lock:
                _update(bar, run.live, status)
            if status in ENDED:
                break
            time.sleep(every_s)
        if run.reason:
            bar.set_description(f"{status}: {run.reason}")
    return status


def _update(bar: Any, tables: RunTables, status: str) -> None:
    progress, losses, times = tables.progress, step_losses(tables).values, step_times(tables)
    facts: dict[str, Any] = {"step": progress.step}
    if (work := tables.preparing or tables.between_steps) and status not in ENDED:
        status = f"{status}: {work}"
    if len(losses) and math.isfinite(losses[-1]):
        facts["loss"] = f"{losses[-1]:.4g}"
    if len(times) > 1:
        facts["imbalance"] = f"{imbalance(times):.2f}"
    bar.n = progress.epoch
    bar.set_description(status, refresh=False)
    bar.set_postfix(facts, refresh=False)
    bar.refresh()
