"""Work of an epoch whose steps are batches of some snapshots of some nodes.

A few batches of each part are drawn as in a run, and counted; an epoch is estimated from their mean.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.plans import TargetBatch
from dtdg_lab.partition.neighbourhoods import hop_distance
from dtdg_lab.partition.simple import vertex_loads
from dtdg_lab.systems.hybrid_batches.sampler import TargetSampler, load_groups
from dtdg_lab.systems.hybrid_batches.sizes import batch_size, grid
from dtdg_lab.systems.workload import EpochWork, Facts, on_ranks, plain_work, some_parts

DRAWN_BATCHES = 4  # per part and size


def hybrid_work(facts: Facts) -> EpochWork:
    """Predict the work of batches: some snapshots of some nodes of every part, with all neighbours that layers reach.

    With a batch-size controller, the mean over its sizes. Batches from a reservoir count as new ones.

    References: DynaHB section 5.1, definition 3.
    """
    config, ranks = facts.config, facts.ranks
    partition = facts.partition()
    loads = vertex_loads(facts.graph, facts.reach, snapshots=facts.train)
    shares = [(config["batch_snapshots"], config["batch_nodes"])]
    if config["batch_policy"] != "none":
        shares = list(grid(config["snapshot_sizes"], config["node_sizes"]))
    counted = []
    for part in some_parts(partition.parts):
        part_nodes = partition.vertices(part)
        groups = load_groups(loads[part_nodes], np.arange(len(part_nodes)), config["load_groups"])
        sampler = TargetSampler(config.seed, part, groups, facts.train)
        for action, share in enumerate(shares):
            size = batch_size(*share, snapshots=len(facts.train), candidates=len(part_nodes))
            batches = [sampler.batch(size, action, index) for index in range(DRAWN_BATCHES)]
            counted += [_reached(facts, batch, part_nodes) for batch in batches]
    counts = np.array(counted)  # rows, edges, snapshots
    mean, largest = counts.mean(axis=0), counts.max(axis=0)
    steps, parts_of_rank = int(config["epoch_batches"]), config.parts // ranks
    asynchronous = config["exchange"] == "models"
    every = np.full(ranks, float(steps * parts_of_rank))
    measures = facts.measured(partition)
    held_bytes = on_ranks(measures.cached_bytes.astype(float), ranks)
    if config["reservoir"] and config["fallback_memory_gib"] > 0:  # all nodes of the window may replace a batch
        every_snapshot = largest[2] / len(facts.train)
        inner = (facts.reach - 1) / facts.reach
        all_rows = measures.owned * len(facts.train) + measures.replicated.sum(axis=0) * inner
        pulled = measures.edges.sum(axis=0) + measures.replicated_edges.sum(axis=0)
        largest = np.maximum(largest, [every_snapshot * all_rows.max(), every_snapshot * pulled.max(), 0.0])
    return plain_work(
        facts,
        steps=steps,
        edges=mean[1] * every,
        rows=mean[0] * every,
        snapshots=mean[2] * steps * parts_of_rank,
        pieces=every,
        alive=np.tile(largest[:2], (ranks, 1)),
        held_bytes=held_bytes,
        waits=not asynchronous,
        gradient_bytes=0.0 if asynchronous else float(facts.gradient_bytes * steps),
        round_bytes=(float(facts.gradient_bytes), float(config["average_every_s"])) if asynchronous else None,
        exact=frozenset() if asynchronous else frozenset({"bytes"}),
        notes=(f"means over {len(counted)} batches drawn as a run draws them",),
    )


def _reached(facts: Facts, batch: TargetBatch, part_nodes: NDArray[np.int64]) -> tuple[float, float, float]:
    """Return rows, edges and snapshots of a batch with its neighbours."""
    snapshots = [facts.graph.snapshots[t] for t in batch.snapshots]
    targets = part_nodes[batch.targets]
    together = facts.memory in ("per_vertex", "neighbourhood")  # the state connects all snapshots
    distance = hop_distance(snapshots, targets, facts.reach, facts.directions) if together else None
    rows = edges = 0
    for snapshot in snapshots:
        reach = distance
        if reach is None:
            reach = hop_distance([snapshot], targets, facts.reach, facts.directions)
        rows += int((reach < facts.reach).sum())  # the outermost nodes are only read
        edges += int(np.diff(snapshot.indptr)[reach < facts.reach].sum())
    return float(rows), float(edges), float(len(snapshots))
