"""Who owns which (vertex, snapshot): while whole snapshots are computed, and while vertices run through time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.views.block_facts import BlockFacts, Span
from dtdg_lab.views.layout import Figure, frame, percent
from dtdg_lab.views.palette import GRID_COLOUR, TEXT_COLOUR, series_colour
from dtdg_lab.views.partition_maps import SNAPSHOT

Panel = tuple[Figure, str]
Owners = NDArray[np.int64]
BEFORE, AFTER = "Before: spatial part, by snapshot", "After: temporal part, by vertex"
ALONE = "Who computes which snapshot"
MOST_COLUMNS = 512  # of spans of snapshots; a browser draws no more in good time
_WRITTEN = 16  # spans up to which the owner's number is written into each
_NAMED = 12  # blocks up to which each has its number


def ownership_panels(facts: BlockFacts) -> dict[str, Panel]:
    """Two maps, snapshots across and vertices down, in the colours of the ranks; one where no row changes hands.

    ``before`` and ``after``, or ``alone``. None where ranks have all snapshots of their own vertices: the pictures of
    the partition show who owns these.
    """
    if not facts.redistributes:
        return {}
    shown = _shown(facts)
    columns, rows = _edges(facts, shown)
    before, after = owners(facts, shown)
    cut = "" if shown == facts.blocks else f" Shown are the first {shown:,} of {facts.blocks:,} blocks."
    stays = _stays(facts)
    if stays:
        return {"alone": (_map(facts, ALONE, before, columns, rows), f"{_before_words(facts)} {stays}{cut}")}
    return {
        "before": (_map(facts, BEFORE, before, columns, rows), _before_words(facts) + cut),
        "after": (_map(facts, AFTER, after, columns, rows), _after_words(facts)),
    }


def owners(facts: BlockFacts, blocks: int | None = None) -> tuple[Owners, Owners]:
    """Owning ranks before and after the redistribution, (spans of vertices, spans of snapshots) of the first blocks."""
    shown = facts.blocks if blocks is None else blocks
    columns, rows = _edges(facts, shown)
    before = np.full((len(rows) - 1, len(columns) - 1), -1)
    after = before.copy()
    for block in range(shown):
        whole = _places(columns, (int(facts.bounds[block]), int(facts.bounds[block + 1])))
        for rank in range(facts.ranks):
            before[_places(rows, facts.rows[rank]), _places(columns, facts.own[block][rank])] = rank
            after[_places(rows, facts.chunks[rank]), whole] = rank
    return before, after


def moved_share(facts: BlockFacts) -> float:
    """Share of all (vertex, snapshot) whose owner is another after the redistribution."""
    columns, rows = _edges(facts, facts.blocks)
    before, after = owners(facts)
    area = np.outer(np.diff(rows), np.diff(columns))
    return float(area[before != after].sum() / area.sum())


def _stays(facts: BlockFacts) -> str:
    """Why no row goes to another rank after the spatial part; empty where some do."""
    if 1 < facts.ranks == facts.row_ranks:
        return "It then runs the same vertices through time: all ranks share every snapshot, and no row changes hands."
    if any(leg in ("to_vertices", "to_snapshots") for _, _, leg, _ in facts.legs):
        return ""
    return "No row of a vertex goes to another rank then: the model runs no vertex through time, or reuses what went."


def _shown(facts: BlockFacts) -> int:
    """Blocks that are drawn: all, or as many of the first as make a picture that a browser can draw."""
    return max(1, min(facts.blocks, MOST_COLUMNS * facts.row_ranks // facts.ranks))


def _edges(facts: BlockFacts, blocks: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where owners may change: snapshots, and vertices."""
    spans = [span for block in facts.own[:blocks] for span in block]
    first, end = int(facts.bounds[0]), int(facts.bounds[blocks])
    columns = _distinct([*spans, *((int(at), int(at)) for at in facts.bounds[: blocks + 1])])
    rows = _distinct([*facts.rows, *facts.chunks, (0, facts.nodes)])
    return columns[(columns >= first) & (columns <= end)], rows


def _distinct(spans: Sequence[Span]) -> NDArray[np.int64]:
    return np.unique(np.asarray(spans, np.int64))


def _places(edges: NDArray[np.int64], span: Span) -> slice:
    """The spans between edges that lie in one from edge to edge."""
    start, stop = np.searchsorted(edges, span)
    return slice(int(start), int(stop))


def _map(facts: BlockFacts, title: str, owning: Owners, columns: NDArray[np.int64], rows: NDArray[np.int64]) -> Figure:
    ranks = facts.ranks
    owning, columns, rows = _joined(owning, columns, rows, facts.bounds)
    down, right = ([(int(a), int(b)) for a, b in pairwise(each)] for each in (rows, columns))
    said = [
        [f"rank {rank}: {_span('vertex', *down[y])}, {_span('snapshot', *right[x])}" for x, rank in enumerate(across)]
        for y, across in enumerate(owning.tolist())
    ]
    trace: dict[str, Any] = {
        "type": "heatmap", "z": owning.tolist(), "x": (columns - 0.5).tolist(), "y": (rows - 0.5).tolist(),
        "zmin": -0.5, "zmax": ranks - 0.5, "colorscale": _scale(ranks), "name": title, "customdata": said,
        "colorbar": {
            "title": {"text": "rank", "side": "right", "font": {"size": 10}}, "thickness": 9, "outlinewidth": 0.5,
            "tickfont": {"size": 10}, "tickvals": list(range(0, ranks, -(-ranks // 8))),
        },
        "hovertemplate": "%{customdata}<extra></extra>", "xgap": 0.5, "ygap": 0.5,
    }  # fmt: skip
    if owning.size and max(owning.shape) <= _WRITTEN:
        trace |= {"texttemplate": "%{z}", "textfont": {"size": 11}}
    layout = frame(
        title, SNAPSHOT, "vertex (number)",
        xaxis={"showgrid": False, "range": [columns[0] - 0.5, columns[-1] - 0.5]},
        yaxis={"showgrid": False, "range": [rows[-1] - 0.5, rows[0] - 0.5]},
    )  # fmt: skip
    bounds = [int(at) for at in facts.bounds if at <= columns[-1]]
    layout["shapes"] = [_line(at) for at in bounds[1:-1]]
    if 1 < len(bounds) - 1 <= _NAMED:
        layout["annotations"] = [_name(number, at) for number, at in enumerate(bounds[:-1])]
    return {"data": [trace], "layout": layout}


def _joined(
    owning: Owners, columns: NDArray[np.int64], rows: NDArray[np.int64], bounds: NDArray[np.int64]
) -> tuple[Owners, NDArray[np.int64], NDArray[np.int64]]:
    """One span where neighbours have one owner, for all vertices or in all snapshots; blocks stay apart."""
    across = np.append(True, (owning[:, 1:] != owning[:, :-1]).any(axis=0) | np.isin(columns[1:-1], bounds))
    down = np.append(True, (owning[1:] != owning[:-1]).any(axis=1))
    return owning[down][:, across], columns[np.append(across, True)], rows[np.append(down, True)]


def _scale(ranks: int) -> list[list[Any]]:
    """One colour for each rank, without shades between them."""
    return [[edge / ranks, series_colour(rank)] for rank in range(ranks) for edge in (rank, rank + 1)]


def _line(snapshot: int) -> dict[str, Any]:
    at = snapshot - 0.5
    line = {"color": TEXT_COLOUR, "width": 1.5, "dash": "dash"}
    return {"type": "line", "xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": line}


def _name(number: int, snapshot: int) -> dict[str, Any]:
    return {
        "text": f"block {number}", "x": snapshot - 0.5, "xref": "x", "y": 0, "yref": "paper", "xanchor": "left",
        "yanchor": "bottom", "showarrow": False, "font": {"size": 9, "color": TEXT_COLOUR}, "bgcolor": GRID_COLOUR,
        "opacity": 0.85,
    }  # fmt: skip


def _before_words(facts: BlockFacts) -> str:
    idle = sum(start == stop for block in facts.own for start, stop in block)
    start, stop = facts.own[0][0]
    mine = "no snapshot" if start == stop else f"{_span('snapshot', start, stop)}"
    text = f"In block 0 rank 0 computes {mine}"
    text += f" for {_span('vertex', *facts.rows[0])}." if facts.row_ranks > 1 else " for all vertices."
    if idle:
        return f"{text} {idle} times a rank has none: blocks of fewer snapshots than ranks leave ranks without work."
    return f"{text} Within a block no edge leaves a snapshot, so nothing is exchanged here" + (
        " but rows of neighbours within a group of ranks." if facts.row_ranks > 1 else "."
    )


def _after_words(facts: BlockFacts) -> str:
    text = f"Then it runs {_span('vertex', *facts.chunks[0])} through the block's snapshots. "
    if facts.ranks == 1:
        return f"{text}One rank keeps everything."
    moved = percent(moved_share(facts))
    return (
        f"{text}Where a place has another colour than in the picture before, its row is sent: {moved} of them, on the "
        "way here and again on the way back."
    )


def _span(what: str, start: int, stop: int) -> str:
    several = {"vertex": "vertices"}.get(what, f"{what}s")
    return f"{what} {start:,}" if stop == start + 1 else f"{several} {start:,} to {stop - 1:,}"
