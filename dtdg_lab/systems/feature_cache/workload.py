"""Work of an epoch whose steps are mini-batches with features fetched from other parts.

A few batches of each part are drawn as in a run, and counted; an epoch is estimated from their mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.plans import Partition, TargetBatch
from dtdg_lab.engine.minibatch.neighbour_sampling import sampled_edges, sampling_key
from dtdg_lab.engine.minibatch.sampled_batches import SeedBatches, fanouts_of, rounds_of, stretches_of
from dtdg_lab.systems.feature_cache.calibration.calibration import products
from dtdg_lab.systems.feature_cache.pipeline.feature_path import FeaturePath
from dtdg_lab.systems.workload import EpochWork, Facts, Fetching, Row, curve_row, plain_work, some_parts

DRAWN_BATCHES = 4  # per part and size
WINDOW_DRAWN = 8  # maximum number of batches whose rows are counted for a cache


@dataclass(frozen=True, slots=True)
class _Mini:
    """One mini-batch: rows, edges, snapshots, distinct remote feature rows, and the number of their owners."""

    rows: int
    edges: int
    snapshots: int
    remote: NDArray[np.int64]
    owners: int


def remote_work(facts: Facts) -> EpochWork:
    """Predict the work of mini-batches with sampled neighbours, whose remote features are fetched.

    Cache hits are counted over as many batches as its window, or over a few for a longer window. With ``epoch_hot`` the
    cache fetches all remote rows once an epoch, up to its capacity.

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
    for part in some_parts(partition.parts):
        batches = SeedBatches(config.seed, part, partition.vertices(part), size, stretches, rounds, alike)
        per_epoch = batches.per_epoch
        many = min(max(min(window, WINDOW_DRAWN), DRAWN_BATCHES), per_epoch)
        drawn_of.append([_mini(facts, partition, batches.batch(number)) for number in range(many)])
    minis = [mini for batches_of_part in drawn_of for mini in batches_of_part]
    rows, edges, snapshots = (
        float(np.mean([getattr(mini, name) for mini in minis])) for name in ("rows", "edges", "snapshots")
    )
    parts_of_rank = config.parts // ranks
    every = np.full(ranks, float(per_epoch * parts_of_rank))
    fetched = _fetched_rows(facts, partition, drawn_of, per_epoch)
    row_bytes = float(4 * facts.graph.num_features)
    serving = np.zeros((ranks, ranks))
    if ranks > 1:
        between = fetched * row_bytes * per_epoch * parts_of_rank * (1 - (parts_of_rank - 1) / max(config.parts - 1, 1))
        serving = (np.ones((ranks, ranks)) - np.eye(ranks)) * between / (ranks - 1)
    largest = max(minis, key=lambda mini: mini.rows)
    owners = float(np.mean([mini.owners for mini in minis])) if fetched else 0.0
    return plain_work(
        facts,
        steps=per_epoch,
        edges=edges * every,
        rows=rows * every,
        snapshots=snapshots * per_epoch * parts_of_rank,
        pieces=every,
        alive=np.tile([float(largest.rows), float(largest.edges)], (ranks, 1)),
        sent=serving,
        held_bytes=np.full(ranks, facts.graph_bytes / ranks),
        fetching=Fetching(owners, fetched * row_bytes, ahead=_path(facts).runs_ahead),
        notes=(f"means over {len(minis)} mini-batches drawn as a run draws them",),
    )


def _path(facts: Facts) -> FeaturePath:
    """Return the feature path of the config's policy; a registered policy is assumed to decide windows."""
    return FeaturePath.of_policy(facts.config["cache_policy"])


def _window(facts: Facts) -> int:
    """Return the number of batches that a cache serves; 1 without a cache."""
    return int(facts.config["cache_window"]) if _path(facts).caches else 1


def _fetched_rows(facts: Facts, partition: Partition, drawn_of: list[list[_Mini]], per_epoch: int) -> float:
    """Return the mean number of remote rows that a part fetches in a step."""
    rows_per_step = float(np.mean([len(mini.remote) for batches_of_part in drawn_of for mini in batches_of_part]))
    window, by_epoch = _window(facts), _path(facts).mode == "epoch_hot"
    if window == 1 and not by_epoch:
        return rows_per_step
    room = float(facts.config["cache_rows"])
    if by_epoch:
        alone = facts.graph.num_nodes - float(partition.counts.mean())
        all_rows = alone * (1 if facts.graph.static_features else len(facts.train))
        return min(
            rows_per_step, min(all_rows, room) / per_epoch + rows_per_step * max(0.0, 1 - room / max(all_rows, 1.0))
        )
    served = [batches_of_part[: min(window, len(batches_of_part))] for batches_of_part in drawn_of]
    once = float(np.mean([len(np.unique(np.concatenate([m.remote for m in some]))) / len(some) for some in served]))
    covered = min(1.0, room / max(once * min(window, WINDOW_DRAWN), 1.0))
    return once * covered + rows_per_step * (1 - covered)


def _mini(facts: Facts, partition: Partition, batch: TargetBatch) -> _Mini:
    """Count rows and edges of a mini-batch, layer by layer from its targets, and its remote rows."""
    fanouts = fanouts_of(facts.config["fanouts"], facts.config.layers)
    rows = edges = 0
    remote: list[NDArray[np.int64]] = []
    owners: set[int] = set()
    for t in batch.snapshots:
        reached = np.asarray(batch.targets, np.int64)
        for layer in reversed(range(facts.config.layers)):
            for _ in range(max(facts.reach // facts.config.layers, 1)):
                key = sampling_key(facts.config.seed, batch.index, t, layer)
                sampled = sampled_edges(facts.graph.snapshots[t], reached, fanout=fanouts[layer], key=key)
                edges += len(sampled.indices)
                rows += len(reached)
                reached = np.union1d(reached, sampled.indices)
        owner = partition.owner[reached]
        away = reached[owner != batch.part]
        owners.update(np.unique(owner[owner != batch.part]).tolist())
        remote.append(away if facts.graph.static_features else away + t * facts.graph.num_nodes)
    return _Mini(rows, edges, len(batch.snapshots), np.unique(np.concatenate(remote)), len(owners))


def _alike(facts: Facts) -> bool:
    first = facts.snapshots[0]
    return all(first is other or first.equals(other) for other in facts.snapshots)


# Curves of ``Forecast.curves`` for steps that fetch features, with the shipped constants of another cluster.


WINDOWS = (1, 16, 64)
DELAY_S = 0.02  # of the late link


def fetch_rows(facts: Facts, ranks: Sequence[int]) -> list[Row]:
    """Return seconds of a step that fetches features, by window of the cache, with quiet links and with a late one.

    Args:
        facts: not used, since the constants are of another cluster.
        ranks: numbers of ranks, each with a part.

    References: GreenDyGNN section IV-A.
    """
    rows: list[Row] = []
    for count in [rank_count for rank_count in ranks if rank_count > 1]:
        costs = products(count)
        even = np.array(costs.asked)
        late = np.zeros(count - 1)
        late[0] = DELAY_S
        for window in WINDOWS:
            for name, delays in (("quiet links", np.zeros(count - 1)), ("one link late", late)):
                value = float(costs.step_s(float(window), delays, np.inf, even))
                rows.append(curve_row("fetch_s", f"W = {window}, {name}", count, value, "simulated"))
    return rows
