"""Vertices sorted by load and dealt to parts, so that each part computes as much as the others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, shortened
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.assigned import Assigned
from dtdg_lab.partition.loads import vertex_loads

READS = ("hops", "dealing")
GROUPS = 10


def assign(
    graph: DynamicGraph,
    parts: int,
    *,
    hops: int = 1,
    seed: int = 0,
    dealing: str = "boustrophedon",
    imbalance: float = 0.03,
    partition_file: str = "",
) -> Assigned:
    """Sort vertices by load, heaviest first, and deal them: round k gives each part one vertex.

    The vertices of a part, sorted the same way, are cut into 10 equal runs (one a vertex where it has fewer): the
    groups from which a vertex batch takes the same share each, so that batches weigh alike.

    Args:
        graph: N vertices in T snapshots.
        parts: P, at most N.
        hops: L, depth of the computation graphs whose edges are counted.
        seed: not read; ties go to the lower vertex.
        dealing: ``plain`` deals each round to parts 1..P; ``boustrophedon`` turns round at each end: 1..P, P..1.
        imbalance: not read.
        partition_file: not read.

    Returns:
        owners, and groups 0 (heaviest) to 9.

    Raises:
        ConfigError: there is no such dealing.

    References: DynaHB section 5, algorithm 1 (load, plain dealing) and section 5's balanced groups.
    Differs from the paper: boustrophedon, as the released code deals, is the default; the load is repaired (loads.py).
    """
    if dealing not in ("boustrophedon", "plain"):
        raise ConfigError(f"dealing={shortened(dealing)}: boustrophedon and plain are allowed.")
    loads = vertex_loads(graph, hops)
    owner = dealt(loads, parts, dealing)
    return Assigned(owner, _groups(owner, _heaviest_first(loads), parts))


def dealt(loads: NDArray[np.float64], parts: int, dealing: str = "boustrophedon") -> NDArray[np.int32]:
    """The part of each of K vertices, (K,), that are dealt as :func:`assign` deals all of a graph.

    Args:
        loads: (K,) of them.
        parts: P; where K is at least P, every part gets a vertex.
        dealing: ``plain`` or ``boustrophedon``.
    """
    order = _heaviest_first(loads)
    turn, seat = np.divmod(np.arange(len(order)), parts)
    if dealing == "boustrophedon":
        seat = np.where(turn % 2, parts - 1 - seat, seat)
    owner = np.empty(len(order), np.int32)
    owner[order] = seat
    return owner


def _heaviest_first(loads: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.argsort(-loads, kind="stable")


def _groups(owner: NDArray[np.int32], order: NDArray[Any], parts: int) -> NDArray[np.int32]:
    """Equal runs of each part's vertices in this order, (N,): runs differ by at most one vertex."""
    groups = np.empty(len(owner), np.int32)
    for part in range(parts):
        own = order[owner[order] == part]
        groups[own] = np.arange(len(own)) * min(GROUPS, len(own)) // max(1, len(own))
    return groups
