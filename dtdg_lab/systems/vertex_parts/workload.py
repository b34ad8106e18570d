"""Work of an epoch in which ranks own nodes in all snapshots: with halo exchange, or with replicated neighbours."""

from __future__ import annotations

import numpy as np

from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.partition.volume import RERUN_MEMORIES, between_parts, predicted_bytes
from dtdg_lab.systems.workload import EXACT, EpochWork, Facts, Numbers, on_largest, on_ranks, plain_work

PULLED_ALONE = ("per_vertex", "weights", "none")  # memories for which ranks only send rows along edges


def halo_work(facts: Facts) -> EpochWork:
    """Predict the work of parts that own nodes and exchange rows of remote neighbours at every aggregation.

    References: ESDG section 4.1; ADGNN-T as DynaHB section 6.1 has it.
    """
    config, ranks = facts.config, facts.ranks
    partition = facts.partition()
    placed = partition if partition.parts == ranks else partition.on_ranks(ranks)
    measures = facts.measured(placed)
    blocks = max(int(config["blocks"]), 1)
    rows = np.asarray(measures.owned * float(len(facts.train)), np.float64)
    edges = measures.edges.sum(axis=0).astype(float)
    rerun_snapshots = 0
    if blocks > 1 and facts.memory in RERUN_MEMORIES:
        plan = SnapshotBlocks(range(len(facts.train)), blocks, 1, facts.graph.num_nodes)
        rerun_snapshots = len(facts.train) - len(plan.block(blocks - 1))
    if ranks == 1:
        sent: Numbers = np.zeros((1, 1))
    elif rerun_snapshots:
        volume = between_parts(
            facts.snapshots, placed, facts.pulled, rerun_before=rerun_snapshots, reuse=config["halo_reuse"]
        )
        sent = np.asarray(sum(pairs.sum(axis=0) for pairs in volume.bytes(facts.itemsize).values()), float)
    else:
        by_reason = predicted_bytes(measures, facts.pulled, itemsize=facts.itemsize, reuse=config["halo_reuse"])
        sent = np.asarray(sum(pairs.sum(axis=0) for pairs in by_reason.values()), float)
    np.fill_diagonal(sent, 0.0)
    received = measures.halo.sum(axis=0) if ranks > 1 else np.zeros(1)
    share = 1 / blocks
    alive = np.stack([(rows + received) * share, edges * share], axis=1)
    exchanges = 0 if ranks == 1 else _stacks(facts, int(rows.max()) // len(facts.train)) * _exchanges(facts)
    repeat = 1 + rerun_snapshots / len(facts.train) / 2  # a rerun is one of three passes
    return plain_work(
        facts,
        steps=1,
        edges=edges * repeat,
        rows=rows * repeat,
        snapshots=float(len(facts.train)),
        sent=sent,
        exchanges=exchanges,
        alive=alive,
        held_bytes=measures.halo_bytes.astype(float),
        exact=frozenset(EXACT) if config["blocks"] == 1 and facts.memory in PULLED_ALONE else frozenset(),
    )


def _stacks(facts: Facts, rows: int) -> int:
    """Return the number of stacks of snapshots that a processor computes together, each with its exchanges."""
    from dtdg_lab.engine.views.device_sequence import stack_ranges

    return len(stack_ranges(facts.train, rows=max(rows, 1), features=facts.graph.num_features, device="cpu"))


def _exchanges(facts: Facts) -> int:
    """Return the number of exchanges of a stack: one per aggregation, and one backward if its gradient is needed."""
    return sum(1 + pull.learned for pull in facts.pulled)


def cached_work(facts: Facts) -> EpochWork:
    """Predict the work of parts with copies of their neighbours within all hops, which only exchange gradients.

    References: DynaHB section 4.1; its baseline PyGT-Dist.
    """
    measures = facts.measured(facts.partition())
    own_rows = np.asarray(measures.owned * float(len(facts.train)), np.float64)
    inner = (
        facts.reach - 1
    ) / facts.reach  # share of the copies that are computed, not only read: not the outermost hop
    rows = own_rows + measures.replicated.sum(axis=0) * inner
    edges = measures.edges.sum(axis=0) + measures.replicated_edges.sum(axis=0).astype(float)
    by_rank = [on_ranks(of_parts, facts.ranks) for of_parts in (rows, edges, measures.cached_bytes.astype(float))]
    largest = np.stack([on_largest(rows, facts.ranks), on_largest(edges, facts.ranks)], axis=1)
    parts_of_rank = facts.config.parts // facts.ranks
    return plain_work(
        facts,
        steps=1,
        edges=by_rank[1],
        rows=by_rank[0],
        snapshots=float(len(facts.train) * parts_of_rank),
        pieces=float(parts_of_rank),
        alive=largest,
        held_bytes=by_rank[2],
        exact=frozenset({"bytes"}),
    )
