"""Work of an epoch of snapshot parallelism in blocks of time, on any number of ranks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.config import catalogue
from dtdg_lab.config.model_facts import memory
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError
from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs import delta
from dtdg_lab.graphs.delta import SequenceChanges
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.redistribution_volume import (
    PAPER_SPEEDUPS,
    AllToAllCost,
    collectives,
    pulled_by_groups,
    redistributed,
    sent,
)
from dtdg_lab.partition.volume import RERUN_MEMORIES
from dtdg_lab.systems.snapshot_blocks.strategy import is_streamed
from dtdg_lab.systems.step_time import STEP_SECONDS, MeasuredStep, measured_from
from dtdg_lab.systems.workload import EXACT, FRONT_BYTES, EpochWork, Facts, Numbers, Row, StepWork, curve_row

if TYPE_CHECKING:
    from dtdg_lab.runs.stored_run import StoredRun


def _settings_of(config: RunConfig, features: int, **settings: Any) -> StepSettings:
    return StepSettings(
        config.model,
        features,
        config.hidden,
        config.layers,
        itemsize=np.dtype(config["dtype"]).itemsize,
        options=config.options.get("models", {}),
        **settings,
    )


def settings_of(facts: Facts, **block_settings: Any) -> StepSettings:
    """Return the settings of a config's step.

    Args:
        facts: config and graph.
        **block_settings: settings of blocks that differ from the defaults.
    """
    pairs = 0 if catalogue.entry("tasks", facts.config["task"]).per_vertex else facts.outputs
    return _settings_of(facts.config, facts.graph.num_features, pairs=pairs, **block_settings)


def snapshot_work(facts: Facts) -> EpochWork:
    """Predict the work of blocks of time, whose snapshots are divided among ranks (ESDG) or groups of ranks (hybrid).

    References: ESDG sections 3.1 and 4.2 (rerun and redistribution), 6.5 (hybrid).
    """
    config, ranks = facts.config, facts.ranks
    blocks, notes = int(config["blocks"]) or 1, _said(config)
    split = int(config["row_ranks"])
    plan = SnapshotBlocks(facts.train, blocks, ranks, facts.graph.num_nodes, split)
    # a step of ESDG numbers its snapshots from 0
    counted = SnapshotBlocks(range(len(facts.train)), blocks, ranks, facts.graph.num_nodes, split)
    transfers = {"streamed": is_streamed(config, facts.graph, plan), "difference": config["delta_transfer"]}
    settings = settings_of(facts, blocks=blocks, reuse=config["halo_reuse"], **transfers)
    changes = delta.sequence_changes(facts.snapshots)
    step = settings.work(changes, ranks)
    moved = step.sent
    if split > 1:
        volume = redistributed(counted, settings.sent(), config.layers) + pulled_by_groups(
            facts.graph.snapshots, plan, facts.pulled, rerun=facts.memory in RERUN_MEMORIES, reuse=config["halo_reuse"]
        )
        moved = sum((pairs.sum(axis=0) for pairs in volume.bytes(facts.itemsize).values()), np.zeros((ranks, ranks)))
    by_rank = _passes(counted, changes, facts.memory)
    passes = facts.weighed(np.column_stack([by_rank, np.full(ranks, float(blocks))]))
    rows, edges, alive = _shares(facts, counted)
    held_bytes = np.full(ranks, facts.graph_bytes / (ranks if split == 1 and blocks == 1 else 1))
    return EpochWork(
        system=config.system,
        steps=1,
        passes=passes,
        rows=rows,
        edges=edges,
        sent=np.asarray(moved, float),
        exchanges=max(step.exchanges - 1, 0) + 2 * len(facts.pulled) * (split > 1),
        gradient_bytes=float(facts.gradient_bytes),
        brought=step.brought,
        alive=alive,
        held_bytes=held_bytes,
        exact=frozenset(EXACT) if config["overlap"] == "off" or ranks == 1 else frozenset({"rows"}),
        notes=notes,
    )


def _said(config: RunConfig) -> tuple[str, ...]:
    notes: tuple[str, ...] = ("blocks=0 is taken as one block",) if not config["blocks"] else ()
    if config["overlap"] != "off" and config.ranks > 1:
        notes += (f"bytes exclude the {FRONT_BYTES} that overlap sends in front of each piece",)
    return notes


def _shares(facts: Facts, plan: SnapshotBlocks) -> tuple[Numbers, Numbers, Numbers]:
    """Return rows and edges of each rank's own snapshots, and the rows and edges kept by the largest block."""
    rows, edges = np.zeros(plan.ranks), np.zeros(plan.ranks)
    alive = np.zeros((plan.ranks, 2))
    for block in range(plan.blocks):
        for rank in range(plan.ranks):
            own_snapshots = plan.own(block, rank)
            spatial = len(own_snapshots) * len(plan.rows(rank))
            through = len(plan.chunk(rank)) * len(plan.block(block)) if facts.memory == "per_vertex" else 0
            pulled = float(facts.edges[own_snapshots.start : own_snapshots.stop].sum()) / plan.row_ranks
            rows[rank] += spatial
            edges[rank] += pulled
            alive[rank] = np.maximum(alive[rank], [max(spatial, through), pulled])
    return rows, edges, alive


@dataclass(frozen=True, slots=True)
class StepSettings:
    """The settings that determine the work of a step, apart from graph and ranks; named like the options of a run.

    Attributes:
        model: name in the catalogue.
        features: F.
        hidden: H.
        layers: layers of the model.
        pairs: outputs per node that pairs are scored from; 0 if the loss is a sum over nodes.
        blocks: nb.
        streamed: True if graphs are transferred for every block, False if they stay on the device.
        difference: True if graphs are transferred as deltas.
        reuse: True if rows that depend on no parameter are kept from step to step.
        itemsize: bytes of a number.
        options: options of the model.
    """

    model: str
    features: int
    hidden: int
    layers: int
    pairs: int = 0
    blocks: int = 1
    streamed: bool = True
    difference: bool = True
    reuse: bool = False
    itemsize: int = 4
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def paper_speedup(self, *, weak: bool) -> float | None:
        """Return the paper's speed-up of this model on 128 GPUs, if reported."""
        return PAPER_SPEEDUPS[weak].get(self.model)

    def differences(self, other: Any) -> list[str]:
        """Return the names of settings for which measured rates cannot be transferred."""
        names = ("model", "features", "hidden", "layers", "itemsize", "options")
        return [name for name in names if getattr(other, name) != getattr(self, name)]

    def sent(self) -> tuple[AllToAllCost, ...]:
        """Return the redistributions that a step sends."""
        sizes = (self.model, self.features, self.hidden, self.layers)
        return sent(collectives(*sizes, pairs=self.pairs, blocks=self.blocks, reuse=self.reuse, **self.options))

    def work(self, changes: SequenceChanges, ranks: int) -> StepWork:
        """Return the work of R ranks in a step.

        Args:
            changes: changes of the S training snapshots.
            ranks: R, at most N; each has whole snapshots.

        Raises:
            PlanError: the ranks or blocks do not fit the graph.
            UnsupportedError: the model's memory cannot be divided by snapshots.
        """
        plan = SnapshotBlocks(range(len(changes.edges)), self.blocks, ranks, changes.nodes)
        some = self.sent()
        carried = memory(self.model, hidden=self.hidden, layers=self.layers, **self.options)
        moved = redistributed(plan, some, self.layers).bytes(self.itemsize)
        return StepWork(
            nodes=changes.nodes,
            edges=int(changes.edges.sum()),
            passes=_passes(plan, changes, carried),
            sent=sum((pairs.sum(axis=0) for pairs in moved.values()), np.zeros((ranks, ranks))),
            exchanges=_exchanges(some, self.blocks) + 1 if ranks > 1 else 0,
            brought=_brought(plan, changes, carried, difference=self.difference) * self.streamed,
        )


def _repeats(plan: SnapshotBlocks, memory: str | None) -> list[int]:
    """Return the number of forward passes of each block: 2 if it is recomputed, otherwise 1."""
    is_rerun = memory in RERUN_MEMORIES
    return [1 + (is_rerun and block < plan.blocks - 1) for block in range(plan.blocks)]


def _passes(plan: SnapshotBlocks, changes: SequenceChanges, memory: str | None) -> Numbers:
    """Return the passes of each rank; in a hybrid it has a share of the rows of its group's snapshots."""
    passes = np.zeros((plan.ranks, 5))
    for block, forward in enumerate(_repeats(plan, memory)):
        times, length = forward + 1, len(plan.block(block))
        for rank in range(plan.ranks):
            own_snapshots = plan.own(block, rank)
            through = len(plan.chunk(rank)) * length if memory == "per_vertex" else 0
            rows = len(own_snapshots) * len(plan.rows(rank)) + through
            edges = float(changes.edges[own_snapshots.start : own_snapshots.stop].sum()) / plan.row_ranks
            passes[rank] += np.array([edges, rows, len(own_snapshots), length, length * (plan.ranks > 1)]) * times
    return passes


def _exchanges(some: tuple[AllToAllCost, ...], blocks: int) -> int:
    """Return the number of exchanges in a step without overlap: one per collective and block."""
    many = {"forward": blocks, "rerun": blocks - 1, "backward": blocks}
    return sum(1 if cost.only_last else many[cost.pass_name] for cost in some)


def _brought(plan: SnapshotBlocks, changes: SequenceChanges, memory: str | None, *, difference: bool) -> Numbers:
    """Return the transfers of each rank: none with one block, else every block per forward pass and rerun."""
    brought = np.zeros((plan.ranks, 3))
    if plan.blocks == 1:
        return brought
    for block, forward in enumerate(_repeats(plan, memory)):
        for rank in range(plan.ranks):
            own_snapshots = plan.own(block, rank)
            delta_bytes, whole_bytes = changes.brought(delta.CSR32, [own_snapshots])
            brought[rank] += (
                np.array([len(own_snapshots), delta_bytes if difference else whole_bytes, whole_bytes]) * forward
            )
    return brought


WARM_UPS = 1  # number of first steps left out, which fill caches


def measured_step(
    run: StoredRun, graph: DynamicGraph | None = None, *, cores: int | None = None
) -> tuple[MeasuredStep, StepSettings, SequenceChanges]:
    """Return the median step of a run, its settings, and the changes of its graph.

    With more ranks than cores, compute and transfer are the rank's processor seconds, divided in the proportion of
    their wall times, and other phases are unknown. They then include the processor's cost of exchanges.

    Args:
        run: run of a system whose ranks have whole snapshots, without overlap if there are several ranks.
        graph: its data; loaded if None.
        cores: cores of its machine; those of this process if None.

    Raises:
        ConfigError: the run is of another system, has too few steps, or overlaps exchanges with computing.
    """
    event, config = _blocks_event(run), run.config
    ranks = event["ranks"]
    if ranks > 1 and config["overlap"] != "off":
        raise ConfigError(
            f"run {run.id} overlaps exchanges with computing, so neither can be timed alone. Record a run with "
            "overlap='off'."
        )
    graph = load_for(config) if graph is None else graph
    first, *_, last = event["bounds"]
    changes = delta.sequence_changes(graph.snapshots[first:last])
    settings = _settings(run, event, graph.num_features)
    steps = run.table("steps")
    steps = steps[steps["step"] >= WARM_UPS]
    if steps.empty:
        raise ConfigError(f"run {run.id} has no step after the first. Record one of at least {WARM_UPS + 1} epochs.")
    shared = ranks > (len(os.sched_getaffinity(0)) if cores is None else cores)
    by_rank = steps.groupby("rank", sort=True)[list(STEP_SECONDS)].median()
    step = measured_from(run.id, settings.work(changes, ranks), by_rank, shared=shared)
    if ranks == 1 and not shared:
        step = replace(step, communicate_s=0.0)  # one rank sends nothing
    return step, settings, changes


def _blocks_event(run: StoredRun) -> dict[str, Any]:
    """Return the data of the run's last event ``blocks``."""
    events = [event["data"] for event in run.events if event["kind"] == "blocks"]
    if not events or events[-1].get("layout") != "snapshot" or events[-1]["row_ranks"] > 1:
        raise ConfigError(
            f"run {run.id} is of system {run.config.system!r}, but steps of esdg, whose ranks have whole snapshots, "
            "are needed. Record a run with system='esdg'."
        )
    return events[-1]


def _settings(run: StoredRun, event: dict[str, Any], features: int) -> StepSettings:
    config, last = run.config, run.config.layers - 1
    scored = [
        width
        for layer, pass_name, collective, width in event["collectives"]
        if (layer, pass_name, collective) == (last, "forward", "to_snapshots")
    ]
    return _settings_of(
        config,
        features,
        pairs=scored[0] if scored else 0,
        blocks=event["blocks"],
        streamed=not run.table("transfers").empty,
        difference=config["delta_transfer"],
        reuse=config["halo_reuse"],
    )


def snapshot_rows(facts: Facts, ranks: Sequence[int]) -> list[Row]:
    """Return the exact bytes that the busiest rank of ESDG sends in a step, for ranks up to the number of nodes.

    References: ESDG section 6.4: S N (R - 1) / R rows per collective, for any graph.
    """
    settings, changes = settings_of(facts), delta.sequence_changes(facts.snapshots)
    rows = []
    for count in ranks:
        if count > facts.graph.num_nodes:
            continue
        try:
            moved = settings.work(changes, count).sent
        except LabError:  # the model's memory cannot be divided by snapshots
            return []
        value = float(moved.sum(axis=1).max())
        rows.append(curve_row("rank_bytes", "rows by snapshots (esdg)", count, value, "formula"))
    return rows
