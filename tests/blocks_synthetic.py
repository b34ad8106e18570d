"""Time blocks of made-up runs: the data of their events, for tests of charts."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from dtdg_lab.core.plans import SnapshotBlocks

WIDTH, LAYERS = 6, 2
WAYS = ("forward", "rerun", "backward")


def plan(snapshots: int = 13, blocks: int = 3, ranks: int = 2, nodes: int = 10, row_ranks: int = 1) -> SnapshotBlocks:
    return SnapshotBlocks(range(snapshots), blocks, ranks, nodes, row_ranks)


def blocks_data(plan: SnapshotBlocks, **more: Any) -> dict[str, Any]:
    """The data of an event ``blocks`` of a model whose rows have ``WIDTH`` numbers there and back, in every layer."""
    ranks = range(plan.ranks)
    described = [
        [layer, way, leg, WIDTH]
        for layer in range(LAYERS) for way in WAYS if way != "rerun" or plan.blocks > 1
        for leg in ("to_vertices", "to_snapshots")
    ]  # fmt: skip
    data = {
        "layout": "snapshot", "ranks": plan.ranks, "row_ranks": plan.row_ranks, "nodes": plan.nodes,
        "blocks": plan.blocks, "requested": plan.blocks,
        "bounds": [plan.block(0).start, *(plan.block(b).stop for b in range(plan.blocks))],
        "own": [[span(plan.own(b, rank)) for rank in ranks] for b in range(plan.blocks)],
        "rows": [span(plan.rows(rank)) for rank in ranks], "chunks": [span(plan.chunk(rank)) for rank in ranks],
        "predicted": {way: [sent(plan, way)] * LAYERS for way in WAYS}, "collectives": described, "note": "",
    }  # fmt: skip
    return json.loads(json.dumps({**data, **more}))


def sent(plan: SnapshotBlocks, way: str) -> list[list[int]]:
    """Bytes of a layer there and back: p's snapshots of q's nodes, and p's nodes in q's snapshots."""
    matrix = np.zeros((plan.ranks, plan.ranks), int)
    for block in range(plan.blocks - (way == "rerun")):
        own = [len(plan.own(block, rank)) for rank in range(plan.ranks)]
        chunk = [len(plan.chunk(rank)) for rank in range(plan.ranks)]
        matrix += np.outer(own, chunk) + np.outer(chunk, own)
    column = np.arange(plan.ranks) % plan.row_ranks
    matrix *= column[:, None] == column
    np.fill_diagonal(matrix, 0)
    return (4 * WIDTH * matrix).tolist()


def span(part: range) -> list[int]:
    return [part.start, part.stop]


def memory_data(blocks: int = 3, *, hill: int = 1000, state: int = 100) -> dict[str, Any]:
    """Each block's forward leaves a state and forgets the rest; backward raises a hill again, block by block."""
    seconds, live, marks, at, held = [0.0], [0], [], 0.0, 0

    def go(level: int) -> None:
        nonlocal at
        at += 0.001
        seconds.append(round(at, 6))
        live.append(level)

    for block in range(blocks):
        last = block == blocks - 1
        marks.append([at, block, "forward"])
        go(held + hill)
        if not last:
            held += state
            go(held)
    for block in reversed(range(blocks)):
        if block < blocks - 1:
            marks.append([at, block, "rerun"])
            go(held + hill)
        marks.append([at, block, "backward"])
        go(held + hill + 50)
        held = max(0, held - state)
        go(held)
    return {"seconds": seconds, "bytes": live, "blocks": marks}
