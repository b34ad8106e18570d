"""What a study draws: its combinations as the views take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dtdg_lab.core.options import OPTIONS
from dtdg_lab.studies.combinations import Combination
from dtdg_lab.studies.objective import number
from dtdg_lab.studies.sweep import Sweep
from dtdg_lab.studies.trials import FAILED, FINISHED, PRUNED, RUNNING, Trial
from dtdg_lab.views.layout import Figure
from dtdg_lab.views.study_course import study_course
from dtdg_lab.views.study_line import study_line
from dtdg_lab.views.study_map import MapNames, StudyCell, writer
from dtdg_lab.views.study_map import study_map as map_view
from dtdg_lab.views.study_parallel import Way, study_parallel

Panel = tuple[Figure, str]


@dataclass(frozen=True, slots=True)
class MapOf:
    """What a heat map is drawn of.

    Attributes:
        sweep: of the study.
        combinations: with the number that is coloured.
        x: setting across.
        y: setting up.
        measure: name of that number.
    """

    sweep: Sweep
    combinations: Sequence[Combination]
    x: str
    y: str
    measure: str


def study_map(of: MapOf, title: str) -> Panel:
    """Medians over seeds, and over other settings where there are some, over two settings."""
    pooled = tuple(name for name in of.sweep.names if name not in (of.x, of.y))
    found: dict[tuple[Any, Any], list[Combination]] = {}
    for each in of.combinations:
        found.setdefault((each.settings[of.x], each.settings[of.y]), []).append(each)
    cells = [_cell(place, each, of.measure) for place, each in found.items()]
    names = MapNames(
        f"{title}: {of.measure}", axis_name(of.x), axis_name(of.y), of.measure,
        least_is_best=_least(of.sweep, of.measure), pooled=pooled,
    )  # fmt: skip
    return map_view(cells, names)


def line(sweep: Sweep, combinations: Sequence[Combination], title: str) -> Panel:
    """The objective over the one setting that is studied."""
    name = sweep.names[0]
    cells = [_cell((each.settings[name], ""), [each], sweep.objective) for each in combinations]
    names = MapNames(title, axis_name(name), "", sweep.objective, least_is_best=sweep.goal == "min")
    return study_line(cells, names, joined=not sweep.is_search)


def history(sweep: Sweep, combinations: Sequence[Combination], title: str) -> Panel:
    """The objective over the numbers of the trials."""
    cells = [_cell((each.number, ""), [each], sweep.objective) for each in combinations]
    return study_course(cells, MapNames(title, "trial", "", sweep.objective, least_is_best=sweep.goal == "min"))


def parallel(sweep: Sweep, combinations: Sequence[Combination], title: str) -> Panel:
    """All settings at once."""
    ways = [
        Way(
            tuple(each.settings[name] for name in sweep.names), each.middle, _told_way(each, sweep.objective),
            _shown(each.trials),
        )
        for each in combinations
        if each.middle is not None
    ]  # fmt: skip
    heads = [axis_name(name) for name in sweep.names]
    return study_parallel(ways, heads, sweep.objective, title=title, least=sweep.goal == "min")


def axis_name(name: str) -> str:
    """A setting with its unit."""
    unit = OPTIONS[name].unit if name in OPTIONS else ""
    return f"{name} ({unit})" if unit else name


def _least(sweep: Sweep, measure: str) -> bool:
    if measure == sweep.objective:
        return sweep.goal == "min"
    return measure not in ("skill", "hit_rate")


def _cell(place: tuple[Any, Any], combinations: Sequence[Combination], measure: str) -> StudyCell:
    trials = [trial for each in combinations for trial in each.trials]
    states = {state: sum(trial.status == state for trial in trials) for state in (FAILED, PRUNED, RUNNING)}
    return StudyCell(
        *place, values=tuple(value for each in combinations for value in each.values), asked=len(trials),
        states={state: count for state, count in states.items() if count},
        told=tuple(_told(trial, measure) for trial in trials), key=_shown(trials),
    )  # fmt: skip


def _told(trial: Trial, measure: str) -> str:
    value = number(trial.values.get(measure)) if trial.status == FINISHED else None
    if value is not None:
        return f"seed {trial.seed}: {writer(measure)(value)}"
    reason = f": {trial.reason[:90]}" if trial.reason else ""
    return f"seed {trial.seed}: {trial.status}{reason}"


def _told_way(combination: Combination, measure: str) -> str:
    return "<br>".join([combination.told, *(_told(trial, measure) for trial in combination.trials[:8])])


def _shown(trials: Sequence[Trial]) -> str:
    """The run that a click opens: the first one under way, else the first that has one."""
    with_run = [trial for trial in trials if trial.run is not None]
    first = [trial for trial in with_run if trial.status == RUNNING] or with_run
    return first[0].key if first else ""
