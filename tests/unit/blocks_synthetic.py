"""Blocks of time of made-up runs: the event that tells them, exchanges and transfers, for tests of views and pages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from synthetic_lines import START_NS, line, step_row

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


def event(
    data: dict[str, Any], *, step: int = 0, attempt: int = 1, kind: str = "blocks", at: int = 0
) -> dict[str, Any]:
    return line("events", [[step, step, START_NS + step + at, kind, data]], attempt=attempt)


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


def exchange_rows(step: int, *, flying_s: float = 0.004, exposed_s: float = 0.001) -> list[list[Any]]:
    """Rows of ``exchanges`` of one rank: for each layer and way a leg there and one back."""
    return [
        [step, step, layer, way, leg, 3, flying_s, exposed_s]
        for layer in range(LAYERS) for way in WAYS for leg in ("to_vertices", "to_snapshots")
    ]  # fmt: skip


def step_lines(
    data: dict[str, Any], step: int, *, attempt: int = 1, exposed_s: float = 0.001, brought: int = 1000,
    whole: int = 3000, ranks: Sequence[int] | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """What the ranks tell of one step: exactly the bytes that were predicted."""
    found = []
    for rank in range(data["ranks"]) if ranks is None else ranks:
        predicted = {way: np.asarray(each) for way, each in data["predicted"].items()}
        links = [
            [step, step, layer, way, to, 1, int(each[layer, rank, to])]
            for way, each in predicted.items() for layer in range(len(each)) for to in range(data["ranks"])
            if each[layer, rank, to]
        ]  # fmt: skip
        tables = {
            "steps": [step_row(step, 1.0, per_epoch=1)],
            "links": links,
            "exchanges": exchange_rows(step, exposed_s=exposed_s),
            "transfers": [[step, step, 7, brought, whole]],
        }
        found += [line(table, rows, rank=rank, attempt=attempt) for table, rows in tables.items()]
    return found
