"""How well the times of stretches and exchanges are predicted, from the record table ``tasks``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from dtdg_lab.core.units import format_seconds
from dtdg_lab.views.layout import Figure, frame, percent, with_note
from dtdg_lab.views.marks import Marks
from dtdg_lab.views.palette import BASELINE_COLOUR, series_colour

Panel = tuple[Figure, str]
KEPT = 40  # steps of a rank whose tasks are kept one by one; of older ones the median error
_OLDER = 1_000  # steps of a rank of which that is kept
_DRAWN = 1_500  # tasks
_LEAST_S = 1e-7  # as the predictor has it: shorter times count as this
_FALLEN = 0.8  # an error now over the first from which it is said to have fallen
NAMES = {"compute": "computing", "communicate": "exchanges"}
NO_TASKS = "no task has been timed yet"

Task = tuple[float, float]  # seconds, as predicted and as it took


class TaskLog:
    """Tasks of the newest steps and errors of older ones, in bounded memory; fed in any order of ranks."""

    def __init__(self) -> None:
        self._tasks: dict[int, dict[int, dict[tuple[Any, ...], Task]]] = {}  # rank -> step -> key -> times
        self._older: dict[int, dict[int, dict[str, float]]] = {}  # rank -> step -> kind -> median error
        self._attempts: dict[tuple[int, int], int] = {}  # rank, step

    def row(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of the table ``tasks``; one that is told twice counts once."""
        step, steps, older = int(row["step"]), self._tasks.setdefault(rank, {}), self._older.setdefault(rank, {})
        known = self._attempts.setdefault((rank, step), attempt)
        if attempt < known or (attempt == known and step in older):
            return
        if attempt > known:  # computed again
            steps.pop(step, None)
            older.pop(step, None)
            self._attempts[rank, step] = attempt
        times = (float(row["predicted_s"]), max(float(row["took_s"]), _LEAST_S))
        # stretches of one snapshot and layer differ in their times alone
        steps.setdefault(step, {})[str(row["kind"]), row["layer"], row["snapshot"], *times] = times
        while len(steps) > KEPT:
            oldest = min(steps)
            older[oldest] = _medians([steps.pop(oldest)])
        while len(older) > _OLDER:
            oldest = min(older)
            del older[oldest], self._attempts[rank, oldest]

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on."""
        for rank, known in list(self._attempts):
            if known >= step and self._attempts[rank, known] < attempt:
                del self._attempts[rank, known]
                self._tasks[rank].pop(known, None)
                self._older[rank].pop(known, None)

    def __bool__(self) -> bool:
        return bool(self._attempts)

    def newest(self) -> list[tuple[int, int, str, float, float]]:
        """Step, rank, kind and seconds as predicted and as taken, of every task that is kept, in order of steps."""
        found = [
            (step, rank, key[0], *times)
            for rank, steps in self._tasks.items() for step, tasks in steps.items() for key, times in tasks.items()
        ]  # fmt: skip
        return sorted(found)

    def errors(self) -> list[tuple[int, dict[str, float]]]:
        """Step, and by kind the median over its tasks of |predicted - took| / took; of older ones the ranks' median."""
        recent: dict[int, list[dict[tuple[Any, ...], Task]]] = {}
        for steps in self._tasks.values():
            for step, tasks in steps.items():
                recent.setdefault(step, []).append(tasks)
        older: dict[int, list[dict[str, float]]] = {}
        for told in self._older.values():
            for step, each in told.items():
                older.setdefault(step, []).append(each)
        found = {step: {kind: median(_of(kind, ranks)) for kind in _kinds(ranks)} for step, ranks in older.items()}
        found |= {step: _medians(tasks) for step, tasks in recent.items()}
        return sorted(found.items())


def _medians(tasks: Sequence[Mapping[tuple[Any, ...], Task]]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for each in tasks:
        for (kind, *_), (predicted, took) in each.items():
            found.setdefault(kind, []).append(abs(predicted - took) / took)
    return {kind: median(errors) for kind, errors in found.items()}


def _kinds(ranks: Sequence[Mapping[str, float]]) -> set[str]:
    return {kind for each in ranks for kind in each}


def _of(kind: str, ranks: Sequence[Mapping[str, float]]) -> list[float]:
    return [each[kind] for each in ranks if kind in each]


def task_panels(log: TaskLog, marks: Marks) -> dict[str, Panel]:
    """``predicted``: each task's time against what it took; ``error``: the median relative error over steps.

    Args:
        log: what the ranks told.
        marks: of the run's changes.
    """
    newest, errors = log.newest(), log.errors()
    return {
        "predicted": (_dots_figure(newest), _dots_words(newest)),
        "error": (_error_figure(errors, marks), error_words(errors)),
    }


def error_words(errors: Sequence[tuple[int, Mapping[str, float]]]) -> str:
    """How far off predictions are, in a sentence or two.

    Args:
        errors: from :meth:`TaskLog.errors`.
    """
    if not errors:
        return "The order in which snapshots go on follows from predicted times; none has been compared yet."
    recent = errors[-KEPT:]
    now = {kind: median(_of(kind, [each for _, each in recent])) for kind in _in_order(_kinds([e for _, e in recent]))}
    said = " and ".join(f"{percent(error)} for {NAMES.get(kind, kind)}" for kind, error in now.items())
    over = f"the last {len(recent)} steps" if len(recent) > 1 else f"step {recent[0][0]}"
    text = f"In {over} half of the predictions were off by at most {said}, made before the task was seen"
    first = {kind: value for kind, value in errors[0][1].items() if kind in now}
    if len(errors) > KEPT and first and all(now[kind] < _FALLEN * value for kind, value in first.items()):
        text += f"; in step {errors[0][0]} it was " + " and ".join(percent(first[kind]) for kind in _in_order(first))
    return text + ". A wrong order costs time and changes no loss."


def _in_order(kinds: Any) -> list[str]:
    return sorted(kinds, key=lambda kind: (kind not in NAMES, list(NAMES).index(kind) if kind in NAMES else 0, kind))


def _colour(kind: str) -> str:
    return series_colour(list(NAMES).index(kind) if kind in NAMES else len(NAMES))


def _dots_figure(newest: Sequence[tuple[int, int, str, float, float]]) -> Figure:
    title = "Task times: predicted against taken"
    plain = frame(title, "predicted (ms)", "taken (ms)")
    if not newest:
        nothing = {"type": "scatter", "x": [], "y": [], "showlegend": False}  # else a grid would not draw the axes
        return {"data": [nothing], "layout": with_note(plain, NO_TASKS)}
    drawn = newest[:: -(-len(newest) // _DRAWN)]
    times = [_milliseconds(each) for *_, predicted, took in drawn for each in (predicted, took)]
    ends = [min(times), max(times)]
    data: list[dict[str, Any]] = [{
        "type": "scatter", "mode": "lines", "name": "equal", "x": ends, "y": ends, "hoverinfo": "skip",
        "line": {"color": BASELINE_COLOUR, "width": 1, "dash": "dot"},
    }]  # fmt: skip
    for kind in _in_order({each[2] for each in drawn}):
        own = [each for each in drawn if each[2] == kind]
        data.append({
            "type": "scatter", "mode": "markers", "name": NAMES.get(kind, kind), "showlegend": True,
            "x": [_milliseconds(each[3]) for each in own], "y": [_milliseconds(each[4]) for each in own],
            "customdata": [list(each[:2]) for each in own],
            "marker": {"color": _colour(kind), "size": 5, "opacity": 0.6},
            "hovertemplate": "step %{customdata[0]}, rank %{customdata[1]}: predicted %{x:.3~g} ms, took %{y:.3~g} ms",
        })  # fmt: skip
    log = {"type": "log"}
    return {"data": data, "layout": frame(title, "predicted (ms)", "taken (ms)", xaxis=log, yaxis=log)}


def _milliseconds(seconds: float) -> float:
    return float(f"{1e3 * max(seconds, _LEAST_S):.4g}")


def _dots_words(newest: Sequence[tuple[int, int, str, float, float]]) -> str:
    if not newest:
        return "Each dot is to be a stretch of computing or an exchange; on the diagonal it took what was predicted."
    steps = newest[-1][0] - newest[0][0] + 1
    longest = max(newest, key=lambda each: each[4])
    return (
        f"Each dot is a stretch of computing or an exchange of the last {steps} steps; above the diagonal it took "
        f"longer than predicted. The longest took {format_seconds(longest[4])}, predicted {format_seconds(longest[3])}."
    )


def _error_figure(errors: Sequence[tuple[int, Mapping[str, float]]], marks: Marks) -> Figure:
    layout = frame(
        "Error of predicted task times", "step (model updates)", "median error (% of the time taken)",
        yaxis={"rangemode": "tozero"}, **marks.over_steps([step for step, _ in errors]),
    )  # fmt: skip
    data = []
    for kind in _in_order(_kinds([each for _, each in errors])):
        name = NAMES.get(kind, kind)
        data.append({
            "type": "scatter", "mode": "lines" if len(errors) > 1 else "markers", "name": name,
            "showlegend": True, "x": [step for step, _ in errors],
            "y": [round(100 * each[kind], 2) if kind in each else None for _, each in errors],
            "line": {"color": _colour(kind), "width": 1.5}, "marker": {"color": _colour(kind)},
            "hovertemplate": "step %{x}: %{y:.0f} %<extra>" + name + "</extra>",
        })  # fmt: skip
    return {"data": data, "layout": layout if errors else with_note(layout, NO_TASKS)}
