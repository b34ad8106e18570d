"""Which snapshots a run trains, validates and tests on, as an event tells it."""

from __future__ import annotations

from typing import Any

import numpy as np

from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import Split
from dtdg_lab.tasks.task import PARTS


def told_parts(graph: DynamicGraph, split: Split) -> dict[str, Any]:
    """Part -> ``first`` and ``last`` snapshot, and ``without_edges``: [first, last] of each run of empty ones.

    A part without snapshots is left out.
    """
    empty = np.asarray(graph.num_edges) == 0
    return {
        part: {"first": where.start, "last": where.stop - 1, "without_edges": _runs(empty, where)}
        for part in PARTS
        if (where := getattr(split, part))
    }


def _runs(empty: np.ndarray, where: range) -> list[list[int]]:
    inside = np.concatenate([[False], empty[where.start : where.stop], [False]])
    starts, stops = (np.flatnonzero(inside[1:] & ~inside[:-1]), np.flatnonzero(inside[:-1] & ~inside[1:]))
    return [[where.start + int(start), where.start + int(stop) - 1] for start, stop in zip(starts, stops, strict=True)]
