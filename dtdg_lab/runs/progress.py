"""A progress bar for a run, in terminals and notebooks."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Any, Protocol

from dtdg_lab.runs.directory import ENDED
from dtdg_lab.views.window import RunWindow


class LiveRun(Protocol):
    """What is read of a run handle: its status, why, its views, and the lock held while they change."""

    @property
    def status(self) -> str:
        """One of ``runs.directory.STATES``."""
        ...

    @property
    def reason(self) -> str:
        """Why, in words."""
        ...

    @property
    def window(self) -> RunWindow:
        """The views of the run."""
        ...

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held while the views change."""
        ...


def progress(run: LiveRun, *, every_s: float = 0.25, **bar_options: Any) -> str:
    """Show a bar of epochs, with step, loss and imbalance, until the run ends; returns its last status.

    It only looks: interrupting it leaves the run alone.

    Args:
        run: a run handle, such as ``session.train(config)`` returns.
        every_s: seconds between two looks.
        bar_options: passed to ``tqdm.auto.tqdm``, such as ``file`` or ``leave``.
    """
    from tqdm.auto import tqdm

    with tqdm(total=run.window.config.epochs, unit="epoch", **bar_options) as bar:
        while True:
            status = run.status  # read before the window, so that the last look comes after the end
            with run.lock:
                _show(bar, run.window, status)
            if status in ENDED:
                break
            time.sleep(every_s)
        if run.reason:
            bar.set_description(f"{status}: {run.reason}")
    return status


def _show(bar: Any, window: RunWindow, status: str) -> None:
    done, newest, balance = window.progress, window.loss.steps.last, window.phases.balance()
    facts: dict[str, Any] = {"step": done.step}
    if newest is not None and newest.value is not None:
        facts["loss"] = f"{newest.value:.4g}"
    if balance is not None and len(balance.own_s) > 1:
        facts["imbalance"] = f"{balance.ratio:.2f}"
    bar.n = done.epoch
    bar.set_description(status, refresh=False)
    bar.set_postfix(facts, refresh=False)
    bar.refresh()
