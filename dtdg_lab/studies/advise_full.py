"""Epochs of systems whose steps take whole snapshots: full batches by vertices, by snapshots, and snapshot groups."""

from __future__ import annotations

import numpy as np

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.graphs.difference_sizes import sequence_changes
from dtdg_lab.partition.predict import predicted_bytes
from dtdg_lab.partition.snapshot_legs import RERUN_MEMORIES, legs
from dtdg_lab.partition.snapshot_legs import sent as sent_legs
from dtdg_lab.partition.snapshot_volume import between_parts, pulled_by_groups, redistributed
from dtdg_lab.partition.step_work import StepSettings
from dtdg_lab.scheduling.solve import named, solve
from dtdg_lab.studies.advise_facts import ASSUMED_COMPUTE, Facts, Numbers
from dtdg_lab.studies.advise_work import FRONT_BYTES, EpochWork, GroupWork, on_ranks, plain_work

PULLED_ALONE = ("per_vertex", "weights", "none")  # memories for which ranks send rows along edges and nothing else
LEAST_GROUPS = 2
FULL_ITERATIONS = ("round_robin", "consecutive")  # schedulers whose iterations are full, whatever groups take
_ALL = frozenset({"rows", "bytes"})


def single_work(facts: Facts) -> EpochWork:
    """One step of all snapshots on one rank."""
    edges, many = np.array([facts.edges.sum()], float), len(facts.train)
    rows = np.array([many * facts.graph.num_nodes], float)
    return plain_work(facts, steps=1, edges=edges, rows=rows, snapshots=float(many), exact=_ALL)


def group_work(facts: Facts) -> EpochWork:
    """Snapshot groups of the training part; who computes which follows from their times, and so later.

    References: DyGNeX sections 3 and 4.
    """
    config, ranks = facts.config, facts.ranks
    window, stride = int(config["group_window"]), int(config["group_stride"])
    starts = np.arange(0, len(facts.train) - window + 1, stride)
    if len(starts) < LEAST_GROUPS:
        raise PlanError(
            f"system={config.system!r}: {len(facts.train)} snapshots have no room for two groups of {window}. Set a "
            "smaller group_window, or cut the data finer."
        )
    running = np.concatenate([[0], np.cumsum(facts.edges)])
    edges = (running[starts + window] - running[starts]).astype(float)
    rows = np.full(len(starts), float(window * facts.graph.num_nodes))
    per_rank = int(config["groups_per_rank"])
    at_once = per_rank if config["pipelined"] else 1
    weighed = facts.passes(edges, rows, float(window), 1.0)
    sizes = weighed @ np.array(ASSUMED_COMPUTE)
    most = named(config["scheduler"], per_rank)[1]
    steps = len(solve(config["scheduler"], sizes, config.parts, per_rank=most, time_limit_s=1.0).assignment)
    fixed = steps == -(-len(starts) // (config.parts * most)) and config["scheduler"] in FULL_ITERATIONS
    alive = np.tile([rows[0] * at_once, float(edges.max()) * at_once], (ranks, 1))
    share = np.full(ranks, 1 / ranks)
    return plain_work(
        facts, steps=steps, edges=edges.sum() * share, rows=rows.sum() * share, snapshots=len(starts) * window * share,
        pieces=len(starts) * share,
        alive=alive, exact=frozenset({"bytes"}) if fixed else frozenset(),
        groups=GroupWork(weighed, str(config["scheduler"]), per_rank),
    )  # fmt: skip


def snapshot_work(facts: Facts) -> EpochWork:
    """Blocks of time, whose snapshots are shared out to ranks (ESDG); in the hybrid to groups of ranks.

    References: ESDG sections 3.1 and 4.2 (rerun and redistribution), 6.5 (hybrid).
    """
    config, ranks = facts.config, facts.ranks
    blocks, notes = int(config["blocks"]) or 1, _said(config)
    split = int(config["row_ranks"])
    plan = SnapshotBlocks(facts.train, blocks, ranks, facts.graph.num_nodes, split)
    # as a step of ESDG numbers the snapshots: from 0 on
    counted = SnapshotBlocks(range(len(facts.train)), blocks, ranks, facts.graph.num_nodes, split)
    pairs = facts.outputs if config["task"] == "link" else 0
    some = sent_legs(
        legs(config.model, facts.graph.num_features, config.hidden, config.layers, pairs=pairs, blocks=blocks,
             reuse=config["halo_reuse"], **facts.model_options)
    )  # fmt: skip
    volume = redistributed(counted, some, config.layers)
    if split > 1:
        again = facts.memory in RERUN_MEMORIES
        volume = volume + pulled_by_groups(
            facts.graph.snapshots, plan, facts.pulled, rerun=again, reuse=config["halo_reuse"]
        )
    sent = sum((each.sum(axis=0) for each in volume.bytes(facts.itemsize).values()), np.zeros((ranks, ranks)))
    settings = StepSettings(
        config.model, facts.graph.num_features, config.hidden, config.layers, pairs=pairs, blocks=blocks,
        difference=config["difference"], reuse=config["halo_reuse"], itemsize=facts.itemsize,
        options=facts.model_options,
    )  # fmt: skip
    step = settings.work(sequence_changes(facts.snapshots), ranks)
    by_rank = _split_rows(step.passes, counted, facts) if split > 1 else step.passes
    passes = facts.weighed(np.column_stack([by_rank, np.full(ranks, float(blocks))]))
    rows, edges, alive = _shares(facts, counted)
    brought = step.brought if split == 1 and blocks > 1 and config["graphs"] == "brought" else np.zeros((ranks, 3))
    held = np.full(ranks, facts.graph_bytes / (ranks if split == 1 and blocks == 1 else 1))
    return EpochWork(
        system=config.system, steps=1, passes=passes, rows=rows, edges=edges, sent=np.asarray(sent, float),
        exchanges=max(step.exchanges - 1, 0) + 2 * len(facts.pulled) * (split > 1),
        gradient_bytes=float(facts.gradient_bytes), brought=brought, alive=alive, held_bytes=held,
        exact=_ALL if not config["overlap"] or ranks == 1 else frozenset({"rows"}), notes=notes,
    )  # fmt: skip


def halo_work(facts: Facts) -> EpochWork:
    """Vertices are owned by parts, which exchange the rows of remote neighbours at every pull.

    References: ESDG section 4.1; ADGNN-T as DynaHB section 7.1 has it.
    """
    config, ranks = facts.config, facts.ranks
    partition = facts.partition()
    placed = partition if partition.parts == ranks else partition.on_ranks(ranks)
    measures = facts.measured(placed)
    blocks = max(int(config["blocks"]), 1)
    rows = np.asarray(measures.owned * float(len(facts.train)), np.float64)
    edges = measures.edges.sum(axis=0).astype(float)
    again = 0
    if blocks > 1 and facts.memory in RERUN_MEMORIES:
        plan = SnapshotBlocks(range(len(facts.train)), blocks, 1, facts.graph.num_nodes)
        again = len(facts.train) - len(plan.block(blocks - 1))
    if ranks == 1:
        sent: Numbers = np.zeros((1, 1))
    elif again:
        volume = between_parts(facts.snapshots, placed, facts.pulled, rerun_before=again, reuse=config["halo_reuse"])
        sent = np.asarray(sum(each.sum(axis=0) for each in volume.bytes(facts.itemsize).values()), float)
    else:
        told = predicted_bytes(measures, facts.pulled, itemsize=facts.itemsize, reuse=config["halo_reuse"])
        sent = np.asarray(sum(each.sum(axis=0) for each in told.values()), float)
    np.fill_diagonal(sent, 0.0)
    received = measures.halo.sum(axis=0) if ranks > 1 else np.zeros(1)
    share = 1 / blocks
    alive = np.stack([(rows + received) * share, edges * share], axis=1)
    exchanges = 0 if ranks == 1 else _stacks(facts, int(rows.max()) // len(facts.train)) * _exchanges(facts)
    repeat = 1 + again / len(facts.train) / 2  # a rerun is one of three passes
    return plain_work(
        facts, steps=1, edges=edges * repeat, rows=rows * repeat, snapshots=float(len(facts.train)), sent=sent,
        exchanges=exchanges, alive=alive, held_bytes=measures.halo_bytes.astype(float),
        exact=_ALL if config["blocks"] == 1 and facts.memory in PULLED_ALONE else frozenset(),
    )  # fmt: skip


def _stacks(facts: Facts, rows: int) -> int:
    """Runs of snapshots that a processor computes together, each with exchanges of its own."""
    from dtdg_lab.parallel.space_store import stack_ranges

    return len(stack_ranges(facts.train, rows=max(rows, 1), features=facts.graph.num_features, device="cpu"))


def _exchanges(facts: Facts) -> int:
    """Of one stack: every pull forward, and back those whose gradient is wanted."""
    return sum(1 + pull.learned for pull in facts.pulled)


def cached_work(facts: Facts) -> EpochWork:
    """Parts keep copies of their neighbours within all hops, and exchange gradients alone.

    References: DynaHB section 4.1; its baseline PyGT-Dist.
    """
    measures = facts.measured(facts.partition())
    own = np.asarray(measures.owned * float(len(facts.train)), np.float64)
    inner = (facts.reach - 1) / facts.reach  # of the copies, those that are more than read: all but the outermost hop
    rows = own + measures.replicated.sum(axis=0) * inner
    edges = measures.edges.sum(axis=0) + measures.replicated_edges.sum(axis=0).astype(float)
    by_rank = [on_ranks(each, facts.ranks) for each in (rows, edges, measures.cached_bytes.astype(float))]
    largest = np.stack([on_largest(rows, facts.ranks), on_largest(edges, facts.ranks)], axis=1)
    here = facts.config.parts // facts.ranks
    return plain_work(
        facts, steps=1, edges=by_rank[1], rows=by_rank[0], snapshots=float(len(facts.train) * here), pieces=float(here),
        alive=largest, held_bytes=by_rank[2],
        exact=frozenset({"bytes"}),
    )  # fmt: skip


def on_largest(of_parts: Numbers, ranks: int) -> Numbers:
    """The largest of the parts of each rank, which computes one after another; (P,) -> (R,)."""
    return np.asarray(np.asarray(of_parts, float).reshape(ranks, -1).max(axis=1))


def _said(config: RunConfig) -> tuple[str, ...]:
    found: tuple[str, ...] = ("blocks=0 is taken as one block",) if not config["blocks"] else ()
    if config["overlap"] and config.ranks > 1:
        found += (f"bytes lack the {FRONT_BYTES} in front of each piece that overlap sends",)
    return found


def _shares(facts: Facts, plan: SnapshotBlocks) -> tuple[Numbers, Numbers, Numbers]:
    """Rows and edges of each rank's own snapshots, and what the largest block keeps."""
    rows, edges = np.zeros(plan.ranks), np.zeros(plan.ranks)
    alive = np.zeros((plan.ranks, 2))
    for block in range(plan.blocks):
        for rank in range(plan.ranks):
            own = plan.own(block, rank)
            spatial = len(own) * len(plan.rows(rank))
            through = len(plan.chunk(rank)) * len(plan.block(block)) if facts.memory == "per_vertex" else 0
            pulled = float(facts.edges[own.start : own.stop].sum()) / plan.row_ranks
            rows[rank] += spatial
            edges[rank] += pulled
            alive[rank] = np.maximum(alive[rank], [max(spatial, through), pulled])
    return rows, edges, alive


def _split_rows(passes: Numbers, plan: SnapshotBlocks, facts: Facts) -> Numbers:
    """Passes of a hybrid: a rank has a share of the rows of its group's snapshots."""
    found = np.zeros((plan.ranks, 5))
    for block in range(plan.blocks):
        times = 2 + (facts.memory in RERUN_MEMORIES and block < plan.blocks - 1)
        length = len(plan.block(block))
        for rank in range(plan.ranks):
            own = plan.own(block, rank)
            through = len(plan.chunk(rank)) * length if facts.memory == "per_vertex" else 0
            edges = float(facts.edges[own.start : own.stop].sum()) / plan.row_ranks
            rows = len(own) * len(plan.rows(rank)) + through
            found[rank] += np.array([edges, rows, len(own), length, length]) * times
    return found
