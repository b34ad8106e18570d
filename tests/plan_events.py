"""Data of events of time blocks, partitions and memory, for tests of charts."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from dtdg_lab.core.plans import SnapshotBlocks

WIDTH, LAYERS = 6, 2
PASSES = ("forward", "rerun", "backward")


def plan(snapshots: int = 13, blocks: int = 3, ranks: int = 2, nodes: int = 10, row_ranks: int = 1) -> SnapshotBlocks:
    return SnapshotBlocks(range(snapshots), blocks, ranks, nodes, row_ranks)


def blocks_data(plan: SnapshotBlocks, **more: Any) -> dict[str, Any]:
    """Return the data of an event ``blocks``; rows have ``WIDTH`` numbers in both directions and every layer."""
    ranks = range(plan.ranks)
    collectives = [
        [layer, pass_name, collective, WIDTH]
        for layer in range(LAYERS)
        for pass_name in PASSES
        if pass_name != "rerun" or plan.blocks > 1
        for collective in ("to_vertices", "to_snapshots")
    ]
    data = {
        "layout": "snapshot",
        "ranks": plan.ranks,
        "row_ranks": plan.row_ranks,
        "nodes": plan.nodes,
        "blocks": plan.blocks,
        "requested": plan.blocks,
        "bounds": [plan.block(0).start, *(plan.block(b).stop for b in range(plan.blocks))],
        "own": [[span(plan.own(b, rank)) for rank in ranks] for b in range(plan.blocks)],
        "rows": [span(plan.rows(rank)) for rank in ranks],
        "chunks": [span(plan.chunk(rank)) for rank in ranks],
        "predicted": {pass_name: [sent(plan, pass_name)] * LAYERS for pass_name in PASSES},
        "collectives": collectives,
        "note": "",
    }
    return json.loads(json.dumps({**data, **more}))


def sent(plan: SnapshotBlocks, pass_name: str) -> list[list[int]]:
    """Return the bytes of a layer there and back: p's snapshots of q's nodes, and p's nodes in q's snapshots."""
    matrix = np.zeros((plan.ranks, plan.ranks), int)
    for block in range(plan.blocks - (pass_name == "rerun")):
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
    """Return a memory trace: each block's forward keeps a state; backward raises a hill again, block by block."""
    seconds, live, marks, time_s, level = [0.0], [0], [], 0.0, 0

    def go_to(height: int) -> None:
        nonlocal time_s
        time_s += 0.001
        seconds.append(round(time_s, 6))
        live.append(height)

    for block in range(blocks):
        is_last = block == blocks - 1
        marks.append([time_s, block, "forward"])
        go_to(level + hill)
        if not is_last:
            level += state
            go_to(level)
    for block in reversed(range(blocks)):
        if block < blocks - 1:
            marks.append([time_s, block, "rerun"])
            go_to(level + hill)
        marks.append([time_s, block, "backward"])
        go_to(level + hill + 50)
        level = max(0, level - state)
        go_to(level)
    return {"seconds": seconds, "bytes": live, "blocks": marks}


def partition_data(edges: list[list[float]], *, layout: str = "halo_vertex", cut: float = 0.47) -> dict[str, Any]:
    """Return parts with given edges in two columns: snapshots 0 and 1, and snapshot 2."""
    parts = len(edges)
    even = [[2.0, 4.0]] * parts
    measures = {
        "bins": [0, 2, 3],
        "edges": edges,
        "halo": even,
        "replicated": even,
        "replicated_edges": [[1.0, 1.0]] * parts,
        "owned": [10] * parts,
        "load": [5.0, *[1.0] * (parts - 1)],
        "halo_bytes": [1024] * parts,
        "cached_bytes": [2048] * parts,
        "cut_share": cut,
        "halo_share": 0.2,
        "replicated_share": 0.3,
        "totals": {},
        "imbalance": {},
    }
    return {"partitioner": "metis", "parts": parts, "ranks": 2, "layout": layout, "seconds": 0.1, "measures": measures}
