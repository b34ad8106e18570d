"""The time until a loss is close to the best of all runs, which papers call convergence time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from dtdg_lab.core.units import format_seconds
from dtdg_lab.runs.stored_run import open_run
from dtdg_lab.studies.sweep import Axis
from dtdg_lab.studies.trials import FINISHED, Trial
from dtdg_lab.visualization.chart import CaptionedFigure
from dtdg_lab.visualization.runs.curves import NEAR, finite_losses
from dtdg_lab.visualization.studies.spread import SpreadBar, order_caption, spread_bars

Points = tuple[tuple[float, float], ...]  # (seconds of the run, validation loss)


def near_best_bars(trials: Sequence[Trial], axis: Axis, paper: Mapping[str, float]) -> list[SpreadBar]:
    """Return, for each value of an axis, a bar with the seconds to a validation loss 5 % above the seed's lowest.

    Args:
        trials: trials of a study, finished or not.
        axis: the axis that is studied.
        paper: value -> seconds that the paper reports.
    """
    finished = [trial for trial in trials if trial.status == FINISHED and trial.run is not None]
    points = {trial.key: _read_points(trial.run.resolve()) for trial in finished if trial.run is not None}
    lowest: dict[int, float] = {}  # by seed, since generated data depend on the seed
    for trial in finished:
        for _, loss in points[trial.key]:
            lowest[trial.seed] = min(loss, lowest.get(trial.seed, loss))
    bars = []
    for value in axis.values:
        times = []
        for trial in finished:
            if trial.settings[axis.name] == value:
                target = lowest.get(trial.seed, 0.0) * (1 + NEAR)
                times.append(next((seconds for seconds, loss in points[trial.key] if loss <= target), None))
        reached = tuple(seconds for seconds in times if seconds is not None)
        bars.append(SpreadBar(str(value), reached, len(times) - len(reached), paper.get(str(value))))
    return bars


@lru_cache(maxsize=1000)
def _read_points(run: Path) -> Points:
    """Return the losses of a finished run; cached, since a study is redrawn after every trial."""
    return tuple(finite_losses(open_run(run).live))


def near_best_card(trials: Sequence[Trial], axis: Axis, paper: Mapping[str, float], title: str) -> CaptionedFigure:
    """Draw the bars next to the values that the paper reports for its own data and machines."""
    bars = near_best_bars(trials, axis, paper)
    figure = spread_bars(bars, title, f"seconds to a validation loss {NEAR:.0%} above the lowest of the seed")
    reported = ", ".join(f"{bar.label} {format_seconds(bar.paper)}" for bar in bars if bar.paper is not None)
    caption = f" The paper reports, on other data and machines: {reported}." if reported else ""
    return figure, f"{order_caption(bars, 'time')}{caption}"
