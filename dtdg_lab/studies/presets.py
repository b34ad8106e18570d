"""Studies shipped with the lab, by name; those of one family of systems lie with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import UnknownNameError
from dtdg_lab.core.units import format_seconds
from dtdg_lab.studies.study import Panel, Study
from dtdg_lab.studies.sweep import Sweep
from dtdg_lab.studies.trials import FINISHED, Trial
from dtdg_lab.systems.base import StudyPreset
from dtdg_lab.systems.scaling import SCALING
from dtdg_lab.visualization.loss import NEAR, loss_points
from dtdg_lab.visualization.study import SpreadBar, order_words, spread_bars


def presets() -> dict[str, StudyPreset]:
    """All shipped studies by name."""
    found = [each for family in catalogue.families() for each in family.studies()]
    return {each.name: each for each in (*found, SCALING)}


def preset(name: str) -> StudyPreset:
    """The shipped study called ``name``.

    Raises:
        UnknownNameError: none is.
    """
    known = presets()
    if name not in known:
        raise UnknownNameError("shipped study", name, known)
    return known[name]


def sweep_of(made: StudyPreset, base: RunConfig | None, quick: bool) -> Sweep:
    """The runs of a shipped study.

    Args:
        made: the study.
        base: settings in place of the study's own data, model and sizes.
        quick: its short form.

    Raises:
        ConfigError: the base's system lacks what is studied.
    """
    config = base or RunConfig(**made.base, **(made.quick if quick else made.full))
    made.check(config)
    over, skip = made.refine(config, dict(made.quick_over if quick else made.over), quick)
    seeds = made.quick_seeds if quick else made.seeds
    config = config.replace(**made.fixed)
    return Sweep(config, over, seeds, skip=skip, objective=made.objective, shipped=made.name)


def analysis_of(made: StudyPreset, study: Study) -> dict[str, Panel]:
    """The figures of a shipped study, finished or not, each with its caption."""
    axis, *more = study.sweep.names
    found = {} if made.analysis is None else dict(made.analysis(study))
    if made.bars:
        found[made.name] = near_best_panel(study, axis, paper=made.paper, title=made.bars)
    return found | {name: study.map_panel(axis, more[0], colour) for name, colour in made.maps.items()}


# Time to a loss close to the best of all runs, which papers call convergence time.


Points = tuple[tuple[float, float], ...]  # (seconds of the run, validation loss)
MOST_READ = 1000
_READ: dict[Path, Points] = {}


def seconds_to_near_best(study: Study, axis: str, paper: Mapping[str, float]) -> list[SpreadBar]:
    """A bar for each value of the one axis: wall seconds to a validation loss 5 % above the lowest of its seed.

    Args:
        study: finished or not.
        axis: that is studied.
        paper: value -> seconds that the paper reports.
    """
    done = [trial for trial in study.trials if trial.status == FINISHED]
    points = {trial.key: _points(study, trial) for trial in done}
    least: dict[int, float] = {}  # by seed: generated data depend on the seed
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
    """Seconds and losses of a finished run; cached, because a study is redrawn with every trial."""
    path = None if trial.run is None else trial.run.resolve()
    if path is None or path not in _READ:
        found = tuple(loss_points(study.open(trial).live))
        if path is None:
            return found
        if len(_READ) >= MOST_READ:
            _READ.clear()
        _READ[path] = found
    return _READ[path]


def near_best_panel(study: Study, axis: str, *, paper: Mapping[str, float], title: str) -> Panel:
    """The bars and their ranking, beside the values that the paper reports for its own data and machines."""
    bars = seconds_to_near_best(study, axis, paper)
    figure = spread_bars(bars, title, f"seconds to a validation loss {NEAR:.0%} above the lowest of the seed")
    reported = ", ".join(f"{bar.label} {format_seconds(bar.paper)}" for bar in bars if bar.paper is not None)
    said = f" The paper reports, on other data and machines: {reported}." if reported else ""
    return figure, f"{order_words(bars, 'time')}{said}"
