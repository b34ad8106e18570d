"""A race in pictures: loss against wall time, joules, bytes and memory, seeds thin and their median thick."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dtdg_lab.config.catalogue import loss_name
from dtdg_lab.core.units import format_bytes, format_joules, format_seconds, join_words
from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization import traces
from dtdg_lab.visualization.axes import FROM_ZERO, byte_unit
from dtdg_lab.visualization.chart import CaptionedFigure, Figure, card, trace_keys
from dtdg_lab.visualization.palette import BASELINE_COLOUR, TEXT_COLOUR, series_colour
from dtdg_lab.visualization.runs.curves import NEAR, bytes_at, joules_at, judged_evaluations, judged_split, peak_bytes
from dtdg_lab.visualization.runs.energy import energy_total
from dtdg_lab.visualization.sheet import STUDY_HEIGHT, sheet
from dtdg_lab.visualization.traces import Attributes, escaped

COSTS = ("seconds", "joules", "bytes", "peak")
Place = tuple[str, int]  # contestant and seed
Curves = Sequence["Curve"]
Near = Mapping[int, float]  # seed -> a loss near the best


@dataclass(frozen=True, slots=True)
class Curve:
    """Evaluations of one run in order, each with what had been spent until then.

    Attributes:
        label: of the contestant.
        seed: of the run.
        losses: of the validation split; of the training split where a protocol has no validation.
        seconds: since the run began, evaluations among them.
        joules: of all ranks; empty where unknown.
        bytes: that all ranks have sent, features that they fetched among them; empty where unknown.
        peak: largest peak of tensor memory of any rank so far, bytes; None where unknown.
        judged: ``validation`` or ``train``.
        loss_name: with its unit.
        sources: of the joules.
        over: whether the run has ended.
    """

    label: str
    seed: int
    losses: tuple[float, ...]
    seconds: tuple[float, ...]
    joules: tuple[float, ...]
    bytes: tuple[float, ...]
    peak: int | None
    judged: str
    loss_name: str
    sources: tuple[str, ...]
    over: bool

    def cost(self, name: str) -> tuple[float, ...]:
        """Return what had been spent at every evaluation, one of ``COSTS``; empty where unknown."""
        if name == "peak":
            return () if self.peak is None else (float(self.peak),) * len(self.losses)
        return {"seconds": self.seconds, "joules": self.joules, "bytes": self.bytes}[name]


def curve_of(label: str, seed: int, tables: RunTables, *, over: bool) -> Curve:
    """Return the curve of a run so far; the run's lock keeps out a thread that adds to its tables."""
    evaluations = [evaluation for evaluation in judged_evaluations(tables) if evaluation.loss is not None]
    seconds = [evaluation.seconds for evaluation in evaluations]
    joules, sent = (
        joules_at(tables, seconds),
        bytes_at(tables, seconds, [evaluation.step for evaluation in evaluations]),
    )
    return Curve(
        label=label,
        seed=seed,
        losses=tuple(float(evaluation.loss or 0.0) for evaluation in evaluations),
        seconds=tuple(seconds),
        joules=() if joules is None else tuple(joules.tolist()),
        bytes=() if sent is None else tuple(sent.tolist()),
        peak=peak_bytes(tables),
        judged=judged_split(tables),
        loss_name=loss_name(tables.config["task"]),
        sources=tuple(sorted(energy_total(tables).joules())),
        over=over,
    )


def near_losses(curves: Curves, labels: Sequence[str], lost: Collection[Place] = ()) -> dict[int, float]:
    """Return the lowest loss of any contestant plus 5 % by seed, without seeds that some contestant lacks.

    What is near follows the seed, since graph and first parameters do.

    Args:
        curves: of all runs as far as they are; one that is over without a finite loss is waited for no longer.
        labels: the contestants.
        lost: contestant and seed of runs that failed: they too are not waited for.
    """
    lowest_losses: dict[int, dict[str, float]] = {}
    gone = {*lost, *((curve.label, curve.seed) for curve in curves if curve.over and not curve.losses)}
    for curve in curves:
        if curve.losses:
            lowest_losses.setdefault(curve.seed, {})[curve.label] = min(curve.losses)
    return {
        seed: min(lowest.values()) * (1 + NEAR)
        for seed, lowest in lowest_losses.items()
        if all(label in lowest or (label, seed) in gone for label in labels)
    }


def reached(curve: Curve, near: Near, cost: str) -> float | None:
    """Return what a run had spent when it first came near the best loss; None where it did not, or unknown."""
    spent = curve.cost(cost)
    if curve.seed not in near or not spent:
        return None
    first = next((index for index, loss in enumerate(curve.losses) if loss <= near[curve.seed]), None)
    return None if first is None else spent[first]


NO_LOSS = "no run has been evaluated yet"
_HOVER = "%{x:.4~g}, loss %{y:.4~g}<extra>%{fullData.name}"
_DASHES = ("solid", "dot", "dashdot", "longdash")
_LOG_FROM = 20.0  # largest over least loss from which the axis is logarithmic
_TITLES: Mapping[str, tuple[str, str]] = {
    "seconds": ("Loss against wall time", "time since the run began"),
    "joules": ("Loss against energy", "energy of all ranks"),
    "bytes": ("Loss against bytes sent", "sent by all ranks"),
    "peak": ("Loss against memory", "largest peak of tensor memory of a rank"),
}
_TOLD = {"seconds": format_seconds, "joules": format_joules, "bytes": format_bytes, "peak": format_bytes}
_LEAST = {"seconds": "time", "joules": "energy", "bytes": "bytes", "peak": "memory"}


@dataclass(frozen=True, slots=True)
class RaceLevel:
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


def race_cards(
    curves: Curves, levels: Sequence[RaceLevel] = (), labels: Sequence[str] | None = None, lost: Collection[Place] = ()
) -> dict[str, CaptionedFigure]:
    """Return a figure and a caption for each of ``COSTS``.

    Args:
        curves: of all runs of the race as far as they are.
        levels: bounds to be drawn.
        labels: the contestants in order, which gives them their colours; those of the curves where not given.
        lost: contestant and seed of runs that failed and are not waited for.
    """
    named = tuple(dict.fromkeys(curve.label for curve in curves) if labels is None else labels)
    near = near_losses(curves, named, lost)
    of_cost = {cost: [level for level in levels if level.cost == cost] for cost in COSTS}
    return {cost: _cost_card(cost, curves, of_cost[cost], named, near) for cost in COSTS}


def race_figure(
    panels: Mapping[str, CaptionedFigure], title: str = "Race", *, plot_height: int = STUDY_HEIGHT
) -> Figure:
    """Return the four panels as one figure, whose losses are zoomed together."""
    figure = sheet([panels[cost] for cost in COSTS], title=title, plot_height=plot_height)
    layout = figure["layout"]
    for name in [name for name in layout if name.startswith("yaxis") and name != "yaxis"]:
        layout[name] = {**layout[name], "matches": "y"}
    return figure


def _cost_card(
    cost: str, curves: Curves, levels: Sequence[RaceLevel], labels: Sequence[str], near: Near
) -> CaptionedFigure:
    shown_curves = [curve for curve in curves if curve.losses and curve.cost(cost)]
    largest = max((max(curve.cost(cost)) for curve in shown_curves), default=0.0)
    unit, factor = _unit(cost, largest)
    title, x_title = _TITLES[cost]
    style: Attributes = {"x_title": f"{x_title} ({unit})", "unit": _loss_name(curves)}
    style |= {"xaxis": FROM_ZERO, "yaxis": _loss_axis(curves)}
    unknown = [label for label in labels if _lacks(label, cost, curves)]
    if not shown_curves or (cost == "bytes" and not largest):
        note = f"{_LEAST[cost]} is unknown for {join_words(unknown)}" if unknown else NO_LOSS
        note = "no communication: one process each" if shown_curves else note
        return card([], title, empty=escaped(note), **style), _LOOK[cost]
    data = [_thin(curve, cost, factor, labels) for curve in shown_curves]
    by_label = {label: [curve for curve in shown_curves if curve.label == label] for label in labels}
    data += [_thick(seed_curves, cost, factor, labels) for seed_curves in by_label.values() if seed_curves]
    figure = card(data, title, keys=trace_keys(data), **style)
    _draw_levels(figure["layout"], levels, factor, labels)
    return figure, _cost_caption(cost, curves, labels, unknown, near)


def _lacks(label: str, cost: str, curves: Curves) -> bool:
    evaluated = [curve for curve in curves if curve.label == label and curve.losses]
    return bool(evaluated) and not any(curve.cost(cost) for curve in evaluated)


def _unit(cost: str, largest: float) -> tuple[str, float]:
    """Return the unit of an axis, and the factor from seconds, joules or bytes."""
    if cost == "seconds":
        return ("min", 1 / 60) if largest > 600 else ("s", 1.0)
    if cost == "joules":
        return ("kJ", 1e-3) if largest >= 1e4 else ("J", 1.0)
    unit, size = byte_unit(largest)
    return unit, 1 / size


def _loss_name(curves: Curves) -> str:
    names = {curve.loss_name for curve in curves} or {"loss"}
    parts = {curve.judged for curve in curves if curve.losses} or {"validation"}
    part = "training" if parts == {"train"} else "validation"
    return f"{part}: {names.pop() if len(names) == 1 else 'loss'}"


def _loss_axis(curves: Curves) -> dict[str, Any]:
    """Return a logarithmic axis where losses fall so far that a linear one would show nothing of the end."""
    losses = [loss for curve in curves for loss in curve.losses]
    wide = bool(losses) and min(losses) > 0 and max(losses) / min(losses) > _LOG_FROM
    return {"type": "log"} if wide else {}


def _style(label: str, labels: Sequence[str]) -> Attributes:
    index = labels.index(label)
    return {"colour": series_colour(index), "dash": _DASHES[(index // 8) % len(_DASHES)]}


def _thin(curve: Curve, cost: str, factor: float, labels: Sequence[str]) -> Attributes:
    """Return the line of one seed; against memory, a point at its lowest loss."""
    style, name = _style(curve.label, labels), escaped(f"{curve.label}, seed {curve.seed}")
    xs, ys = [value * factor for value in curve.cost(cost)], list(curve.losses)
    options: Attributes = {
        "hover": f"{_HOVER}</extra>",
        "legendgroup": curve.label,
        "showlegend": False,
        "opacity": 0.45,
    }
    if cost == "peak":
        return traces.points(name, xs[:1], [min(ys)], style["colour"], size=6, **options)
    return traces.line(name, [round(x, 6) for x in xs], ys, mode="lines", width=1, **style, **options)


def _thick(curves: Curves, cost: str, factor: float, labels: Sequence[str]) -> Attributes:
    """Return the median over seeds, evaluation by evaluation, as far as half of the seeds have come."""
    name, style = curves[0].label, _style(curves[0].label, labels)
    options: Attributes = {"hover": f"{_HOVER}, median</extra>", "legendgroup": name}
    if cost == "peak":
        x, y = median(curve.cost(cost)[0] for curve in curves), median(min(curve.losses) for curve in curves)
        diamond = {"symbol": "diamond", "line": {"width": 1, "color": TEXT_COLOUR}}
        return traces.points(escaped(name), [x * factor], [y], style["colour"], size=12, marker=diamond, **options)
    lengths = sorted((len(curve.losses) for curve in curves), reverse=True)
    reach = lengths[math.ceil(len(lengths) / 2) - 1]
    xs, ys = [], []
    for index in range(reach):
        long_enough = [curve for curve in curves if len(curve.losses) > index]
        xs.append(round(median(curve.cost(cost)[index] for curve in long_enough) * factor, 6))
        ys.append(median(curve.losses[index] for curve in long_enough))
    return traces.line(escaped(name), xs, ys, mode="lines+markers", width=3, marker={"size": 5}, **style, **options)


def _draw_levels(layout: dict[str, Any], levels: Sequence[RaceLevel], factor: float, labels: Sequence[str]) -> None:
    """Draw bounds as upright lines with their names, one under the other."""
    for index, level in enumerate(levels):
        colour = _style(level.label, labels)["colour"] if level.label in labels else BASELINE_COLOUR
        x = level.value * factor
        layout["shapes"].append(traces.rule(x=x, colour=colour, width=1.5, dash="dash") | {"layer": "below"})
        text = escaped(f"{level.label}: {level.name}")
        beside: Attributes = {"yref": "paper", "xanchor": "left", "yanchor": "top", "xshift": 3}
        layout["annotations"].append(traces.label(text, x, 0.98 - 0.09 * index, colour, 10, **beside))


_LOOK: Mapping[str, str] = {
    "seconds": "Look which thick line is lowest at the left: thin lines are seeds, and where they cross, so may "
    "the ranking.",
    "joules": "The same losses by what they cost in energy: a system that is fast on more cores may use more energy.",
    "bytes": "Further left is less traffic for the same loss; one process alone sends nothing.",
    "peak": "A diamond is the median of the least losses; further left fits a smaller machine.",
}


def _cost_caption(cost: str, curves: Curves, labels: Sequence[str], unknown: Sequence[str], near: Near) -> str:
    """Return who needs least to come near the best loss, and what to look for."""
    lost = f" Unknown for {join_words(unknown)}." if unknown else ""
    spent: dict[str, list[float]] = {}
    for curve in curves:
        value = reached(curve, near, cost)
        if value is not None:
            spent.setdefault(curve.label, []).append(value)
    medians = {label: median(values) for label, values in spent.items() if len(values) == len(near)}
    if not medians:
        return _LOOK[cost] + lost
    order = sorted(medians, key=lambda label: medians[label])
    format_cost = _TOLD[cost]
    missed = [label for label in labels if label not in medians]
    text = f"To a loss within 5 % of the best, {order[0]} needs least {_LEAST[cost]}: {format_cost(medians[order[0]])}"
    text += "".join(f"; {label} {format_cost(medians[label])}" for label in order[1:])
    short = f" {join_words(missed)} did not get there with every seed." if missed else ""
    how = f" Joules are {join_words(sorted({source for curve in curves for source in curve.sources}))}." * (
        cost == "joules"
    )
    return f"{text}.{short}{how}{lost} {_LOOK[cost]}"
