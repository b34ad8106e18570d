"""Seconds that the runs of a study took to a loss near the least of any: what papers call convergence time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dtdg_lab.core.units import format_seconds
from dtdg_lab.studies.shipped.entry import Panel
from dtdg_lab.studies.study import Study
from dtdg_lab.studies.trials import FINISHED, Trial
from dtdg_lab.views.spread_bars import SpreadBar, order_words, spread_bars
from dtdg_lab.views.time_to_loss import NEAR, loss_points

Points = tuple[tuple[float, float], ...]  # (seconds of the run, validation loss)
MOST_READ = 1000
_READ: dict[Path, Points] = {}


def seconds_to_near_best(study: Study, axis: str, paper: Mapping[str, float]) -> list[SpreadBar]:
    """A bar for each value of the one axis: wall seconds to a validation loss 5 % above the least of its seed.

    Args:
        study: done or under way.
        axis: that is studied.
        paper: value -> seconds that the paper reports.
    """
    done = [trial for trial in study.trials if trial.status == FINISHED]
    points = {trial.key: _points(study, trial) for trial in done}
    least: dict[int, float] = {}  # of each seed: generated data are others with another seed
    for trial in done:
        for _, loss in points[trial.key]:
            least[trial.seed] = min(loss, least.get(trial.seed, loss))
    bars = []
    for value in study.sweep.axes[0].values:
        seconds = []
        for trial in (each for each in done if each.settings[axis] == value):
            aim = least.get(trial.seed, 0.0) * (1 + NEAR)
            seconds.append(next((at for at, loss in points[trial.key] if loss <= aim), None))
        known = tuple(each for each in seconds if each is not None)
        bars.append(SpreadBar(str(value), known, len(seconds) - len(known), paper.get(str(value))))
    return bars


def _points(study: Study, trial: Trial) -> Points:
    """Seconds and losses of a finished run, whose records are read once: a study is drawn again with every trial."""
    path = None if trial.run is None else trial.run.resolve()
    if path is None or path not in _READ:
        found = tuple(loss_points(study.open(trial).window))
        if path is None:
            return found
        if len(_READ) >= MOST_READ:
            _READ.clear()
        _READ[path] = found
    return _READ[path]


def near_best_panel(study: Study, axis: str, *, paper: Mapping[str, float], title: str) -> Panel:
    """The bars, and who is first; beside what the paper reports of its own data and machines."""
    bars = seconds_to_near_best(study, axis, paper)
    figure = spread_bars(bars, title, f"seconds to a validation loss {NEAR:.0%} above the least of the seed")
    reported = ", ".join(f"{bar.label} {format_seconds(bar.paper)}" for bar in bars if bar.paper is not None)
    said = f" The paper reports, on other data and machines: {reported}." if reported else ""
    return figure, f"{order_words(bars, 'time')}{said}"
