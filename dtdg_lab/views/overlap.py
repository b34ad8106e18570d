"""Seconds in flight and exposed in a step, before and after each change of the setting ``overlap``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtdg_lab.core.units import format_seconds
from dtdg_lab.views.layout import Figure, frame, percent, with_note
from dtdg_lab.views.marks import Marks
from dtdg_lab.views.palette import BASELINE_COLOUR, WARNING_COLOUR

Panel = tuple[Figure, str]
Seconds = tuple[float, float]  # in flight and exposed
KEPT = 60  # steps of a stretch; the newest
STRETCHES = 6  # between changes; the newest
_LEAST = 0.01  # of what was exposed, from which a difference is one
NOTHING_SENT = "no exchange yet"
_HIDDEN = "#9FC3DC"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps from one change of ``overlap`` to the next, as far as they are kept.

    Attributes:
        overlap: its value in these steps.
        start: the step from which it has had this value.
        steps: their numbers, in order.
        in_flight_s: mean seconds of a step and rank in which rows were in flight, summed over layers, ways and legs.
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


class OverlapLog:
    """Rows of the table ``exchanges`` for the newest steps of each stretch, in bounded memory.

    Args:
        overlap: the setting when the run began.
    """

    def __init__(self, overlap: bool = True) -> None:
        self._first = bool(overlap)
        self._changes: dict[int, tuple[bool, int]] = {}  # first step -> value, attempt
        self._rows: dict[int, dict[int, dict[tuple[Any, ...], Seconds]]] = {}  # rank -> step -> key -> seconds
        self._attempts: dict[tuple[int, int], int] = {}  # rank, step
        self._newest: dict[int, int] = {}  # rank -> newest step recorded

    def row(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row; one that is told twice counts once."""
        steps, step = self._rows.setdefault(rank, {}), int(row["step"])
        if self._attempts.setdefault((rank, step), attempt) < attempt:  # computed again
            steps[step], self._attempts[rank, step] = {}, attempt
        key = (row["layer"], row["way"], row["leg"])
        steps.setdefault(step, {})[key] = (float(row["in_flight_s"] or 0.0), float(row["exposed_s"] or 0.0))
        if len(steps) > 2 * KEPT * STRETCHES:
            kept = {each for *_, told in self._stretches(sorted(steps)) for each in told}
            for each in [each for each in steps if each not in kept]:
                del steps[each], self._attempts[rank, each]

    def step(self, rank: int, step: int) -> None:
        """Note that a rank has recorded a step."""
        self._newest[rank] = max(step, self._newest.get(rank, -1))

    def changed(self, step: int, overlap: bool, attempt: int) -> None:
        """Note that the setting has been ``overlap`` from ``step`` on."""
        if attempt >= self._changes.get(step, (True, -1))[1]:
            self._changes[step] = (bool(overlap), attempt)

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did and changed from ``step`` on."""
        for rank, known in list(self._attempts):
            if known >= step and self._attempts[rank, known] < attempt:
                del self._rows[rank][known], self._attempts[rank, known]
        self._newest = {rank: min(newest, step - 1) for rank, newest in self._newest.items()}
        self._changes = {at: each for at, each in self._changes.items() if at < step or each[1] >= attempt}

    def seconds(self, ranks: int) -> list[tuple[int, Seconds]]:
        """Step, and seconds in flight and exposed of a rank in the mean; of the steps that all ranks have recorded."""
        newest = min((self._newest.get(rank, -1) for rank in range(ranks)), default=-1)
        sums: dict[int, list[float]] = {}
        for steps in self._rows.values():
            for step, told in steps.items():
                if step <= newest:
                    sum_s = sums.setdefault(step, [0.0, 0.0])
                    sum_s[0] += sum(each[0] for each in told.values())
                    sum_s[1] += sum(each[1] for each in told.values())
        return [(step, (flying / ranks, exposed / ranks)) for step, (flying, exposed) in sorted(sums.items())]

    def stretches(self, ranks: int) -> list[Stretch]:
        """The newest stretches that have steps, in order."""
        told = dict(self.seconds(ranks))
        found = []
        for overlap, start, steps in self._stretches(list(told)):
            flying, exposed = (sum(told[step][place] for step in steps) / len(steps) for place in (0, 1))
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
        return [(value, start, told[-KEPT:]) for value, start, told in found if told][-STRETCHES:]


def overlap_panels(log: OverlapLog, ranks: int, marks: Marks) -> dict[str, Panel]:
    """``exposed``: seconds in flight and exposed over steps; ``change``: their means before and after each change.

    Args:
        log: what the ranks told.
        ranks: R, whose mean is drawn.
        marks: of the run's changes.
    """
    steps, stretches = log.seconds(ranks), log.stretches(ranks)
    return {
        "exposed": (_lines_figure(steps, marks), _lines_words(stretches)),
        "change": (_bars_figure(stretches), change_words(stretches)),
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
    told = "" if change is None else f", {percent(abs(change))} {'less' if change < 0 else 'more'}"
    return (
        f"Exposed are {format_seconds(off.exposed_s)} of a step without overlap and {format_seconds(on.exposed_s)} "
        f"with it{told}: means of {len(off.steps)} and {len(on.steps)} steps."
    )


def _lines_figure(steps: Sequence[tuple[int, Seconds]], marks: Marks) -> Figure:
    layout = frame(
        "Exchanges of a step: in flight and exposed", "step (model updates)", "mean of a rank (ms)",
        yaxis={"rangemode": "tozero"}, **marks.over_steps([step for step, _ in steps]),
    )  # fmt: skip
    lines = (("in flight", 0, BASELINE_COLOUR, "dash"), ("exposed", 1, WARNING_COLOUR, "solid"))
    data: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "lines" if len(steps) > 1 else "markers", "name": name,
            **_with_gaps([(step, round(1e3 * seconds[place], 4)) for step, seconds in steps]),
            "line": {"color": colour, "width": 1.5, "dash": dash}, "marker": {"color": colour},
            "hovertemplate": "step %{x}: %{y:.4~g} ms<extra>" + name + "</extra>",
        }
        for name, place, colour, dash in lines
    ]  # fmt: skip
    return {"data": data if steps else [], "layout": layout if steps else with_note(layout, NOTHING_SENT)}


def _with_gaps(points: Sequence[tuple[int, float]]) -> dict[str, list[Any]]:
    """Points of a line that ends where steps are no longer kept and begins anew after them."""
    x: list[Any] = []
    y: list[Any] = []
    for step, value in points:
        if x and step > x[-1] + 1:
            x.append(x[-1] + 1)
            y.append(None)
        x.append(step)
        y.append(value)
    return {"x": x, "y": y}


def _lines_words(stretches: Sequence[Stretch]) -> str:
    if not stretches:
        return "Between the two lines lies what is hidden behind computing."
    now = stretches[-1]
    hidden = 1 - now.exposed_s / now.in_flight_s if now.in_flight_s > 0 else 0.0
    way = "Exchanges that overlap" if now.overlap else "In the blocking order exchanges"
    return (
        f"{way} are in flight {format_seconds(now.in_flight_s)} of a step, of which {percent(max(0.0, hidden))} are "
        "hidden: what lies between the two lines. Several at once count each."
    )


def _bars_figure(stretches: Sequence[Stretch]) -> Figure:
    layout = frame(
        "Exposed and hidden, before and after", "mean of a rank and step (ms)", "", barmode="stack", bargap=0.35,
        xaxis={"rangemode": "tozero"},
        yaxis={"autorange": "reversed", "type": "category", "showgrid": False, "ticksuffix": " ",
               "tickfont": {"size": 10}},
    )  # fmt: skip
    bars = (
        ("exposed", WARNING_COLOUR, [each.exposed_s for each in stretches]),
        ("hidden", _HIDDEN, [max(0.0, each.in_flight_s - each.exposed_s) for each in stretches]),
    )
    data = [
        {
            "type": "bar", "orientation": "h", "name": name, "y": [each.name for each in stretches],
            "x": [round(1e3 * each, 4) for each in widths], "marker": {"color": colour},
            "hovertemplate": "%{y}: %{x:.3f} ms<extra>" + name + "</extra>",
        }
        for name, colour, widths in bars
    ]  # fmt: skip
    return {"data": data if stretches else [], "layout": layout if stretches else with_note(layout, NOTHING_SENT)}
