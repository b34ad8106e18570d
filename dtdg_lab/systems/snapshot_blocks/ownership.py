"""Owners of nodes and snapshots in a plan of time blocks, before and after ranks swap rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.partition.events import BlockFacts

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
