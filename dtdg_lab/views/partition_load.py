"""How evenly a partition shares the work: vertices, edges, load and memory of every part, over the mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.units import format_bytes
from dtdg_lab.views.layout import Figure, frame
from dtdg_lab.views.palette import BASELINE_COLOUR, series_colour
from dtdg_lab.views.partition_facts import PartitionFacts

MEMORY = {"halo_vertex": "halo memory", "cached_vertex": "cache memory"}
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "triangle-down")
_SPREAD = 0.5  # of the room of a part, over which its marks stand beside each other


def load_figure(facts: PartitionFacts, *, top: float | None = None, note: str = "") -> Figure:
    """Marks beside each other for each part; 1 is the mean of all parts.

    Args:
        facts: of the partition.
        top: where the axis ends, so that several can be compared; a little above the largest mark when not given.
        note: what the title ends with.
    """
    kinds = measured_of(facts)
    data = [_marks(index, name, values, len(kinds)) for index, (name, values) in enumerate(kinds.items())]
    mean = {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": 1, "y1": 1,
            "line": {"color": BASELINE_COLOUR, "width": 1, "dash": "dot"}}  # fmt: skip
    layout = frame(
        "Load of the parts" + (f" · {note}" if note else ""), "part (number)", "over the mean of the parts (1)",
        xaxis={"dtick": max(1, -(-facts.parts // 16)), "range": [-0.6, facts.parts - 0.4], "showgrid": False},
        yaxis={"range": [0, 1.08 * (largest(facts) if top is None else top)]}, showlegend=True, shapes=[mean],
    )  # fmt: skip
    return {"data": data, "layout": layout}


def measured_of(facts: PartitionFacts) -> Mapping[str, NDArray[np.float64]]:
    """What is drawn of every part by name, (P,) each; memory of the layout in use, of both where there is none."""
    edges = facts.maps["edges"] @ np.diff(facts.bounds)
    return {"vertices": facts.vertices, "edges": edges, "load": facts.load, **memory_of(facts)}


def memory_of(facts: PartitionFacts) -> Mapping[str, NDArray[np.float64]]:
    """Name -> (P,) bytes of every part."""
    if facts.layout in facts.memory:
        return {"memory": facts.memory[facts.layout]}
    return {name: facts.memory[layout] for layout, name in MEMORY.items()}


def largest(facts: PartitionFacts) -> float:
    """The largest mark of the picture."""
    return max(float(over_mean(values).max()) for values in measured_of(facts).values())


def over_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values over their mean; all 1 where they are all 0."""
    mean = values.mean()
    return values / mean if mean > 0 else np.ones_like(values)


def _marks(index: int, name: str, values: NDArray[np.float64], kinds: int) -> dict[str, Any]:
    shift = _SPREAD * (index / max(kinds - 1, 1) - 0.5)
    said = [format_bytes(value) if "memory" in name else f"{value:,.0f}" for value in values.tolist()]
    return {
        "type": "scatter", "mode": "markers", "name": name, "x": [part + shift for part in range(len(values))],
        "y": np.round(over_mean(values), 4).tolist(), "customdata": [[part, text] for part, text in enumerate(said)],
        "marker": {"color": series_colour(index), "symbol": _SYMBOLS[index], "size": 7 if len(values) <= 16 else 5},
        "hovertemplate": "part %{customdata[0]}: %{customdata[1]}, %{y:.2f} times the mean",
    }  # fmt: skip
