"""The view of trapezoid-shaped windows, with the charts of hidden exchanges and of predicted task times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dtdg_lab.core.units import format_seconds
from dtdg_lab.systems.decayed_windows import charts
from dtdg_lab.systems.decayed_windows.events import ChunkFacts, TrapezoidFacts
from dtdg_lab.visualization import charts as drawing
from dtdg_lab.visualization.layout import Figure, grid, percent
from dtdg_lab.visualization.palette import BASELINE_COLOUR, WARNING_COLOUR, series_colour
from dtdg_lab.visualization.run_view import PlanView
from dtdg_lab.visualization.series import StepSums, Sums
from dtdg_lab.visualization.style import Marks

# Seconds in flight and exposed in a step, before and after each change of the setting ``overlap``.


Seconds = tuple[float, float]  # in flight and exposed
OVERLAP_KEPT = 60  # steps of a stretch; the newest
STRETCHES = 6  # between changes; the newest
_LEAST = 0.01  # of what was exposed, from which a difference is one


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps from one change of ``overlap`` to the next, as far as they are kept.

    Attributes:
        overlap: its value in these steps.
        start: the step from which it has had this value.
        steps: their numbers, in order.
        in_flight_s: mean seconds of a step and rank in which rows were in flight, summed over layers and passes.
        exposed_s: of it, those in which the rank stood still.
    """

    overlap: bool
    start: int
    steps: tuple[int, ...]
    in_flight_s: float
    exposed_s: float

    @property
    def name(self) -> str:
        """What it is called in pictures."""
        return f"overlap {'on' if self.overlap else 'off'}, from step {self.start}"


class OverlapLog(StepSums):
    """Rows of the table ``exchanges`` for the newest steps of each stretch, in bounded memory.

    Args:
        overlap: the setting when the run began.
    """

    def __init__(self, overlap: bool = True) -> None:
        kept = 2 * OVERLAP_KEPT * STRETCHES
        super().__init__(("layer", "pass_name", "collective"), ("in_flight_s", "exposed_s"), kept)
        self._first = bool(overlap)
        self._changes: dict[int, tuple[bool, int]] = {}  # first step -> value, attempt

    def _surplus(self, steps: Mapping[int, Sums]) -> list[int]:
        kept = {each for *_, described in self._stretches(sorted(steps)) for each in described}
        return [each for each in steps if each not in kept]

    def changed(self, step: int, overlap: bool, attempt: int) -> None:
        """Note that the setting has been ``overlap`` from ``step`` on."""
        if attempt >= self._changes.get(step, (True, -1))[1]:
            self._changes[step] = (bool(overlap), attempt)

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did and changed from ``step`` on."""
        super().truncate(step, attempt)
        self._changes = {at: each for at, each in self._changes.items() if at < step or each[1] >= attempt}

    def seconds(self, ranks: int) -> list[tuple[int, Seconds]]:
        """Step, and seconds in flight and exposed of a rank in the mean; of the steps that all ranks have recorded."""
        found = []
        for step in self.recorded(ranks):
            flying, exposed = zip(*self.sums(step).values(), strict=True)
            found.append((step, (sum(flying) / ranks, sum(exposed) / ranks)))
        return found

    def stretches(self, ranks: int) -> list[Stretch]:
        """The newest stretches that have steps, in order."""
        described = dict(self.seconds(ranks))
        found = []
        for overlap, start, steps in self._stretches(list(described)):
            flying, exposed = (sum(described[step][place] for step in steps) / len(steps) for place in (0, 1))
            found.append(Stretch(overlap, start, tuple(steps), flying, exposed))
        return found

    def _stretches(self, steps: Sequence[int]) -> list[tuple[bool, int, list[int]]]:
        """Value, start and newest steps of each of the newest stretches; a change to the same value begins none."""
        found: list[tuple[bool, int, list[int]]] = [(self._first, 0, [])]
        changes = sorted(self._changes.items())
        for step in steps:
            while changes and changes[0][0] <= step:
                start, (value, _) = changes.pop(0)
                if value != found[-1][0]:
                    found.append((value, start, []))
            found[-1][2].append(step)
        return [(value, start, described[-OVERLAP_KEPT:]) for value, start, described in found if described][
            -STRETCHES:
        ]


def overlap_panels(log: OverlapLog, ranks: int, marks: Marks) -> dict[str, drawing.Panel]:
    """``exposed``: seconds in flight and exposed over steps; ``change``: their means before and after each change.

    Args:
        log: rows that the ranks logged.
        ranks: R, whose mean is drawn.
        marks: of the run's changes.
    """
    steps, stretches = log.seconds(ranks), log.stretches(ranks)
    at = [step for step, _ in steps]
    data = []
    for place, name, colour, dash in (
        (0, "in flight", BASELINE_COLOUR, "dash"),
        (1, "exposed", WARNING_COLOUR, "solid"),
    ):
        x, y = drawing.with_gaps(at, [round(1e3 * seconds[place], 4) for _, seconds in steps])
        data.append(drawing.line(name, x, y, colour, "step %{x}: %{y:.4~g} ms", width=1.5, dash=dash))
    titles = ("Exchanges of a step: in flight and exposed", "mean of a rank (ms)")
    looks: drawing.Drawn = {"empty": drawing.NOTHING_SENT, "yaxis": {"rangemode": "tozero"}}
    change = drawing.exposed_bars(
        "Exposed and hidden, before and after",
        "mean of a rank and step (ms)",
        [each.name for each in stretches],
        [1e3 * each.in_flight_s for each in stretches],
        [1e3 * each.exposed_s for each in stretches],
    )
    return {
        "exposed": (marks.chart(*titles, data if steps else [], at, **looks), _lines_words(stretches)),
        "change": (change, change_words(stretches)),
    }


def change_words(stretches: Sequence[Stretch]) -> str:
    """What overlap saves of the time that ranks stand still, where the run has had it both ways."""
    if not stretches:
        return "Exposed is what a rank stands still for; the rest of the time in flight it computes."
    now = stretches[-1]
    before = next((each for each in reversed(stretches) if each.overlap != now.overlap), None)
    still = f"{format_seconds(now.exposed_s)} of a step's {format_seconds(now.in_flight_s)} in flight"
    if before is None:
        other = "off" if now.overlap else "on"
        return f"Now {still} are exposed. Set overlap {other} in the run to see what it does: the losses stay the same."
    off, on = (before, now) if now.overlap else (now, before)
    if abs(off.exposed_s - on.exposed_s) <= _LEAST * max(off.exposed_s, on.exposed_s):
        return f"Exposed are {format_seconds(on.exposed_s)} of a step with overlap and without: it hides nothing here."
    change = (on.exposed_s - off.exposed_s) / off.exposed_s if off.exposed_s else None
    described = "" if change is None else f", {percent(abs(change))} {'less' if change < 0 else 'more'}"
    return (
        f"Exposed are {format_seconds(off.exposed_s)} of a step without overlap and {format_seconds(on.exposed_s)} "
        f"with it{described}: means of {len(off.steps)} and {len(on.steps)} steps."
    )


def _lines_words(stretches: Sequence[Stretch]) -> str:
    if not stretches:
        return "Between the two lines lies what is hidden behind computing."
    now = stretches[-1]
    hidden = 1 - now.exposed_s / now.in_flight_s if now.in_flight_s > 0 else 0.0
    order = "Exchanges that overlap" if now.overlap else "In the blocking order exchanges"
    return (
        f"{order} are in flight {format_seconds(now.in_flight_s)} of a step; {percent(max(0.0, hidden))} of that is "
        "hidden: the gap between the two lines. Concurrent exchanges each count."
    )


# How well the times of stretches and exchanges are predicted, from the record table ``tasks``.


TASK_TIMES_KEPT = 40  # steps of a rank whose tasks are kept one by one; of older ones the median error
_OLDER = 1_000  # steps of a rank whose median is kept
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
        """Add one row of the table ``tasks``; a row logged twice counts once."""
        step, steps, older = int(row["step"]), self._tasks.setdefault(rank, {}), self._older.setdefault(rank, {})
        known = self._attempts.setdefault((rank, step), attempt)
        if attempt < known or (attempt == known and step in older):
            return
        if attempt > known:  # computed again
            steps.pop(step, None)
            older.pop(step, None)
            self._attempts[rank, step] = attempt
        times = (float(row["predicted_s"]), max(float(row["duration_s"]), _LEAST_S))
        # stretches of one snapshot and layer differ in their times alone
        steps.setdefault(step, {})[str(row["kind"]), row["layer"], row["snapshot"], *times] = times
        while len(steps) > TASK_TIMES_KEPT:
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
            for rank, steps in self._tasks.items()
            for step, tasks in steps.items()
            for key, times in tasks.items()
        ]
        return sorted(found)

    def errors(self) -> list[tuple[int, dict[str, float]]]:
        """Step, and by kind the median over its tasks of |predicted - took| / took; of older ones the ranks' median."""
        recent: dict[int, list[dict[tuple[Any, ...], Task]]] = {}
        for steps in self._tasks.values():
            for step, tasks in steps.items():
                recent.setdefault(step, []).append(tasks)
        older: dict[int, list[dict[str, float]]] = {}
        for described in self._older.values():
            for step, each in described.items():
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


def task_panels(log: TaskLog, marks: Marks) -> dict[str, drawing.Panel]:
    """``predicted``: each task's time against what it took; ``error``: the median relative error over steps.

    Args:
        log: rows that the ranks logged.
        marks: of the run's changes.
    """
    newest, errors = log.newest(), log.errors()
    dots = []
    drawn = newest[:: max(1, -(-len(newest) // _DRAWN))]
    if drawn:
        times = [_milliseconds(each) for *_, predicted, took in drawn for each in (predicted, took)]
        ends = [min(times), max(times)]
        dots.append(drawing.line("equal", ends, ends, width=1, dash="dot", hoverinfo="skip"))
    hover = "step %{customdata[0]}, rank %{customdata[1]}: predicted %{x:.3~g} ms, took %{y:.3~g} ms"
    for kind in _in_order({each[2] for each in drawn}):
        own = [each for each in drawn if each[2] == kind]
        x, y = [_milliseconds(each[3]) for each in own], [_milliseconds(each[4]) for each in own]
        looks: drawing.Drawn = {"size": 5, "marker": {"opacity": 0.6}, "customdata": [list(each[:2]) for each in own]}
        dots.append(drawing.points(NAMES.get(kind, kind), x, y, _colour(kind), hover, showlegend=True, **looks))
    at, lines = [step for step, _ in errors], []
    for kind in _in_order(_kinds([each for _, each in errors])):
        shares = [round(100 * each[kind], 2) if kind in each else None for _, each in errors]
        looks = {"width": 1.5, "showlegend": True}
        lines.append(drawing.line(NAMES.get(kind, kind), at, shares, _colour(kind), "step %{x}: %{y:.0f} %", **looks))
    scale = {"type": "log"} if dots else {}
    titles = ("Task times: predicted against taken", "predicted (ms)", "taken (ms)")
    over = ("Error of predicted task times", "median error (% of the time taken)")
    looks = {"empty": NO_TASKS, "yaxis": {"rangemode": "tozero"}}
    return {
        "predicted": (drawing.chart(*titles, dots, empty=NO_TASKS, xaxis=scale, yaxis=scale), _dots_words(newest)),
        "error": (marks.chart(*over, lines, at, **looks), error_words(errors)),
    }


def error_words(errors: Sequence[tuple[int, Mapping[str, float]]]) -> str:
    """How far off predictions are, in a sentence or two.

    Args:
        errors: from :meth:`TaskLog.errors`.
    """
    if not errors:
        return "The order in which snapshots go on follows from predicted times; none has been compared yet."
    recent = errors[-TASK_TIMES_KEPT:]
    now = {kind: median(_of(kind, [each for _, each in recent])) for kind in _in_order(_kinds([e for _, e in recent]))}
    said = " and ".join(f"{percent(error)} for {NAMES.get(kind, kind)}" for kind, error in now.items())
    over = f"the last {len(recent)} steps" if len(recent) > 1 else f"step {recent[0][0]}"
    text = f"In {over} half of the predictions were off by at most {said}, made before the task was seen"
    first = {kind: value for kind, value in errors[0][1].items() if kind in now}
    if len(errors) > TASK_TIMES_KEPT and first and all(now[kind] < _FALLEN * value for kind, value in first.items()):
        text += f"; in step {errors[0][0]} it was " + " and ".join(percent(first[kind]) for kind in _in_order(first))
    return text + ". A wrong order costs time and changes no loss."


def _in_order(kinds: Any) -> list[str]:
    return sorted(kinds, key=lambda kind: (kind not in NAMES, list(NAMES).index(kind) if kind in NAMES else 0, kind))


def _colour(kind: str) -> str:
    return series_colour(list(NAMES).index(kind) if kind in NAMES else len(NAMES))


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


# The view of trapezoid-shaped windows: the batch now, windows and phases of steps, exchanges, tasks, and the tuner.


class TrapezoidView(PlanView[TrapezoidFacts]):
    """The windows of one run as they are now, and what its newest steps took.

    Args:
        ranks: R.
        marks: the run's changes.
        overlap: the setting when the run began.
    """

    name = "trapezoid"
    title = "Windows that decay"
    plan = TrapezoidFacts
    subject = "windows of full and decayed snapshots"

    def __init__(self, ranks: int, marks: Marks, overlap: bool = True) -> None:
        super().__init__()
        self.ranks = ranks
        self.batches, self.decisions = charts.BatchLog(), charts.DecisionLog()
        self.tasks, self.overlap = TaskLog(), OverlapLog(overlap)
        self.tables = {
            "steps": self.step,
            "batches": self.batches.row,
            "exchanges": self.exchange,
            "tasks": self.tasks.row,
        }
        self.tables_before = {"decisions": self.decisions.row}
        self.events = {**self.events, "chunks": self.chunks}
        self._marks = marks
        self._chunks: list[tuple[int, int, str]] = []  # attempt, step, words

    def chunks(self, row: Mapping[str, Any], attempt: int) -> None:
        """Add one event ``chunks``."""
        facts = ChunkFacts.read_plan(row["data"])
        known = (attempt, int(row["step"] or 0), "" if facts is None else facts.words)
        self._chunks = [*self._chunks, known][-self.plans_kept :]

    def setting_changed(self, row: Mapping[str, Any], attempt: int) -> None:
        """Note changed windows, and whether exchanges overlap, by an event ``settings`` of any rank."""
        facts, changes = self.facts, row["data"]["changes"]
        if "overlap" in changes:
            self.overlap.changed(int(row["step"]), changes["overlap"] not in ("off", False), attempt)
        if facts is not None and (attempt, int(row["step"])) >= self._known[-1][:2]:
            self._take_plan(facts.changed(changes), row, attempt)

    def exchange(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of the table ``exchanges``; of runs with such windows alone."""
        if self._known:
            self.overlap.row(rank, row, attempt)

    def step(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of the table ``steps``; likewise."""
        if self._known:
            self.batches.step(rank, row, attempt)
            self.overlap.step(rank, int(row["step"]))

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on; a plan made just before ``step`` stays."""
        super().truncate(step, attempt)
        for log in (self.batches, self.decisions, self.tasks, self.overlap):
            log.truncate(step, attempt)
        self._chunks = [known for known in self._chunks if known[1] <= step or known[0] >= attempt]

    @property
    def now(self) -> charts.Batch | None:
        """The batch of the newest step that every rank has logged."""
        steps = self._steps()
        return steps[-1].batch if steps else None

    def _steps(self) -> list[charts.BatchStep]:
        return self.batches.steps(self.ranks)

    def named_panels(self) -> dict[str, drawing.Panel]:
        """The panels by names that stay theirs: ``shape``, and those of batches, exchanges, tasks and decisions."""
        facts = self.facts
        if facts is None:
            return {}
        steps, looks = self._steps(), self.decisions.looks()
        batch = steps[-1].batch if steps else None
        found = {"shape": (charts.shape_figure(facts, batch), charts.shape_words(facts, batch))}
        found |= charts.batch_panels(steps, facts, self._marks, since=self.since)
        if self.overlap.seconds(self.ranks):
            found |= overlap_panels(self.overlap, self.ranks, self._marks)
        if self.tasks:
            found |= task_panels(self.tasks, self._marks)
        return found | charts.decision_panels(looks) if looks else found

    def figure(self) -> Figure:
        """All panels as one figure."""
        facts, panels = self._in_use(), self.named_panels()
        wide = [list(panels).index("shape")] if len(panels) % 2 else []
        return grid(list(panels.values()), title=f"Windows of {facts.window} snapshots: {facts.shape.words}", wide=wide)

    def caption(self) -> str:
        """The windows, what cutting them out costs, and what the tuner did, in words."""
        facts = self.facts
        if facts is None:
            return ""
        text = facts.words
        text += f" {self._chunks[-1][2]}" if self._chunks and facts.chunks > 1 else ""
        steps = [each for each in self._steps() if each.batch.step >= self.since]
        text += f" {charts.shrinking_words(steps)}" if steps else ""
        looks = self.decisions.looks()
        return f"{text} {charts.decision_words(looks)}" if looks else text
