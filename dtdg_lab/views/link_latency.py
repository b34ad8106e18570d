"""How long replies take, owner by owner, beside the delay that was added and what controllers take it for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from dtdg_lab.core.units import format_seconds
from dtdg_lab.views.cache_windows import STEP
from dtdg_lab.views.congestion_log import CongestionLog, shaded
from dtdg_lab.views.feature_log import CacheChoice, Fetched
from dtdg_lab.views.layout import Figure, frame, join_words, with_note
from dtdg_lab.views.marks import Marks
from dtdg_lab.views.palette import series_colour

Panel = tuple[Figure, str]
_POINTS = 200  # of an owner's line
_RECENT = 30  # fetches that a median now is of, as the paper's estimate
_MOST_SHOWN, _ROOM, _HUNG = 0.98, 1.15, 1.5  # share of the points, times its largest, and times that from which it hung
_LATE_MS = 0.1  # from which a delay is told in words
NO_FETCH = "nothing was fetched yet"
_LOOK = "Dashed: the delay added to its links. A reply also takes the time of its bytes."


def latency_panel(
    misses: Sequence[Fetched], bulk: Sequence[Fetched], congestion: CongestionLog, marks: Marks
) -> Panel:  # fmt: skip
    """Round trips of calls for batches by owner, the median of those who ask, with the delay added to them, dashed.

    Args:
        misses: calls for batches, in order of steps.
        bulk: calls of the builders of caches, likewise; drawn as open circles.
        congestion: of the run.
        marks: of the run's changes.
    """
    steps = [fetched.step for fetched in (*misses, *bulk)]
    span = [min(steps), max(steps)] if steps else []
    layout = frame(
        "Round trips by owner", STEP, "round trip (ms)", showlegend=True, **marks.over_steps(span),
        yaxis={"rangemode": "tozero"},
    )  # fmt: skip
    if not steps:
        return {"data": [], "layout": with_note(layout, NO_FETCH)}, _latency_words(misses, bulk)
    data: list[dict[str, Any]] = []
    for owner in sorted({fetched.owner for fetched in (*misses, *bulk)}):
        name = f"part {owner}"
        style: dict[str, Any] = {"legendgroup": name}
        lines = [each for each in misses if each.owner == owner]
        x, y = _medians(lines, span)
        data.append({
            "type": "scatter", "mode": "lines" if len(x) > 1 else "markers", "name": name, "x": x, "y": y,
            "line": {"color": series_colour(owner), "width": 1.8}, "marker": {"color": series_colour(owner)},
            "hovertemplate": "about step %{x:.0f}: %{y:.3~g} ms<extra>" + name + "</extra>", **style,
        })  # fmt: skip
        data += _bulk_points([each for each in bulk if each.owner == owner], name, style)
        data += _injected(congestion, owner, span, style)
    top, above = _top([y for trace in data for y in trace["y"]])
    if above:
        layout["yaxis"]["range"] = [0, top]
    higher = f" {above} of the points are above the picture." if above else ""
    return {"data": data, "layout": shaded(layout, congestion, span)}, _latency_words(misses, bulk) + higher


def _top(values: Sequence[float]) -> tuple[float, int]:
    """Where the axis ends so that a few calls that hung do not flatten the rest, and how many values are above it."""
    ordered = sorted(values)
    top = _ROOM * ordered[int(_MOST_SHOWN * (len(ordered) - 1))]
    if not top or ordered[-1] <= _HUNG * top:
        return max(top, ordered[-1]), 0
    return top, sum(value > top for value in values)


def _medians(fetches: Sequence[Fetched], span: Sequence[int]) -> tuple[list[float], list[float]]:
    """Medians of the calls in each of at most so many stretches of steps."""
    width = max(1, -(-(span[-1] - span[0] + 1) // _POINTS))
    bins: dict[int, list[Fetched]] = {}
    for fetched in fetches:
        bins.setdefault((fetched.step - span[0]) // width, []).append(fetched)
    x = [round(sum(each.step for each in found) / len(found), 1) for found in bins.values()]
    return x, [round(1e3 * median(each.rtt_s for each in found), 4) for found in bins.values()]


def _bulk_points(bulk: Sequence[Fetched], name: str, style: Mapping[str, Any]) -> list[dict[str, Any]]:
    shown = bulk[-_POINTS:]
    if not shown:
        return []
    return [{
        "type": "scatter", "mode": "markers", "name": f"{name}, for caches", "showlegend": False,
        "x": [each.step for each in shown], "y": [round(1e3 * each.rtt_s, 4) for each in shown],
        "marker": {"color": series_colour(shown[0].owner), "symbol": "circle-open", "size": 5},
        "customdata": [f"{each.rows:,}" for each in shown],
        "hovertemplate": "step %{x}: %{y:.3~g} ms for %{customdata} rows<extra>%{fullData.name}</extra>", **style,
    }]  # fmt: skip


def _injected(
    congestion: CongestionLog, owner: int, span: Sequence[int], style: Mapping[str, Any]
) -> list[dict[str, Any]]:  # fmt: skip
    x, y = congestion.injected(owner, span[0], span[-1] + 1)
    if not x:
        return []
    return [{
        "type": "scatter", "mode": "lines", "name": f"part {owner}, added", "showlegend": False, "x": x, "y": y,
        "line": {"color": series_colour(owner), "width": 1.3, "dash": "dash", "shape": "hv"},
        "hovertemplate": "%{y:.3~g} ms added<extra>part " + str(owner) + "</extra>", **style,
    }]  # fmt: skip


def _latency_words(misses: Sequence[Fetched], bulk: Sequence[Fetched]) -> str:
    told = []
    for owner in sorted({fetched.owner for fetched in misses}):
        recent = [fetched.rtt_s for fetched in misses if fetched.owner == owner][-_RECENT:]
        told.append(f"part {owner} {format_seconds(median(recent))}")
    rings = " Circles are calls for caches." if bulk else ""
    return f"Replies take now: {join_words(told)}. {_LOOK}{rings}" if told else f"{_LOOK}{rings}"


def estimates_panel(
    choices: Mapping[tuple[int, ...], Sequence[CacheChoice]], congestion: CongestionLog, marks: Marks
) -> Panel:  # fmt: skip
    """The delay that controllers estimate for every owner, the median of those who ask, beside the one added, dashed.

    Args:
        choices: decisions by part, in order.
        congestion: of the run.
        marks: of the run's changes.
    """
    found: dict[int, dict[int, list[float]]] = {}  # owner -> step
    for each in choices.values():
        for choice in each:
            for owner in range(len(choice.delays_ms) + 1):
                late = choice.delay_ms(owner)
                if late is not None:
                    found.setdefault(owner, {}).setdefault(choice.step, []).append(late)
    steps = [step for by_step in found.values() for step in by_step]
    span = [min(steps), max(steps)] if steps else []
    layout = frame(
        "Delay as it is estimated", STEP, "delay (ms)", showlegend=True, **marks.over_steps(span),
        yaxis={"rangemode": "tozero"},
    )  # fmt: skip
    if not steps:
        return {"data": [], "layout": with_note(layout, "no delay was estimated yet")}, _ESTIMATE
    data: list[dict[str, Any]] = []
    for owner, by_step in sorted(found.items()):
        name, shown = f"part {owner}", sorted(by_step)[-2 * _POINTS :]
        data.append({
            "type": "scatter", "mode": "lines+markers", "name": name, "legendgroup": name, "x": shown,
            "y": [round(median(by_step[step]), 4) for step in shown],
            "line": {"color": series_colour(owner), "width": 1.8, "shape": "hv"}, "marker": {"size": 4},
            "hovertemplate": "step %{x}: %{y:.3~g} ms estimated<extra>" + name + "</extra>",
        })  # fmt: skip
        data += _injected(congestion, owner, span, {"legendgroup": name})
    return {"data": data, "layout": shaded(layout, congestion, span)}, _estimate_words(found, congestion)


_ESTIMATE = "Dashed: added. A controller sees no more than its own calls: the estimate lags behind by some of them."


def _estimate_words(found: Mapping[int, Mapping[int, Sequence[float]]], congestion: CongestionLog) -> str:
    told = []
    for owner, by_step in sorted(found.items()):
        newest = max(by_step)
        held = congestion.at(newest)
        added = held.delay_of(owner) if held is not None else 0.0
        late = median(by_step[newest])
        if max(late, added) >= _LATE_MS:
            told.append(f"part {owner} {late:.3g} ms where {added:.3g} ms are added")
    return f"At last: {join_words(told) or 'no part is late, nor thought to be'}. {_ESTIMATE}"
