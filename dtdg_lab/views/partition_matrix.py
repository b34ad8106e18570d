"""Matrices of bytes from rank to rank in a step: what a plan predicts beside what the ranks counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.units import format_bytes
from dtdg_lab.views.layout import Figure, frame
from dtdg_lab.views.palette import HEAT_SCALES, TEXT_COLOUR
from dtdg_lab.views.partition_maps import colour_bar, part_axis
from dtdg_lab.views.ways import WAYS, Matrix

MOST_LAYERS = 3  # a model of more is shown by the sum of its layers
_WRITTEN = 8  # parts up to which every cell has room for its number
_DARK = 0.55  # share of the largest value from which writing is white


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """Bytes that ranks sent each other in one step: way -> (L, R, R), [l, q, p] from q to p in layer l."""

    step: int
    bytes: Mapping[str, Matrix]

    @property
    def total(self) -> float:
        """Bytes of all layers, all ways."""
        return float(sum(each.sum() for each in self.bytes.values()))


def layers_of(predicted: Mapping[str, Matrix]) -> list[tuple[str, slice]]:
    """The layers that get a matrix of their own, each with its name; all in one where there are many."""
    count = max((len(each) for each in predicted.values()), default=0)
    if count > MOST_LAYERS:
        return [(f"all {count} layers", slice(None))]
    return [(f"layer {layer}", slice(layer, layer + 1)) for layer in range(count)]


def in_layers(sent: Mapping[str, Matrix], layers: slice) -> dict[str, Matrix]:
    """Way -> (R, R) bytes of the layers asked for."""
    return {way: sent[way][layers].sum(axis=0) for way in WAYS if way in sent}


def matrix_figure(title: str, sent: Mapping[str, Matrix], *, who: str, top: float) -> Figure:
    """One matrix, senders down and receivers across; all ways together, apart where one points at a cell.

    Args:
        title: of the panel.
        sent: way -> (R, R) bytes.
        who: ``rank`` or ``part``.
        top: bytes of the darkest colour.
    """
    whole = np.sum(list(sent.values()), axis=0)
    count = len(whole)
    # plotly's prefixes for bytes would be decimal: the largest value's binary unit is chosen instead
    unit, factor = byte_unit(top)
    said = [[_told(sent, q, p) for p in range(count)] for q in range(count)]
    trace = {
        "type": "heatmap", "z": np.round(whole / factor, 4).tolist(), "x": list(range(count)), "y": list(range(count)),
        "zmin": 0, "zmax": top / factor or 1.0, "colorscale": [list(stop) for stop in HEAT_SCALES["bytes"]],
        "colorbar": colour_bar(f"{unit} a step") | {"tickformat": ",.3~g"}, "name": title, "customdata": said,
        "hovertemplate": f"{who} %{{y}} to {who} %{{x}}: %{{customdata}}<extra></extra>",
    }  # fmt: skip
    ticks = {"dtick": max(1, -(-count // 8)), "showgrid": False, "range": [-0.5, count - 0.5]}
    layout = frame(title, f"to {who} (number)", f"from {who}", xaxis=ticks, yaxis=part_axis(count))
    if count <= _WRITTEN:
        layout["annotations"] = _written(whole, top)
    return {"data": [trace], "layout": layout}


def _written(whole: NDArray[np.float64], top: float) -> list[dict[str, object]]:
    return [
        {
            "text": format_bytes(float(whole[q, p])), "x": p, "y": q, "xref": "x", "yref": "y", "showarrow": False,
            "font": {"size": 10 if len(whole) <= _WRITTEN // 2 else 8,
                     "color": "white" if whole[q, p] > _DARK * top else TEXT_COLOUR},
        }
        for q in range(len(whole)) for p in range(len(whole)) if whole[q, p]
    ]  # fmt: skip


def _told(sent: Mapping[str, Matrix], q: int, p: int) -> str:
    return ", ".join(f"{format_bytes(float(each[q, p]))} {way}" for way, each in sent.items())


def byte_unit(top: float) -> tuple[str, float]:
    """The binary unit in which a number of bytes is written, and how many bytes it is."""
    names = ("B", "KiB", "MiB", "GiB", "TiB")
    power = min(len(names) - 1, int(np.log2(max(top, 1.0)) // 10))
    return names[power], 1024.0**power
