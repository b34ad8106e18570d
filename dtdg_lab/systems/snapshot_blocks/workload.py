"""Work of an epoch of snapshot parallelism in blocks of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.graphs.delta import CSR32, SequenceChanges, sequence_changes
from dtdg_lab.partition.metrics import RERUN_MEMORIES
from dtdg_lab.partition.volume import PAPER_SPEEDUPS, AllToAllCost, collectives, pulled_by_groups, redistributed, sent
from dtdg_lab.systems.workload import EXACT, FRONT_BYTES, EpochWork, Facts, Numbers, StepWork


def settings_of(facts: Facts, **more: Any) -> StepSettings:
    """Of the step of a config.

    Args:
        facts: its config and graph.
        **more: settings of blocks, where they are not the defaults.
    """
    config = facts.config
    return StepSettings(
        config.model,
        facts.graph.num_features,
        config.hidden,
        config.layers,
        pairs=facts.outputs if config["task"] == "link" else 0,
        itemsize=facts.itemsize,
        options=facts.model_options,
        **more,
    )


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
    settings = settings_of(facts, blocks=blocks, difference=config["delta_transfer"], reuse=config["halo_reuse"])
    step = settings.work(sequence_changes(facts.snapshots), ranks)
    moved = step.sent
    if split > 1:
        volume = redistributed(counted, settings.sent(), config.layers) + pulled_by_groups(
            facts.graph.snapshots,
            plan,
            facts.pulled,
            rerun=facts.memory in RERUN_MEMORIES,
            reuse=config["halo_reuse"],
        )
        moved = sum((each.sum(axis=0) for each in volume.bytes(facts.itemsize).values()), np.zeros((ranks, ranks)))
    by_rank = _split_rows(step.passes, counted, facts) if split > 1 else step.passes
    passes = facts.weighed(np.column_stack([by_rank, np.full(ranks, float(blocks))]))
    rows, edges, alive = _shares(facts, counted)
    brought = (
        step.brought if split == 1 and blocks > 1 and config["graph_storage"] == "streamed" else np.zeros((ranks, 3))
    )
    held = np.full(ranks, facts.graph_bytes / (ranks if split == 1 and blocks == 1 else 1))
    return EpochWork(
        system=config.system,
        steps=1,
        passes=passes,
        rows=rows,
        edges=edges,
        sent=np.asarray(moved, float),
        exchanges=max(step.exchanges - 1, 0) + 2 * len(facts.pulled) * (split > 1),
        gradient_bytes=float(facts.gradient_bytes),
        brought=brought,
        alive=alive,
        held_bytes=held,
        exact=frozenset(EXACT) if not config["overlap"] or ranks == 1 else frozenset({"rows"}),
        notes=notes,
    )


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


@dataclass(frozen=True, slots=True)
class StepSettings:
    """What a step computes, whatever the graph and the ranks; names as the options of a run.

    Attributes:
        model: name in the catalogue.
        features: F.
        hidden: H.
        layers: of the model.
        pairs: numbers of a node that pairs are scored from; 0 where the loss is a sum over nodes.
        blocks: nb.
        difference: whether graphs are brought as differences.
        reuse: whether rows of the data alone are kept from step to step.
        itemsize: bytes of a number.
        options: of the model.
    """

    model: str
    features: int
    hidden: int
    layers: int
    pairs: int = 0
    blocks: int = 1
    difference: bool = True
    reuse: bool = False
    itemsize: int = 4
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def paper_speedup(self, *, weak: bool) -> float | None:
        """The paper's speed-up of this model on 128 GPUs; None where it gives none."""
        return PAPER_SPEEDUPS[weak].get(self.model)

    def differences(self, other: Any) -> list[str]:
        """Names of settings for which rates of the one do not hold for the other."""
        names = ("model", "features", "hidden", "layers", "itemsize", "options")
        return [name for name in names if getattr(other, name) != getattr(self, name)]

    def sent(self) -> tuple[AllToAllCost, ...]:
        """The redistributions of a step that are sent."""
        sizes = (self.model, self.features, self.hidden, self.layers)
        return sent(collectives(*sizes, pairs=self.pairs, blocks=self.blocks, reuse=self.reuse, **self.options))

    def work(self, changes: SequenceChanges, ranks: int) -> StepWork:
        """What R ranks do in a step.

        Args:
            changes: of the S snapshots trained.
            ranks: R, at most N; each has whole snapshots.

        Raises:
            PlanError: the ranks or blocks do not fit the graph.
            UnsupportedError: the model's memory cannot be divided by snapshots.
        """
        plan = SnapshotBlocks(range(len(changes.edges)), self.blocks, ranks, changes.nodes)
        some = self.sent()
        memory = catalogue.entry("models", self.model).memory
        moved = redistributed(plan, some, self.layers).bytes(self.itemsize)
        return StepWork(
            nodes=changes.nodes,
            edges=int(changes.edges.sum()),
            passes=_passes(plan, changes, memory),
            sent=sum((each.sum(axis=0) for each in moved.values()), np.zeros((ranks, ranks))),
            exchanges=_exchanges(some, self.blocks) + 1 if ranks > 1 else 0,
            brought=_brought(plan, changes, memory, difference=self.difference),
        )


def _repeats(plan: SnapshotBlocks, memory: str | None) -> list[int]:
    """How often each block runs forward: twice where it is computed again."""
    again = memory in RERUN_MEMORIES
    return [1 + (again and block < plan.blocks - 1) for block in range(plan.blocks)]


def _passes(plan: SnapshotBlocks, changes: SequenceChanges, memory: str | None) -> Numbers:
    found = np.zeros((plan.ranks, 5))
    for block, forward in enumerate(_repeats(plan, memory)):
        times, length = forward + 1, len(plan.block(block))
        for rank in range(plan.ranks):
            own = plan.own(block, rank)
            through = len(plan.chunk(rank)) * length if memory == "per_vertex" else 0
            rows = len(own) * len(plan.rows(rank)) + through
            edges = int(changes.edges[own.start : own.stop].sum())
            found[rank] += np.array([edges, rows, len(own), length, length * (plan.ranks > 1)]) * times
    return found


def _exchanges(some: tuple[AllToAllCost, ...], blocks: int) -> int:
    """Exchanges of rows in a step that overlaps none with computing: one for each collective and block."""
    many = {"forward": blocks, "rerun": blocks - 1, "backward": blocks}
    return sum(1 if cost.only_last else many[cost.pass_name] for cost in some)


def _brought(plan: SnapshotBlocks, changes: SequenceChanges, memory: str | None, *, difference: bool) -> Numbers:
    """Nothing with one block, which stays; else every block for forward, and again for its rerun."""
    found = np.zeros((plan.ranks, 3))
    if plan.blocks == 1:
        return found
    for block, forward in enumerate(_repeats(plan, memory)):
        for rank in range(plan.ranks):
            own = plan.own(block, rank)
            less, whole = changes.brought(CSR32, [own])
            found[rank] += np.array([len(own), less if difference else whole, whole]) * forward
    return found
