"""The picture of ESDG: owners within snapshots and over time, and the memory of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config import catalogue
from dtdg_lab.partition.events import BlockFacts
from dtdg_lab.records.events import MemoryFacts
from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.snapshot_blocks.periods import is_probed
from dtdg_lab.visualization.axes import ticks_above_zero
from dtdg_lab.visualization.changes.marks import PAGE_WIDTH
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions, Figure, Key, card
from dtdg_lab.visualization.numbers import bytes_text
from dtdg_lab.visualization.palette import SOFT_COLOUR, TEXT_COLOUR, WARNING_COLOUR, series_colour
from dtdg_lab.visualization.runs.step_memory import (
    NOT_PROBED,
    RECOMPUTE,
    memory_keys,
    memory_lines,
    memory_unit,
    pass_names,
)
from dtdg_lab.visualization.runs.transfers import EQUAL
from dtdg_lab.visualization.traces import Attributes, heat, label, paper_label

Numbers = NDArray[np.int64]

TO_NODES, TO_SNAPSHOTS = "to_vertices", "to_snapshots"


@dataclass(frozen=True, slots=True, eq=False)
class OwnerMap:
    """Owning ranks of spans of nodes in spans of snapshots.

    Attributes:
        ranks: (spans of nodes, spans of snapshots).
        nodes: first node of each span, and the end of the last span.
        snapshots: first snapshot of each span, and the end of the last span.
    """

    ranks: Numbers
    nodes: Numbers
    snapshots: Numbers


def owner_maps(facts: BlockFacts, blocks: int) -> tuple[OwnerMap, OwnerMap]:
    """Return who computes each (node, snapshot) of the first blocks: within snapshots, and over time."""
    snapshots, nodes = _span_bounds(facts, blocks)
    within = np.full((len(nodes) - 1, len(snapshots) - 1), -1)
    over_time = within.copy()

    def spans(bounds: Numbers, ends: Sequence[int]) -> slice:
        return slice(*np.searchsorted(bounds, ends).tolist())

    for block in range(blocks):
        block_span = spans(snapshots, facts.bounds[block : block + 2].tolist())
        for rank in range(facts.ranks):
            within[spans(nodes, facts.rows[rank]), spans(snapshots, facts.own[block][rank])] = rank
            over_time[spans(nodes, facts.chunks[rank]), block_span] = rank
    return _joined(within, nodes, snapshots, facts), _joined(over_time, nodes, snapshots, facts)


def swaps_rows(facts: BlockFacts) -> bool:
    """Return whether rows change owners between both maps."""
    return any(collective in (TO_NODES, TO_SNAPSHOTS) for _, _, collective, _ in facts.collectives)


def rows_come_back(facts: BlockFacts) -> bool:
    """Return whether rows are swapped back before the next layer of the forward pass."""
    return any(
        (pass_name, collective) == ("forward", TO_SNAPSHOTS) for _, pass_name, collective, _ in facts.collectives
    )


def swapped_bytes(facts: BlockFacts, item_bytes: int) -> float:
    """Return the bytes that the forward pass of a step swaps: of all layers, there and back."""
    widths = [
        width
        for _, pass_name, collective, width in facts.collectives
        if pass_name == "forward" and collective in (TO_NODES, TO_SNAPSHOTS)
    ]
    snapshots, rows, chunks = (np.array(spans, np.int64) for spans in (facts.own, facts.rows, facts.chunks))
    unmoved = (np.minimum(rows[:, 1], chunks[:, 1]) - np.maximum(rows[:, 0], chunks[:, 0])).clip(0)
    moved = (snapshots[..., 1] - snapshots[..., 0]) * (rows[:, 1] - rows[:, 0] - unmoved)
    return float(moved.sum()) * sum(widths) * item_bytes


def _span_bounds(facts: BlockFacts, blocks: int) -> tuple[Numbers, Numbers]:
    """Return the snapshots and the nodes at which owners may change."""
    bounds = [bound for block in facts.own[:blocks] for span in block for bound in span]
    snapshots = np.unique([*bounds, *facts.bounds[: blocks + 1]])
    nodes = np.unique([*facts.rows, *facts.chunks, (0, facts.nodes)])
    return snapshots[(snapshots >= facts.bounds[0]) & (snapshots <= facts.bounds[blocks])], nodes


def _joined(ranks: Numbers, nodes: Numbers, snapshots: Numbers, facts: BlockFacts) -> OwnerMap:
    """Join neighbouring spans that have the same owners everywhere; blocks stay apart."""
    columns = np.append(True, (ranks[:, 1:] != ranks[:, :-1]).any(axis=0) | np.isin(snapshots[1:-1], facts.bounds))
    rows = np.append(True, (ranks[1:] != ranks[:-1]).any(axis=1))
    return OwnerMap(ranks[rows][:, columns], nodes[np.append(rows, True)], snapshots[np.append(columns, True)])


TITLE = "Who owns what in a step"
HEIGHT = 360
GIB = 2**30
COLOURS = 8  # of ranks; then they repeat
MOST_BLOCKS = 12  # drawn in the maps
_NAMED_TWICE = 8  # blocks up to which both maps name them: a figure has few annotations
_LETTER, _MAP_WIDTH = 6.8, 0.44 * PAGE_WIDTH  # pixels, by which names of blocks are fitted
_LABEL_BACK = "rgba(255,255,255,0.8)"
_MAPS, _MEMORY = [0.46, 1.0], [0.0, 0.3]  # heights
_BARE: Attributes = {"showgrid": False, "zeroline": False, "tickfont": {"size": 11}, "tickangle": 0}
_LEFT, _RIGHT, _FULL_WIDTH = [0.0, 0.44], [0.56, 1.0], [0.0, 1.0]  # widths

SENT = Rollup("links", sums=("bytes",), least=("step",), most=("step",), points=40)  # of the tile's small line


def is_esdg(tables: RunTables) -> bool:
    """Return whether ranks compute whole snapshots in this run."""
    return catalogue.system(tables.system).parts["parallel"] == "snapshot"


def blocks_of(tables: RunTables) -> BlockFacts | None:
    """Return the plan in use; None before there is one."""
    facts = tables.event(BlockFacts)
    return facts if facts is not None and facts.redistributes else None


def probed_memory(tables: RunTables) -> MemoryFacts | None:
    """Return the memory of the step that was probed last; None before there is one."""
    facts = tables.event(MemoryFacts)
    return facts if facts is not None and len(facts.seconds) else None


def memory_limit(tables: RunTables) -> float | None:
    """Return the bytes that a step may use; None where the number of blocks is set instead."""
    return None if tables.config["blocks"] else float(GIB * tables.config["memory_gib"])


def predicted_sent(facts: BlockFacts) -> float:
    """Return the bytes that a step will send: all passes and layers."""
    return float(sum(matrix.sum() for matrix in facts.predicted.values()))


def ownership_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return both maps of owners, and the memory of a step below."""
    facts = blocks_of(tables)
    if facts is None:
        return card([], TITLE, empty="Blocks are being planned", height=HEIGHT)
    swapped = swapped_bytes(facts, np.dtype(tables.config["dtype"]).itemsize)
    memory, limit = probed_memory(tables), memory_limit(tables)
    return draw_ownership(facts, memory, swapped=swapped, limit=limit, is_current=is_probed(tables))


def draw_ownership(
    facts: BlockFacts, memory: MemoryFacts | None, *, swapped: float, limit: float | None, is_current: bool
) -> Figure:
    """Draw the owners, and the memory of a step.

    Args:
        facts: the blocks of time.
        memory: of the probed step; None before a step was probed.
        swapped: bytes that go from the first map to the second.
        limit: bytes that a step may use.
        is_current: whether the memory is of these blocks.
    """
    blocks = min(facts.blocks, MOST_BLOCKS)
    within, over_time = owner_maps(facts, blocks)
    has_both = swaps_rows(facts) or facts.ranks == 1
    blocks_text = f", {blocks} of {facts.blocks} blocks" if blocks < facts.blocks else ""
    data = [map_trace(within, "x", "y")]
    shapes, notes = block_marks(facts, blocks, "x", "y")
    notes.append(_heading(f"<b>1</b> Within a snapshot: ranks own snapshots{blocks_text}", 0.0, _MAPS[1]))
    notes.append(_note("nodes", -0.008, sum(_MAPS) / 2, xanchor="right"))
    layout: dict[str, Any] = {
        "xaxis": _snapshot_axis(facts, blocks, _LEFT if has_both else _FULL_WIDTH, "y"),
        "yaxis": _node_axis(facts, "x"),
    }
    if has_both:
        data.append(map_trace(over_time, "x2", "y2"))
        lines, names = block_marks(facts, blocks, "x2", "y2")
        shapes, notes = shapes + lines, notes + (names if blocks <= _NAMED_TWICE else [])
        notes.append(_heading("<b>2</b> Over time: ranks own nodes", _RIGHT[0], _MAPS[1]))
        notes.append(_arrow(facts, swapped))
        layout |= {"xaxis2": _snapshot_axis(facts, blocks, _RIGHT, "y2"), "yaxis2": _node_axis(facts, "x2")}
    heading = f"<b>{3 if has_both else 2}</b> Memory over the probed step"
    if memory is None:
        layout |= _empty_memory_axes()
        data.append({"type": "scatter", "x": [None], "y": [None], "xaxis": "x3", "yaxis": "y3", "hoverinfo": "skip"})
        notes.append(_heading(heading, 0.0, _MEMORY[1]))
        notes.append(_note(NOT_PROBED, 0.5, sum(_MEMORY) / 2))
    else:
        data += _memory_traces(memory)
        layout |= _memory_axes(memory)
        heading += ": forward, then backward" + " block by block" * (memory.count > 1)
        if not is_current:
            heading += f", probed before the last change, with {_block_count(memory.count)}"
        notes.append(_heading(heading, 0.0, _MEMORY[1]))
        notes.append(_heading(f"peak {bytes_text(memory.peak_bytes)}", 1.0, _MEMORY[1], xanchor="right"))
        if limit is not None and limit <= 2 * memory.peak_bytes:
            level = limit / memory_unit(memory)[1]
            shapes.append(_limit_line(level))
            anchors: Attributes = {"xref": "x3", "yref": "y3", "xanchor": "left", "yanchor": "bottom"}
            notes.append(label(f"limit {bytes_text(limit)}", 0, level, WARNING_COLOUR, **anchors))
    return card(
        data,
        TITLE,
        keys=[*_rank_keys(facts), *_pass_keys(memory)],
        shapes=shapes,
        annotations=notes,
        margin={"l": 56, "t": 22, "b": 26},
        height=HEIGHT,
        **layout,
    )


def ownership_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return what a step keeps, its peak and what it sends."""
    facts, memory = blocks_of(tables), probed_memory(tables)
    if facts is None:
        return NOTHING_YET
    sent = predicted_sent(facts)
    sent_text = f"{bytes_text(sent)} of rows" if sent else "no rows"
    snapshots = f"one of {facts.blocks:,} blocks" if facts.blocks > 1 else "all snapshots"
    if memory is None or not is_probed(tables):
        return f"A step keeps {snapshots} in memory and sends {sent_text}."
    return f"A step keeps {snapshots} in memory, peaks at {bytes_text(memory.peak_bytes)} and sends {sent_text}."


PICTURE = Chart(
    name="ownership",
    title=TITLE,
    figure=ownership_figure,
    caption=ownership_caption,
    section="picture",
    applies=is_esdg,
    rollups=(SENT,),
    help="A cell whose colour differs between both maps is a row that ranks swap. Dotted lines separate time blocks.",
)


# Maps of owners.


def map_trace(owners: OwnerMap, x_axis: str, y_axis: str) -> Attributes:
    """Return a heat map in the colours of the ranks; hovering names rank, nodes and snapshots."""
    nodes, snapshots = _span_texts("node", owners.nodes), _span_texts("snapshot", owners.snapshots)
    hover = [
        [f"rank {rank}: {node_text}, {snapshot_text}" for snapshot_text, rank in zip(snapshots, ranks, strict=True)]
        for node_text, ranks in zip(nodes, owners.ranks.tolist(), strict=True)
    ]
    scale = [[edge / COLOURS, series_colour(rank)] for rank in range(COLOURS) for edge in (rank, rank + 1)]
    x, y = (owners.snapshots - 0.5).tolist(), (owners.nodes - 0.5).tolist()
    style: Attributes = {"showscale": False, "xgap": 1, "ygap": 1, "xaxis": x_axis, "yaxis": y_axis}
    return heat(
        "owners", (owners.ranks % COLOURS).tolist(), x, y, scale, span=(-0.5, COLOURS - 0.5), customdata=hover, **style
    )


def _span_texts(noun: str, bounds: Numbers) -> list[str]:
    return [
        f"{noun} {begin:,}" if end == begin + 1 else f"{noun}s {begin:,} to {end - 1:,}"
        for begin, end in pairwise(bounds.tolist())
    ]


def block_marks(facts: BlockFacts, blocks: int, x: str, y: str) -> tuple[list[Attributes], list[Attributes]]:
    """Return dotted lines between blocks, and their names."""
    bounds = (facts.bounds[: blocks + 1] - 0.5).tolist()
    dotted = {"color": TEXT_COLOUR, "width": 1.6, "dash": "dot"}
    lines = [
        {"type": "line", "xref": x, "yref": f"{y} domain", "x0": bound, "x1": bound, "y0": 0, "y1": 1, "line": dotted}
        for bound in bounds[1:-1]
    ]
    if facts.blocks == 1:
        return lines, []
    style: Attributes = {"xref": x, "yref": f"{y} domain", "yanchor": "bottom", "bgcolor": _LABEL_BACK, "borderpad": 1}
    return lines, [
        label(name, (begin + end) / 2, 0.03, size=11, **style)
        for name, (begin, end) in zip(block_names(bounds), pairwise(bounds), strict=True)
        if name
    ]


def block_names(bounds: Sequence[float]) -> list[str]:
    """Return the name of each block between bounds, or its number where names are too wide; empty without room."""
    rooms = [_MAP_WIDTH * (end - begin) / (bounds[-1] - bounds[0]) for begin, end in pairwise(bounds)]
    prefix = "block " if all(room > _LETTER * len(f"block {n} ") for n, room in enumerate(rooms)) else ""
    return [f"{prefix}{n}" if room > _LETTER * len(f"{prefix}{n} ") else "" for n, room in enumerate(rooms)]


def _snapshot_axis(facts: BlockFacts, blocks: int, domain: list[float], anchor: str) -> Attributes:
    """Return an axis of snapshots, with whole numbers only; the first tick says what they are."""
    first, end = int(facts.bounds[0]), int(facts.bounds[blocks])
    ticks: Attributes = {"dtick": max(1, -(-(end - first) // 8)), "tick0": first}
    ticks |= {"tickprefix": "snapshot ", "showtickprefix": "first"}
    return {**_BARE, "domain": domain, "anchor": anchor, "range": [first - 0.5, end - 0.5], **ticks}


def _node_axis(facts: BlockFacts, anchor: str) -> Attributes:
    """Return an axis of nodes, the first on top, without numbers."""
    return {**_BARE, "domain": _MAPS, "anchor": anchor, "range": [facts.nodes - 0.5, -0.5], "tickvals": []}


def _arrow(facts: BlockFacts, swapped: float) -> Attributes:
    """Return a note on what is swapped between both maps."""
    if facts.ranks == 1:
        text = "nothing<br>to swap"
    else:
        text = f"swap<br><b>{bytes_text(swapped)}</b><br>forward<br>{'◀▶' if rows_come_back(facts) else '▶'}"
        sent = predicted_sent(facts)
        if sent > (1 + EQUAL) * swapped:  # recomputing and the backward pass send as well
            text += f"<br>of {bytes_text(sent)}<br>per step"
    return _note(text, 0.5, sum(_MAPS) / 2, font={"size": 12.5, "color": TEXT_COLOUR})


def _rank_keys(facts: BlockFacts) -> list[Key]:
    """Return the colours of ranks; none of more ranks than colours, which hovering tells."""
    ranks = facts.ranks if facts.ranks <= COLOURS else 0
    return [(f"rank {rank}", series_colour(rank), "box") for rank in range(ranks)]


# Memory over the probed step.


def _pass_keys(memory: MemoryFacts | None) -> list[Key]:
    """Return the colours of passes whose names do not all stand in the plot."""
    if memory is None:
        return []
    keys = memory_keys(memory)
    return keys if memory.count > MOST_BLOCKS else [key for key in keys if key[0] == RECOMPUTE]


def _memory_traces(memory: MemoryFacts) -> list[Attributes]:
    axes = {"xaxis": "x3", "yaxis": "y3"}
    names = [pass_names(memory, width=PAGE_WIDTH, **axes)] if memory.count <= MOST_BLOCKS else []
    return [*memory_lines(memory, **axes), *names]


def _memory_axes(memory: MemoryFacts) -> dict[str, Attributes]:
    end = 1e3 * float(memory.seconds[-1]) or 1.0
    ticks = ticks_above_zero(end, 8)  # the y axis has a 0 at the same place
    x_axis = {**_BARE, "domain": _FULL_WIDTH, "anchor": "y3", "range": [0, end], "tickvals": ticks}
    x_axis["ticktext"] = [f"{tick:g} ms" for tick in ticks]
    suffix = f" {memory_unit(memory)[0]}"
    y_axis = {**_BARE, "domain": _MEMORY, "anchor": "x3", "rangemode": "tozero", "nticks": 3, "ticksuffix": suffix}
    return {"xaxis3": x_axis, "yaxis3": y_axis}


def _empty_memory_axes() -> dict[str, Attributes]:
    axis: Attributes = {**_BARE, "range": [0, 1], "tickvals": []}
    return {
        "xaxis3": {**axis, "domain": _FULL_WIDTH, "anchor": "y3"},
        "yaxis3": {**axis, "domain": _MEMORY, "anchor": "x3"},
    }


def _limit_line(value: float) -> Attributes:
    stroke = {"color": WARNING_COLOUR, "width": 1.5, "dash": "dash"}
    ends = {"xref": "x3 domain", "yref": "y3", "x0": 0, "x1": 1, "y0": value, "y1": value}
    return {"type": "line", **ends, "line": stroke}


# Notes in the picture.


def _heading(text: str, x: float, y: float, **changes: Any) -> Attributes:
    return _note(text, x, y, **{"xanchor": "left", "yanchor": "bottom", **changes})


def _note(text: str, x: float, y: float, **changes: Any) -> Attributes:
    return paper_label(text, x, y, SOFT_COLOUR, **changes)


def _block_count(blocks: int) -> str:
    return "1 block" if blocks == 1 else f"{blocks:,} blocks"
