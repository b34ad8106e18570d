"""Vertices x snapshots: the batch now in training, beside the vertex batch and the snapshot batch it replaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.batching.load_groups import SHARES
from dtdg_lab.views.hybrid_facts import HybridFacts, numbers
from dtdg_lab.views.layout import Figure, frame, join_words, with_note
from dtdg_lab.views.target_log import PartBatch

Panel = tuple[Figure, str]
NO_BATCH = "no step has told its batch yet"
KINDS = ("hybrid batch", "vertex batch", "snapshot batch")
_GAP = 0.12  # between the three, share of their width
_SPACE = 4  # between parts, in sixtieths
# by share of a sixtieth's candidates: one in a thousand is seen, and one in ten told from all
_SCALE = [
    [0.0, "#FFFFFF"], [0.0005, "#DCEAF5"], [0.02, "#A9CCE6"], [0.1, "#5BA3D0"], [0.4, "#2F6FA8"], [1.0, "#08306B"],
]  # fmt: skip


def target_counts(facts: HybridFacts, batches: Mapping[int, PartBatch]) -> tuple[int, int, int]:
    """Target vertices (vertices x snapshots) of the batch, and of the two that it replaces.

    Args:
        facts: of the run.
        batches: by part.

    Returns:
        of the hybrid batch; of the vertex batch: the same vertices in all T snapshots; of the snapshot batch: all
        candidates in the same snapshots.

    References: DynaHB figure 2 and example 1.
    """
    each = batches.values()
    return (
        sum(batch.size for batch in each),
        sum(batch.targets * facts.snapshots for batch in each),
        sum(facts.candidates[batch.part] * len(batch.snapshots) for batch in each),
    )


def target_map_panel(facts: HybridFacts, batches: Mapping[int, PartBatch]) -> Panel:
    """The map with its sentence; ``batches`` by part, each with a map."""
    return target_map_figure(facts, batches), target_map_words(facts, batches)


def target_map_figure(facts: HybridFacts, batches: Mapping[int, PartBatch]) -> Figure:
    """Three fields side by side: snapshots across, candidates of each part by load down, heaviest first."""
    steps = sorted({batch.step for batch in batches.values()})
    title = f"Batch of step {numbers(steps[0], steps[-1])}" if steps else "Batch"
    layout = frame(title, "", "vertices by load, heaviest on top", margin={"l": 56, "r": 14, "t": 34, "b": 58})
    if not batches:
        return {"data": [], "layout": with_note(layout, NO_BATCH)}
    counts, width = target_counts(facts, batches), facts.snapshots
    starts = [round(place * (1 + _GAP) * width) for place in range(len(KINDS))]
    layout["xaxis"] |= _snapshot_axis(facts, starts, counts)
    layout["yaxis"] |= _part_axis(list(batches))
    data: list[dict[str, Any]] = []
    for place, batch in enumerate(batches.values()):
        top = place * (SHARES + _SPACE)
        layout["shapes"] += [_field(start, width, top) for start in starts]
        data += _part_traces(facts, batch, top, starts)
    data[0] |= {"showscale": True, "colorbar": _COLOURS}
    return {"data": data, "layout": layout}


_COLOURS = {
    "title": {"text": "share that are targets", "side": "right", "font": {"size": 10}}, "thickness": 9,
    "outlinewidth": 0.5, "tickfont": {"size": 10}, "tickvals": [0.0, 0.1, 0.4, 1.0],
    "ticktext": ["0", "10 %", "40 %", "all"],
}  # fmt: skip


def target_map_words(facts: HybridFacts, batches: Mapping[int, PartBatch]) -> str:
    """How large the batch is, and the two that it replaces."""
    look = "Look how little of the vertices and snapshots a step takes, and that every load has its targets."
    if not batches:
        return f"Coloured is what a step takes of vertices and snapshots. {look}"
    each = list(batches.values())
    whole = [f"part {batch.part}" for batch in each if batch.source == "snapshot"]
    if whole:
        look = f"The reservoir gave {join_words(whole)} none: all its vertices stand in."
    hybrid, vertex, snapshot = target_counts(facts, batches)
    spans = numbers(min(len(batch.snapshots) for batch in each), max(len(batch.snapshots) for batch in each))
    targets = numbers(min(batch.targets for batch in each), max(batch.targets for batch in each))
    return (
        f"{spans} of {facts.snapshots} snapshots x {targets} vertices a part: {hybrid:,} targets, in blocks of "
        f"{sum(batch.rows for batch in each):,} rows and {sum(batch.edges for batch in each):,} edges. The "
        f"same vertices in all snapshots are {vertex:,} targets, all vertices in the same snapshots {snapshot:,}. "
        f"{look}"
    )


def _part_traces(facts: HybridFacts, batch: PartBatch, top: int, starts: list[int]) -> list[dict[str, Any]]:
    """The three fields of one part, each one column of colour over the snapshots it takes."""
    within = _sixtieth_sizes(facts.candidates[batch.part])
    taken = np.asarray(batch.map, np.float64)
    own = (batch.snapshots.start - facts.first, batch.snapshots.stop - facts.first)
    whole = (0, facts.snapshots)
    return [
        {
            **_column(start, span, top, counts, within),
            "hovertemplate": f"part {batch.part}, snapshots {facts.first + span[0]} to {facts.first + span[1] - 1}: "
            "%{customdata}<extra></extra>",
        }
        for start, span, counts in zip(starts, (own, whole, own), (taken, taken, within), strict=True)
    ]


def _column(
    start: int, span: tuple[int, int], top: int, counts: NDArray[Any], within: NDArray[Any]
) -> dict[str, Any]:  # fmt: skip
    runs = [(count, n) for count, n in zip(counts, within, strict=True) if n]  # a small part has fewer than sixty
    z = [[round(float(min(count / n, 1.0)), 4)] for count, n in runs]
    said = [[f"{int(count):,} of {int(n):,} vertices"] for count, n in runs]
    edges = [round(top - 0.5 + row * SHARES / len(runs), 3) for row in range(len(runs) + 1)]
    return {
        "type": "heatmap", "z": z, "x": [start + span[0] - 0.5, start + span[1] - 0.5],
        "y": edges, "zmin": 0, "zmax": 1, "colorscale": _SCALE, "showscale": False, "customdata": said,
    }  # fmt: skip


def _sixtieth_sizes(candidates: int) -> NDArray[np.int64]:
    """How many candidates are in each run of the load order: ``LoadGroups.sixtieths`` counts targets in these."""
    return np.bincount(np.arange(candidates) * SHARES // candidates, minlength=SHARES)


def _field(start: int, width: int, top: int) -> dict[str, Any]:
    """All that a part has."""
    return {
        "type": "rect", "xref": "x", "yref": "y", "layer": "below", "x0": start - 0.5, "x1": start + width - 0.5,
        "y0": top - 0.5, "y1": top + SHARES - 0.5, "line": {"color": "#B8BEC6", "width": 1}, "fillcolor": "#F6F8FA",
    }  # fmt: skip


def _snapshot_axis(facts: HybridFacts, starts: list[int], counts: tuple[int, int, int]) -> dict[str, Any]:
    """Under each field its first and last snapshot, and in the middle what it is."""
    width, places, words = facts.snapshots, [], []
    for start, kind, count in zip(starts, KINDS, counts, strict=True):
        places += [start, start + (width - 1) / 2, start + width - 1]
        words += [str(facts.first), f"snapshot<br><b>{kind}</b><br>{count:,} targets", str(facts.first + width - 1)]
    return {
        "tickvals": places, "ticktext": words, "tickangle": 0, "showgrid": False, "showline": False,
        "range": [-0.5 - 0.02 * width, starts[-1] + width - 0.5 + 0.02 * width],
    }  # fmt: skip


def _part_axis(parts: list[int]) -> dict[str, Any]:
    stride = SHARES + _SPACE
    return {
        "tickvals": [place * stride + (SHARES - 1) / 2 for place in range(len(parts))],
        "ticktext": [f"part {part}" for part in parts], "showgrid": False, "showline": False,
        "range": [len(parts) * stride - _SPACE + 0.5, -1.5],
    }  # fmt: skip
