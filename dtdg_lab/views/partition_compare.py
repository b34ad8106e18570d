"""Several partitions of one graph beside each other: what each costs, as small bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.views.grid import grid
from dtdg_lab.views.layout import Figure, frame, share
from dtdg_lab.views.palette import BASELINE_COLOUR, series_colour
from dtdg_lab.views.partition_facts import PartitionFacts
from dtdg_lab.views.partition_matrix import byte_unit

_LEVEL = 7  # labels up to which there is room to write them level
Facts = Mapping[str, PartitionFacts]
_SHARES = {
    "cut": ("Edges cut", "share of the edges (%)", "of the edges are cut"),
    "halo": ("Halo rows", "share of the rows read (%)", "of the rows read come from other parts"),
    "replicated": ("Replicated rows", "share of the rows held (%)", "of the rows held would be copies"),
}


def compare_partitions_figure(facts: Facts, title: str) -> Figure:
    """Bars of shares, imbalance, bytes and seconds, a bar for each partition; the lower the better, everywhere.

    Args:
        facts: label -> partition.
        title: of the whole.
    """
    shares = [_share(facts, key) for key in _SHARES]
    return grid([*shares, _imbalance(facts), _sent(facts), _seconds(facts)], title=title, columns=3)


def _bars(facts: Facts, title: str, unit: str, values: list[float], said: Callable[[float], str]) -> Figure:
    trace = {
        "type": "bar", "x": list(facts), "y": values, "text": [said(each) for each in values],
        "textposition": "outside", "cliponaxis": False, "showlegend": False,
        "marker": {"color": [series_colour(index) for index in range(len(values))]},
        "hovertemplate": "%{x}: %{text}<extra></extra>", "textfont": {"size": 10},
    }  # fmt: skip
    y_axis = {"rangemode": "tozero", "range": [0, 1.15 * max(values) or 1.0]}
    return {"data": [trace], "layout": frame(title, "", unit, xaxis=_names(facts), yaxis=y_axis)}


def _names(facts: Facts) -> dict[str, Any]:
    """An axis of labels, which break where they have several words."""
    short = [name.replace("_", "_<br>").replace(", ", ",<br>").replace(" (", "<br>(") for name in facts]
    level = {"tickangle": 0} if len(short) <= _LEVEL else {}
    return {"type": "category", "range": [-0.5, len(short) - 0.5], "tickvals": list(facts), "ticktext": short,
            "tickfont": {"size": 9}, "showgrid": False, **level}  # fmt: skip


def _percent(value: float) -> str:
    return share(value / 100)


def _share(facts: Facts, key: str) -> tuple[Figure, str]:
    title, unit, words = _SHARES[key]
    values = {name: each.shares[key] for name, each in facts.items()}
    low, high = (pick(values, key=values.__getitem__) for pick in (min, max))
    figure = _bars(facts, title, unit, [100 * value for value in values.values()], _percent)
    if values[low] == values[high]:
        return figure, f"All alike: {share(values[low])} {words}."
    return figure, f"By {low} {share(values[low])} {words}, by {high} {share(values[high])}."


def _imbalance(facts: Facts) -> tuple[Figure, str]:
    """Marks for vertices, edges and load; a bar would hide that 1 is the least there can be."""
    data = [
        {
            "type": "scatter", "mode": "markers", "name": kind, "x": list(facts),
            "y": [each.imbalance[kind] for each in facts.values()], "hovertemplate": "%{x}: %{y:.3f} times the mean",
            "marker": {"color": series_colour(index), "size": 9, "symbol": ("circle", "diamond", "square")[index]},
        }
        for index, kind in enumerate(("vertices", "edges", "load"))
    ]  # fmt: skip
    top = max(value for each in facts.values() for value in each.imbalance.values())
    even = {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": 1, "y1": 1,
            "line": {"color": BASELINE_COLOUR, "width": 1, "dash": "dot"}}  # fmt: skip
    layout = frame(
        "Imbalance", "", "largest part over the mean (1)", showlegend=True, shapes=[even],
        xaxis=_names(facts),
        yaxis={"range": [1 - 0.06 * (top - 1 or 0.1), 1 + 1.1 * (top - 1 or 0.1)]},
    )  # fmt: skip
    worst = max(facts, key=lambda name: facts[name].imbalance["edges"])
    words = f"1 is even. A step waits for the largest part: {facts[worst].imbalance['edges']:.2f} in edges by {worst}."
    return {"data": data, "layout": layout}, words


def _sent(facts: Facts) -> tuple[Figure, str]:
    sent = {name: float(sum(way.sum() for way in each.predicted.values())) for name, each in facts.items()}
    best = min(sent, key=sent.__getitem__)
    unit, factor = byte_unit(max(sent.values()))
    values = [each / factor for each in sent.values()]
    figure = _bars(facts, "Bytes exchanged", f"in a step ({unit})", values, lambda value: format_bytes(value * factor))
    return figure, f"What halo_vertex would send, forward and backward; least by {best}."


def _seconds(facts: Facts) -> tuple[Figure, str]:
    figure = _bars(facts, "Time to make it", "time (s)", [each.seconds for each in facts.values()], format_seconds)
    slowest = max(facts, key=lambda name: facts[name].seconds)
    return figure, f"Paid once, kept by the data's hash; most for {slowest}. What it saves comes back every step."
