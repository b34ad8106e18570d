"""Epochs of systems whose steps are batches of vertices: hybrid batches, and mini-batches whose features are fetched.

Batches are drawn as a run draws them, a few of each part, and counted; what an epoch takes is their mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.batching.batch_sizes import batch_size, grid
from dtdg_lab.batching.load_groups import load_groups
from dtdg_lab.batching.sampling import sampled_edges, sampling_key
from dtdg_lab.batching.seed_batches import SeedBatches, fanouts_of, rounds_of, stretches_of
from dtdg_lab.batching.target_sampler import TargetSampler
from dtdg_lab.core.plans import Partition
from dtdg_lab.core.target_batches import TargetBatch
from dtdg_lab.partition.hop_sets import hop_distance
from dtdg_lab.partition.loads import vertex_loads
from dtdg_lab.studies.advise_facts import Facts, edge_ways
from dtdg_lab.studies.advise_work import EpochWork, Fetching, on_ranks, plain_work

DRAWN_BATCHES = 4  # of a part and size
DRAWN_PARTS = 4  # of all, evenly spaced
WINDOW_DRAWN = 8  # batches whose rows a cache is counted by, at most


def hybrid_work(facts: Facts) -> EpochWork:
    """Some snapshots of some vertices of every part, with all neighbours that their layers reach.

    Where an adjuster chooses, the mean over its sizes. Batches out of a reservoir count as new ones.

    References: DynaHB section 5, definition 3.
    """
    config, ranks = facts.config, facts.ranks
    partition = facts.partition()
    loads = vertex_loads(facts.graph, facts.reach)
    shares = [(config["batch_snapshots"], config["batch_vertices"])]
    if config["adjuster"] != "none":
        shares = list(grid(config["snapshot_sizes"], config["vertex_sizes"]))
    found = []
    for part in _some(partition.parts):
        own = partition.vertices(part)
        groups = load_groups(loads[own], np.arange(len(own)), config["load_groups"])
        sampler = TargetSampler(config.seed, part, groups, facts.train)
        for action, share in enumerate(shares):
            size = batch_size(*share, snapshots=len(facts.train), candidates=len(own))
            drawn = [sampler.batch(size, action, index) for index in range(DRAWN_BATCHES)]
            found += [_reached(facts, batch, own) for batch in drawn]
    counts = np.array(found)  # rows, edges, snapshots
    mean, most = counts.mean(axis=0), counts.max(axis=0)
    steps, here = int(config["epoch_batches"]), config.parts // ranks
    asynchronous = config["exchange"] == "models"
    every = np.full(ranks, float(steps * here))
    measures = facts.measured(partition)
    held = on_ranks(measures.cached_bytes.astype(float), ranks)
    if config["reservoir"] and config["stand_in_gib"] > 0:  # all vertices of the window may stand in for a batch
        every_snapshot = most[2] / len(facts.train)
        inner = (facts.reach - 1) / facts.reach
        whole = measures.owned * len(facts.train) + measures.replicated.sum(axis=0) * inner
        pulled = measures.edges.sum(axis=0) + measures.replicated_edges.sum(axis=0)
        most = np.maximum(most, [every_snapshot * whole.max(), every_snapshot * pulled.max(), 0.0])
    return plain_work(
        facts, steps=steps, edges=mean[1] * every, rows=mean[0] * every, snapshots=mean[2] * steps * here,
        pieces=every,
        alive=np.tile(most[:2], (ranks, 1)), held_bytes=held, waits=not asynchronous,
        gradient_bytes=0.0 if asynchronous else float(facts.gradient_bytes * steps),
        round_bytes=(float(facts.gradient_bytes), float(config["average_every_s"])) if asynchronous else None,
        exact=frozenset() if asynchronous else frozenset({"bytes"}),
        notes=(f"means over {len(found)} batches drawn as a run draws them",),
    )  # fmt: skip


def _reached(facts: Facts, batch: TargetBatch, own: NDArray[np.int64]) -> tuple[float, float, float]:
    """Rows, edges and snapshots of a batch with its neighbours."""
    snapshots = [facts.graph.snapshots[t] for t in batch.snapshots]
    targets = own[batch.targets]
    together = facts.memory in ("per_vertex", "neighbourhood")  # states run through all of them
    distance = hop_distance(snapshots, targets, facts.reach, edge_ways(facts.config)) if together else None
    rows = edges = 0
    for snapshot in snapshots:
        reach = distance
        if reach is None:
            reach = hop_distance([snapshot], targets, facts.reach, edge_ways(facts.config))
        rows += int((reach < facts.reach).sum())  # the outermost are read, and nothing is computed for them
        edges += int(np.diff(snapshot.indptr)[reach < facts.reach].sum())
    return float(rows), float(edges), float(len(snapshots))


@dataclass(frozen=True, slots=True)
class _Mini:
    """One mini-batch: rows, edges, snapshots, and the numbers of remote feature rows, each once."""

    rows: int
    edges: int
    snapshots: int
    remote: NDArray[np.int64]
    owners: int


def remote_work(facts: Facts) -> EpochWork:
    """Mini-batches with sampled neighbours; features of other parts' vertices are fetched.

    What a cache spares is counted from the rows of as many batches as its window, or a few where that is longer. With
    ``epoch_hot`` the cache has all remote rows once an epoch, as far as it has room.

    References: GreenDyGNN sections II and V.
    """
    config, ranks = facts.config, facts.ranks
    partition = facts.partition()
    size, stretches = int(config["batch_size"]), stretches_of(facts.train, config["batch_length"])
    rounds = rounds_of(partition.counts.tolist(), size)
    alike = facts.graph.static_features and _alike(facts)
    window = _window(facts)
    drawn_of: list[list[_Mini]] = []
    per_epoch = 1
    for part in _some(partition.parts):
        batches = SeedBatches(config.seed, part, partition.vertices(part), size, stretches, rounds, alike)
        per_epoch = batches.per_epoch
        many = min(max(min(window, WINDOW_DRAWN), DRAWN_BATCHES), per_epoch)
        drawn_of.append([_mini(facts, partition, batches.batch(number)) for number in range(many)])
    minis = [mini for drawn in drawn_of for mini in drawn]
    rows, edges, snapshots = (
        float(np.mean([getattr(mini, name) for mini in minis])) for name in ("rows", "edges", "snapshots")
    )
    here = config.parts // ranks
    every = np.full(ranks, float(per_epoch * here))
    fetched = _fetched_rows(facts, partition, drawn_of, per_epoch)
    row_bytes = float(4 * facts.graph.num_features)
    serving = np.zeros((ranks, ranks))
    if ranks > 1:
        between = fetched * row_bytes * per_epoch * here * (1 - (here - 1) / max(config.parts - 1, 1))
        serving = (np.ones((ranks, ranks)) - np.eye(ranks)) * between / (ranks - 1)
    most = max(minis, key=lambda mini: mini.rows)
    owners = float(np.mean([mini.owners for mini in minis])) if fetched else 0.0
    return plain_work(
        facts, steps=per_epoch, edges=edges * every, rows=rows * every, snapshots=snapshots * per_epoch * here,
        pieces=every,
        alive=np.tile([float(most.rows), float(most.edges)], (ranks, 1)), sent=serving,
        held_bytes=np.full(ranks, facts.graph_bytes / ranks),
        fetching=Fetching(owners, fetched * row_bytes, ahead=config["cache_policy"] != "on_demand"),
        notes=(f"means over {len(minis)} mini-batches drawn as a run draws them",),
    )  # fmt: skip


def _window(facts: Facts) -> int:
    """Batches that a cache serves; 1 where there is none."""
    policy = facts.config["cache_policy"]
    return 1 if policy in ("on_demand", "prefetch") else int(facts.config["cache_window"])


def _fetched_rows(facts: Facts, partition: Partition, drawn_of: list[list[_Mini]], per_epoch: int) -> float:
    """Remote rows that a part fetches in a step, on average."""
    asked = float(np.mean([len(mini.remote) for drawn in drawn_of for mini in drawn]))
    policy, window = facts.config["cache_policy"], _window(facts)
    if window == 1 and policy != "epoch_hot":
        return asked
    room = float(facts.config["cache_rows"])
    if policy == "epoch_hot":
        alone = facts.graph.num_nodes - float(partition.counts.mean())
        whole = alone * (1 if facts.graph.static_features else len(facts.train))
        return min(asked, min(whole, room) / per_epoch + asked * max(0.0, 1 - room / max(whole, 1.0)))
    served = [drawn[: min(window, len(drawn))] for drawn in drawn_of]
    once = float(np.mean([len(np.unique(np.concatenate([m.remote for m in some]))) / len(some) for some in served]))
    covered = min(1.0, room / max(once * min(window, WINDOW_DRAWN), 1.0))
    return once * covered + asked * (1 - covered)


def _mini(facts: Facts, partition: Partition, batch: TargetBatch) -> _Mini:
    """Rows and edges of a mini-batch, layer by layer from its targets; what it reads of other parts."""
    fanouts = fanouts_of(facts.config["fanouts"], facts.config.layers)
    rows = edges = 0
    remote: list[NDArray[np.int64]] = []
    owners: set[int] = set()
    for t in batch.snapshots:
        reached = np.asarray(batch.targets, np.int64)
        for layer in reversed(range(facts.config.layers)):
            for _ in range(max(facts.reach // facts.config.layers, 1)):
                key = sampling_key(facts.config.seed, batch.index, t, layer)
                drawn = sampled_edges(facts.graph.snapshots[t], reached, fanout=fanouts[layer], key=key)
                edges += len(drawn.indices)
                rows += len(reached)
                reached = np.union1d(reached, drawn.indices)
        of = partition.owner[reached]
        away = reached[of != batch.part]
        owners.update(np.unique(of[of != batch.part]).tolist())
        remote.append(away if facts.graph.static_features else away + t * facts.graph.num_nodes)
    return _Mini(rows, edges, len(batch.snapshots), np.unique(np.concatenate(remote)), len(owners))


def _alike(facts: Facts) -> bool:
    first = facts.snapshots[0]
    return all(first is other or first.equals(other) for other in facts.snapshots)


def _some(parts: int) -> list[int]:
    """Numbers of a few of the parts."""
    return np.unique(np.linspace(0, parts - 1, min(parts, DRAWN_PARTS)).astype(int)).tolist()
