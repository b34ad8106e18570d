"""A race in pictures: loss against wall time, joules, bytes and memory, seeds thin and their median thick."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.units import format_bytes, format_joules, format_seconds
from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure, as_drawn, frame, join_words, with_note
from dtdg_lab.views.palette import BASELINE_COLOUR, TEXT_COLOUR, series_colour
from dtdg_lab.views.race_curves import COSTS, Curve, labels_of, near_losses, reached

Panel = tuple[Figure, str]
NO_LOSS = "no run has been evaluated yet"
_DASHES = ("solid", "dot", "dashdot", "longdash")
_LOG_FROM = 20.0  # largest over least loss from which the axis is logarithmic
_TITLES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "seconds": ("Loss against wall time", "time since the run began"),
        "joules": ("Loss against energy", "energy of all ranks"),
        "bytes": ("Loss against bytes sent", "sent by all ranks"),
        "peak": ("Loss against memory", "largest peak of tensor memory of a rank"),
    }
)
_TOLD = {"seconds": format_seconds, "joules": format_joules, "bytes": format_bytes, "peak": format_bytes}
_LEAST = {"seconds": "time", "joules": "energy", "bytes": "bytes", "peak": "memory"}


@dataclass(frozen=True, slots=True)
class Level:
    """A bound that stands in a panel of the race as an upright line.

    Attributes:
        label: of the contestant it bounds.
        cost: of ``COSTS``.
        value: that no run of this contestant can stay below, in seconds, joules or bytes.
        name: of the bound.
    """

    label: str
    cost: str
    value: float
    name: str


def race_panels(
    curves: Sequence[Curve],
    levels: Sequence[Level] = (),
    labels: Sequence[str] | None = None,
    lost: Collection[tuple[str, int]] = (),
) -> dict[str, Panel]:
    """``seconds``, ``joules``, ``bytes`` and ``peak``: a figure each, and a sentence to stand under it.

    Args:
        curves: of all runs of the race as far as they are.
        levels: bounds to be drawn.
        labels: the contestants in order, which gives them their colours; those of the curves where not given.
        lost: contestant and seed of runs that failed, which nobody waits for.
    """
    named = tuple(labels) if labels is not None else labels_of(curves)
    near = near_losses(curves, named, lost)
    of_cost = {cost: [level for level in levels if level.cost == cost] for cost in COSTS}
    return {cost: _panel(cost, curves, of_cost[cost], named, near) for cost in COSTS}


def race_figure(panels: Mapping[str, Panel], title: str = "Race") -> Figure:
    """The four panels as one figure, whose losses are zoomed together."""
    drawn = grid([panels[cost] for cost in COSTS], title=title)
    layout = drawn["layout"]
    for name in [name for name in layout if name.startswith("yaxis") and name != "yaxis"]:
        layout[name] = {**layout[name], "matches": "y"}
    return drawn


def _panel(
    cost: str, curves: Sequence[Curve], levels: Sequence[Level], labels: Sequence[str], near: Mapping[int, float]
) -> Panel:
    shown = [curve for curve in curves if curve.losses and curve.cost(cost)]
    largest = max((max(curve.cost(cost)) for curve in shown), default=0.0)
    unit, factor = _unit(cost, largest)
    title, x_title = _TITLES[cost]
    layout = frame(
        title, f"{x_title} ({unit})", _loss_name(curves), showlegend=True, xaxis={"rangemode": "tozero"},
        yaxis=_loss_axis(curves),
    )  # fmt: skip
    unknown = [label for label in labels if _lacks(label, cost, curves)]
    if not shown:
        note = NO_LOSS if not unknown else f"{_LEAST[cost]} is unknown for {join_words(unknown)}"
        return {"data": [], "layout": with_note(layout, as_drawn(note))}, _LOOK[cost]
    if cost == "bytes" and not largest:
        return {"data": [], "layout": with_note(layout, "nobody sends anything: one process each")}, _LOOK[cost]
    data = [_thin(curve, cost, factor, labels) for curve in shown]
    for label in labels:
        data += _thick([curve for curve in shown if curve.label == label], cost, factor, labels)
    if levels:
        _draw_levels(layout, levels, factor, labels)
    return {"data": data, "layout": layout}, _words(cost, curves, labels, unknown, near)


def _lacks(label: str, cost: str, curves: Sequence[Curve]) -> bool:
    own = [curve for curve in curves if curve.label == label and curve.losses]
    return bool(own) and not any(curve.cost(cost) for curve in own)


def _unit(cost: str, largest: float) -> tuple[str, float]:
    """The unit of an axis, and what a second, joule or byte is of it."""
    if cost == "seconds":
        return ("min", 1 / 60) if largest > 600 else ("s", 1.0)
    if cost == "joules":
        return ("kJ", 1e-3) if largest >= 1e4 else ("J", 1.0)
    for unit, size in (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)):
        if largest >= size:
            return unit, 1 / size
    return "B", 1.0


def _loss_name(curves: Sequence[Curve]) -> str:
    names = {curve.loss_name for curve in curves} or {"loss"}
    parts = {curve.judged for curve in curves if curve.losses} or {"validation"}
    part = "training" if parts == {"train"} else "validation"
    return f"{part}: {names.pop() if len(names) == 1 else 'loss'}"


def _loss_axis(curves: Sequence[Curve]) -> dict[str, Any]:
    """Logarithmic where losses fall so far that the end of a straight axis would show nothing."""
    losses = [loss for curve in curves for loss in curve.losses]
    wide = bool(losses) and min(losses) > 0 and max(losses) / min(losses) > _LOG_FROM
    return {"type": "log"} if wide else {}


def _style(label: str, labels: Sequence[str]) -> dict[str, Any]:
    index = labels.index(label)
    return {"color": series_colour(index), "dash": _DASHES[(index // 8) % len(_DASHES)]}


def _thin(curve: Curve, cost: str, factor: float, labels: Sequence[str]) -> dict[str, Any]:
    """One seed; against memory, which is a number of the run, a point for the least loss."""
    style, xs, ys = _style(curve.label, labels), [value * factor for value in curve.cost(cost)], list(curve.losses)
    trace = {
        "type": "scatter", "name": as_drawn(f"{curve.label}, seed {curve.seed}"), "legendgroup": curve.label,
        "showlegend": False, "opacity": 0.45,
        "hovertemplate": "%{x:.4~g}, loss %{y:.4~g}<extra>%{fullData.name}</extra>",
    }  # fmt: skip
    if cost == "peak":
        best = [min(ys)]
        return {**trace, "mode": "markers", "x": xs[:1], "y": best, "marker": {"color": style["color"], "size": 6}}
    return {**trace, "mode": "lines", "x": [round(x, 6) for x in xs], "y": ys, "line": {**style, "width": 1}}


def _thick(own: Sequence[Curve], cost: str, factor: float, labels: Sequence[str]) -> list[dict[str, Any]]:
    """The median over seeds, evaluation by evaluation, as far as half of the seeds have come."""
    if not own:
        return []
    label, style = own[0].label, _style(own[0].label, labels)
    trace: dict[str, Any] = {
        "type": "scatter", "name": as_drawn(label), "legendgroup": label,
        "hovertemplate": "%{x:.4~g}, loss %{y:.4~g}<extra>%{fullData.name}, median</extra>",
    }  # fmt: skip
    if cost == "peak":
        x, y = median(curve.cost(cost)[0] for curve in own), median(min(curve.losses) for curve in own)
        marker = {"color": style["color"], "size": 12, "symbol": "diamond", "line": {"width": 1, "color": TEXT_COLOUR}}
        return [{**trace, "mode": "markers", "x": [x * factor], "y": [y], "marker": marker}]
    lengths = sorted((len(curve.losses) for curve in own), reverse=True)
    reach = lengths[ceil(len(lengths) / 2) - 1]
    xs, ys = [], []
    for place in range(reach):
        there = [curve for curve in own if len(curve.losses) > place]
        xs.append(round(median(curve.cost(cost)[place] for curve in there) * factor, 6))
        ys.append(median(curve.losses[place] for curve in there))
    return [
        {**trace, "mode": "lines+markers", "x": xs, "y": ys, "line": {**style, "width": 3}, "marker": {"size": 5}}
    ]  # fmt: skip


def _draw_levels(layout: dict[str, Any], levels: Sequence[Level], factor: float, labels: Sequence[str]) -> None:
    """Bounds as upright lines with their names, one under the other so that they can be read."""
    for place, level in enumerate(levels):
        colour = _style(level.label, labels)["color"] if level.label in labels else BASELINE_COLOUR
        x = level.value * factor
        layout["shapes"] = [
            *layout["shapes"],
            {"type": "line", "xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1, "layer": "below",
             "line": {"color": colour, "width": 1.5, "dash": "dash"}},
        ]  # fmt: skip
        layout["annotations"] = [
            *layout["annotations"],
            {"text": as_drawn(f"{level.label}: {level.name}"), "xref": "x", "yref": "paper", "x": x,
             "y": 0.98 - 0.09 * place, "xanchor": "left", "yanchor": "top", "xshift": 3, "showarrow": False,
             "font": {"size": 10, "color": colour}},
        ]  # fmt: skip


_LOOK: Mapping[str, str] = MappingProxyType(
    {
        "seconds": "Look which thick line is lowest at the left: thin lines are seeds, and where they cross, so may "
        "the ranking.",
        "joules": "The same losses by what they cost in energy: a system that is quick on more cores need not be "
        "thrifty.",
        "bytes": "Further left is less traffic for the same loss; one process alone sends nothing.",
        "peak": "A diamond is the median of the least losses; further left fits a smaller machine.",
    }
)


def _words(
    cost: str, curves: Sequence[Curve], labels: Sequence[str], unknown: Sequence[str], near: Mapping[int, float]
) -> str:
    """Who needs least to come near the best loss, and what to look for."""
    lost = f" Unknown for {join_words(unknown)}." if unknown else ""
    spent: dict[str, list[float]] = {}
    for curve in curves:
        value = reached(curve, near, cost)
        if value is not None:
            spent.setdefault(curve.label, []).append(value)
    whole = {label: median(values) for label, values in spent.items() if len(values) == len(near)}
    if not whole:
        return _LOOK[cost] + lost
    order = sorted(whole, key=lambda label: whole[label])
    told = _TOLD[cost]
    missed = [label for label in labels if label not in whole]
    text = f"To a loss within 5 % of the best, {order[0]} needs least {_LEAST[cost]}: {told(whole[order[0]])}"
    text += "".join(f"; {label} {told(whole[label])}" for label in order[1:])
    short = f" {join_words(missed)} did not get there with every seed." if missed else ""
    how = f" Joules are {join_words(sorted({of for curve in curves for of in curve.sources}))}." * (cost == "joules")
    return f"{text}.{short}{how}{lost} {_LOOK[cost]}"
