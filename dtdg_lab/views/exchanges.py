"""How much of the time that rows are in flight is hidden behind computing, from the record table ``exchanges``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dtdg_lab.core.units import format_seconds
from dtdg_lab.views.layout import Figure, frame, percent, with_note
from dtdg_lab.views.marks import Marks
from dtdg_lab.views.palette import TEXT_COLOUR, WARNING_COLOUR, series_colour
from dtdg_lab.views.step_sums import StepSums, Sums
from dtdg_lab.views.ways import WAYS

Panel = tuple[Figure, str]
RECENT = 50  # steps that bars and sentences are means of
NOTHING_SENT = "no exchange yet"
_HIDDEN = "#9FC3DC"


def exchange_log() -> StepSums:
    """Where rows of the table ``exchanges`` are summed."""
    return StepSums(("layer", "way", "leg"), ("exchanges", "in_flight_s", "exposed_s"))


def hidden_share(in_flight_s: float, exposed_s: float) -> float | None:
    """The share of the time in flight in which the ranks computed; None where nothing was in flight."""
    return max(0.0, 1 - exposed_s / in_flight_s) if in_flight_s > 0 else None


def exchange_panels(steps: Sequence[tuple[int, Sums]], ranks: int, *, marks: Marks, since: int = 0) -> dict[str, Panel]:
    """``hidden``: the hidden share over steps; ``flight``: the time exposed and hidden by way and leg.

    Args:
        steps: from :meth:`StepSums.steps`.
        ranks: R, whose mean is drawn.
        marks: of the run's changes.
        since: steps before it had other blocks: they are in the first picture only.
    """
    now = [each for each in steps if each[0] >= since]
    return {
        "hidden": (_share_figure(steps, marks), share_words(now)),
        "flight": (_bars_figure(now, ranks), _bars_words(now, ranks)),
    }


def share_words(steps: Sequence[tuple[int, Sums]]) -> str:
    """How much is hidden over the recent steps, in a sentence or two."""
    recent = steps[-RECENT:]
    flying, exposed = _total(recent)
    hidden = hidden_share(flying, exposed)
    if hidden is None:
        return "What is hidden was paid for by computing that had to be done anyway; no exchange has been told yet."
    over = f"the last {len(recent)} steps" if len(recent) > 1 else f"step {recent[0][0]}"
    text = f"In {over} {percent(hidden)} of the time in flight was hidden behind computing: high is good, 0 is as if "
    return text + "every rank stood still for all of it. What has ended when a rank looks counts as hidden."


def _share_figure(steps: Sequence[tuple[int, Sums]], marks: Marks) -> Figure:
    layout = frame(
        "Share of the exchanges that is hidden", "step (model updates)", "hidden (% of time in flight)",
        yaxis={"range": [-2, 102]}, **marks.over_steps([step for step, _ in steps]),
    )  # fmt: skip
    legs = list(dict.fromkeys(leg for _, sums in steps for _, _, leg in sums))
    data = [_share_line(steps, leg, {"color": series_colour(at), "width": 1.2}) for at, leg in enumerate(legs)]
    if len(legs) > 1:
        data.append(_share_line(steps, None, {"color": TEXT_COLOUR, "width": 2}))
    return {"data": data, "layout": layout if data else with_note(layout, NOTHING_SENT)}


def _share_line(steps: Sequence[tuple[int, Sums]], leg: str | None, line: dict[str, Any]) -> dict[str, Any]:
    shares = [hidden_share(*_total([each], leg)) for each in steps]
    name = "all" if leg is None else leg.replace("_", " ")
    return {
        "type": "scatter", "mode": "lines" if len(steps) > 1 else "markers", "name": name, "line": line,
        "marker": {"color": line["color"]},
        "x": [step for step, _ in steps], "y": [None if each is None else round(100 * each, 2) for each in shares],
        "hovertemplate": "step %{x}: %{y:.0f} %<extra>" + name + "</extra>",
    }  # fmt: skip


def _total(steps: Sequence[tuple[int, Sums]], leg: str | None = None) -> tuple[float, float]:
    """Seconds in flight and exposed, of all legs or of one."""
    found = [values for _, sums in steps for key, values in sums.items() if leg is None or key[2] == leg]
    return sum(values[1] for values in found), sum(values[2] for values in found)


def _means(steps: Sequence[tuple[int, Sums]], ranks: int) -> dict[tuple[str, str], tuple[float, float]]:
    """Way and leg -> milliseconds of a step and rank in flight and exposed, of all layers together."""
    recent = steps[-RECENT:]
    keys = sorted({key for _, sums in recent for key in sums}, key=lambda key: (WAYS.index(key[1]), key[2], key[0]))
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for key in keys:
        values = [sums[key] for _, sums in recent if key in sums]
        scale = 1e3 / max(ranks, 1) / len(recent)
        flying, exposed = found.get(key[1:], (0.0, 0.0))
        found[key[1:]] = (
            flying + scale * sum(value[1] for value in values),
            exposed + scale * sum(value[2] for value in values),
        )
    return found


def _bars_figure(steps: Sequence[tuple[int, Sums]], ranks: int) -> Figure:
    means = _means(steps, ranks)
    layout = frame(
        "Time in flight: exposed and hidden", f"mean of a rank's last {RECENT} steps (ms)", "", barmode="stack",
        bargap=0.35, xaxis={"rangemode": "tozero"},
        yaxis={"autorange": "reversed", "type": "category", "showgrid": False, "ticksuffix": " ",
               "tickfont": {"size": 10}},
    )  # fmt: skip
    bars = (
        ("exposed", WARNING_COLOUR, [exposed for _, exposed in means.values()]),
        ("hidden", _HIDDEN, [max(0.0, flying - exposed) for flying, exposed in means.values()]),
    )
    data = [
        {
            "type": "bar", "orientation": "h", "name": name, "y": [_name(*key) for key in means],
            "x": [round(each, 4) for each in widths], "marker": {"color": colour},
            "hovertemplate": "%{y}: %{x:.3f} ms<extra>" + name + "</extra>",
        }
        for name, colour, widths in bars
    ]  # fmt: skip
    return {"data": data if means else [], "layout": layout if means else with_note(layout, NOTHING_SENT)}


def _bars_words(steps: Sequence[tuple[int, Sums]], ranks: int) -> str:
    means = _means(steps, ranks)
    flying, exposed = (sum(each[place] for each in means.values()) for place in (0, 1))
    if not flying:
        return "Exposed is what a rank stood still for; the rest of the time in flight it computed."
    still = format_seconds(exposed / 1e3)
    text = f"A step has {format_seconds(flying / 1e3)} in flight on a rank, of which it stands still {still}"
    if not exposed:
        return f"{text}: all is hidden."
    worst = max(means, key=lambda key: means[key][1])
    return f"{text}, most in {_name(*worst)}: where exposed is long, more computing between start and wait would help."


def _name(way: str, leg: str) -> str:
    return f"{way} {leg.replace('_', ' ')}"
