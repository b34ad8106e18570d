"""Joules of several methods summed up over epochs, with congested ones shaded (Figure 9 of GreenDyGNN)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from statistics import fmean
from typing import Any

from dtdg_lab.core.units import format_joules
from dtdg_lab.views.layout import Figure, frame, join_words, with_note
from dtdg_lab.views.palette import series_colour

Panel = tuple[Figure, str]
Epochs = Sequence[float | None]
_SHADE = "rgba(230,159,0,0.18)"
_FEW = 1  # epochs from which there is a line
_KILO = 1e4


def cumulative_energy_panel(
    epochs: Mapping[str, Epochs | Sequence[Epochs]], congested: Sequence[tuple[int, int]] = ()
) -> Panel:  # fmt: skip
    """Joules since the start, a line a method.

    Args:
        epochs: method -> joules of each epoch, or a list of those for several seeds, of which the mean is drawn. A line
            ends where they become unknown: a sum with a gap would be too low.
        congested: first and last epoch of stretches in which links were slow.
    """
    lines = {name: sums for name, each in epochs.items() if (sums := _sums(each))}
    highest = max((sums[-1] for sums in lines.values()), default=0.0)
    unit, factor = ("kJ", 1e3) if highest >= _KILO else ("J", 1.0)
    layout = frame(
        "Energy since the start", "epoch", f"energy ({unit})", showlegend=True, yaxis={"rangemode": "tozero"},
        xaxis={"rangemode": "tozero"},
    )  # fmt: skip
    if not lines:
        return {"data": [], "layout": with_note(layout, "no epoch has told its energy yet")}, _READING
    layout["shapes"] = [
        {"type": "rect", "layer": "below", "xref": "x", "yref": "paper", "x0": first, "x1": last + 1, "y0": 0, "y1": 1,
         "line": {"width": 0}, "fillcolor": _SHADE}
        for first, last in congested
    ]  # fmt: skip
    data: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "lines", "name": name, "x": list(range(len(sums) + 1)),
            "y": [0.0, *(round(each / factor, 4) for each in sums)],
            "line": {"color": series_colour(index), "width": 2},
            "hovertemplate": "after %{x} epochs: %{y:.4~g} " + unit + "<extra>" + name + "</extra>",
        }
        for index, (name, sums) in enumerate(lines.items())
    ]  # fmt: skip
    return {"data": data, "layout": layout}, _words(lines)


_READING = "Shaded: links were congested. Look which line bends least there."


def _sums(epochs: Epochs | Sequence[Epochs]) -> list[float]:
    """Sums over the epochs of which every seed knows the joules."""
    seeds: list[Any] = list(epochs) if any(isinstance(each, Sequence) for each in epochs) else [epochs]
    known: list[list[float]] = []
    for seed in seeds:
        found: list[float] = []
        for joules in seed:
            if joules is None:
                break
            found.append(float(joules))
        known.append(found)
    shortest = min((len(each) for each in known), default=0)
    return list(accumulate(fmean(each[epoch] for each in known) for epoch in range(shortest)))


def _words(lines: Mapping[str, Sequence[float]]) -> str:
    shared = min(len(sums) for sums in lines.values())
    ends = sorted((sums[shared - 1], name) for name, sums in lines.items())
    told = [f"{name} {format_joules(joules)}" for joules, name in ends]
    plural = "s" if shared > _FEW else ""
    return f"After {shared} epoch{plural}: {join_words(told)}. {_READING}"
