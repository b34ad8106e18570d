"""Snapshot parallelism in blocks of time: work of an epoch, memory by blocks, deltas, volume, steps on more ranks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.model_facts import ModelFacts, memory, model_facts
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError, UnknownNameError, shortened
from dtdg_lab.core.plans import Partition, SnapshotBlocks
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs import delta
from dtdg_lab.graphs.delta import SequenceChanges
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.split import split
from dtdg_lab.graphs.windowing import averaged, lived
from dtdg_lab.partition.base import make_partition
from dtdg_lab.partition.redistribution_volume import (
    PAPER_SPEEDUPS,
    AllToAllCost,
    collective_rows,
    collectives,
    pulled_by_groups,
    redistributed,
    sent,
)
from dtdg_lab.partition.volume import RERUN_MEMORIES, between_parts
from dtdg_lab.records.events import MemoryFacts
from dtdg_lab.systems.snapshot_blocks import forecast_charts
from dtdg_lab.systems.snapshot_blocks.block_costs import StepCost, draw_block_costs, least_memory_caption
from dtdg_lab.systems.snapshot_blocks.graph_storage import is_streamed
from dtdg_lab.systems.step_time import STEP_SECONDS, MeasuredStep, measured_from
from dtdg_lab.systems.workload import EXACT, FRONT_BYTES, EpochWork, Facts, Numbers, Row, StepWork, curve_row
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.runs.step_memory import memory_figure
from dtdg_lab.visualization.sheet import sheet
from dtdg_lab.visualization.studies.result import StudyResult

if TYPE_CHECKING:
    from dtdg_lab.runs.run import StoredRun
    from dtdg_lab.training.block_memory import BlockCost


def _settings_of(config: RunConfig, features: int, **more: Any) -> StepSettings:
    return StepSettings(
        config.model,
        features,
        config.hidden,
        config.layers,
        itemsize=np.dtype(config["dtype"]).itemsize,
        options=config.options.get("models", {}),
        **more,
    )


def settings_of(facts: Facts, **more: Any) -> StepSettings:
    """Of the step of a config.

    Args:
        facts: its config and graph.
        **more: settings of blocks, where they are not the defaults.
    """
    pairs = 0 if catalogue.entry("tasks", facts.config["task"]).per_vertex else facts.outputs
    return _settings_of(facts.config, facts.graph.num_features, pairs=pairs, **more)


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
    transfers = {"streamed": is_streamed(config, facts.graph, plan), "difference": config["delta_transfer"]}
    settings = settings_of(facts, blocks=blocks, reuse=config["halo_reuse"], **transfers)
    changes = delta.sequence_changes(facts.snapshots)
    step = settings.work(changes, ranks)
    moved = step.sent
    if split > 1:
        volume = redistributed(counted, settings.sent(), config.layers) + pulled_by_groups(
            facts.graph.snapshots, plan, facts.pulled, rerun=facts.memory in RERUN_MEMORIES, reuse=config["halo_reuse"]
        )
        moved = sum((each.sum(axis=0) for each in volume.bytes(facts.itemsize).values()), np.zeros((ranks, ranks)))
    by_rank = _passes(counted, changes, facts.memory)
    passes = facts.weighed(np.column_stack([by_rank, np.full(ranks, float(blocks))]))
    rows, edges, alive = _shares(facts, counted)
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
        brought=step.brought,
        alive=alive,
        held_bytes=held,
        exact=frozenset(EXACT) if config["overlap"] == "off" or ranks == 1 else frozenset({"rows"}),
        notes=notes,
    )


def _said(config: RunConfig) -> tuple[str, ...]:
    found: tuple[str, ...] = ("blocks=0 is taken as one block",) if not config["blocks"] else ()
    if config["overlap"] != "off" and config.ranks > 1:
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
        streamed: whether graphs are brought for every block; else they stay.
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
    streamed: bool = True
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
        carried = memory(self.model, hidden=self.hidden, layers=self.layers, **self.options)
        moved = redistributed(plan, some, self.layers).bytes(self.itemsize)
        return StepWork(
            nodes=changes.nodes,
            edges=int(changes.edges.sum()),
            passes=_passes(plan, changes, carried),
            sent=sum((each.sum(axis=0) for each in moved.values()), np.zeros((ranks, ranks))),
            exchanges=_exchanges(some, self.blocks) + 1 if ranks > 1 else 0,
            brought=_brought(plan, changes, carried, difference=self.difference) * self.streamed,
        )


def _repeats(plan: SnapshotBlocks, memory: str | None) -> list[int]:
    """How often each block runs forward: twice where it is computed again."""
    again = memory in RERUN_MEMORIES
    return [1 + (again and block < plan.blocks - 1) for block in range(plan.blocks)]


def _passes(plan: SnapshotBlocks, changes: SequenceChanges, memory: str | None) -> Numbers:
    """Passes of each rank; in a hybrid it has a share of the rows of its group's snapshots."""
    found = np.zeros((plan.ranks, 5))
    for block, forward in enumerate(_repeats(plan, memory)):
        times, length = forward + 1, len(plan.block(block))
        for rank in range(plan.ranks):
            own = plan.own(block, rank)
            through = len(plan.chunk(rank)) * length if memory == "per_vertex" else 0
            rows = len(own) * len(plan.rows(rank)) + through
            edges = float(changes.edges[own.start : own.stop].sum()) / plan.row_ranks
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
            less, whole = changes.brought(delta.CSR32, [own])
            found[rank] += np.array([len(own), less if difference else whole, whole]) * forward
    return found


# ``lab.estimate.transfers``: cost of transferring graphs, in full and as deltas, by model and format.


BLOCKS, RANKS = (1, 2, 4, 8), (1, 2, 4, 8, 16)
DIFFERENCE_MEANINGS: Mapping[str, str] = MappingProxyType(catalogue.DECLARED["snapshot_blocks"]["columns"]["transfers"])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TransferStudy(StudyResult):
    """What bringing a graph costs, whole and as differences.

    Attributes:
        rows: one for each model and format, see ``DIFFERENCE_MEANINGS``; times are None if not measured.
        shares: one for each model, format, number of blocks and of ranks: ``share`` of the snapshots with a
            predecessor in their block and on their rank, and with it ``whole_bytes``, ``difference_bytes`` and
            ``ratio`` of all blocks, once.
        described: what was compared, in words.
    """

    rows: tuple[dict[str, Any], ...]
    shares: tuple[dict[str, Any], ...]
    described: str
    meanings = DIFFERENCE_MEANINGS
    text_columns = (
        "model",
        "form",
        "overlap",
        "whole_bytes",
        "difference_bytes",
        "ratio",
        "bound",
        "whole_s",
        "difference_s",
        "time_ratio",
    )

    @property
    def figure(self) -> Figure:
        """Bytes and times, the bound given by the overlap, and the ratio left on ranks, as a plotly figure dict."""
        return forecast_charts.difference_figure(self.rows, self.shares, title=self.described)


def estimate_transfers(
    graph: DynamicGraph,
    *,
    edge_life: int = 5,
    smoothing_window: int = 5,
    forms: Sequence[str] = tuple(delta.FORMATS),
    blocks: Sequence[int] | None = None,
    ranks: Sequence[int] | None = None,
    repeats: int = 5,
    device: str = "cpu",
) -> TransferStudy:
    """Bytes and seconds of transferring a graph's snapshots, in full or as deltas from the previous one.

    The snapshots are smoothed as by the models: CD-GCN uses them unchanged, EvolveGCN sums the last ``edge_life``,
    TM-GCN averages the last ``smoothing_window``. Both increase the overlap of neighbouring snapshots.

    Args:
        graph: T snapshots, not smoothed yet (``edge_life=1``, ``smoothing_window=1``).
        edge_life: of EvolveGCN, in snapshots.
        smoothing_window: of TM-GCN, in snapshots.
        forms: ``csr32``, ours, and ``coo64``, the paper's.
        blocks: numbers of time blocks; by default 1, 2, 4 and 8, up to the number of snapshots.
        ranks: numbers of ranks; by default 1 to 16, up to the number of nodes.
        repeats: repetitions of each timed transfer; 0 measures no times.
        device: target of the transfers.

    Raises:
        ConfigError: a number is invalid.
        UnknownNameError: a format is unknown.
        PlanError: there are more blocks than snapshots, or more ranks than nodes.
        DataError: the snapshots cannot be encoded.

    References: ESDG sections 3.2 (deltas), 5.4 (smoothing), 6.2 and Figure 4.
    """
    _check(forms, edge_life=(edge_life, 1), smoothing_window=(smoothing_window, 1), repeats=(repeats, 0))
    plans = _plans(graph, blocks, ranks)
    rows: list[dict[str, Any]] = []
    shares: list[dict[str, Any]] = []
    smoothings = {
        "cdgcn": ("none", lambda: iter(graph.snapshots)),
        "evolvegcn": (f"edge life {edge_life}", lambda: lived(graph.snapshots, edge_life)),
        "tmgcn": (f"mean of {smoothing_window}", lambda: averaged(graph.snapshots, smoothing_window)),
    }
    for model, (smoothing, smooth) in smoothings.items():
        smoothed = list(smooth())
        changes = delta.sequence_changes(smoothed)
        for form in (delta.FORMATS[name] for name in forms):
            of = {"model": model, "smoothing": smoothing, "form": form.name}
            sizes = _row(smoothed, changes, form)
            saved = sizes["whole_bytes"] - sizes["difference_bytes"]
            rows.append(of | sizes | _times(smoothed, form, repeats=repeats, device=device, saved_bytes=saved))
            shares += [of | _share(changes, form, plan) for plan in plans]
    alive = f"; its edges live {graph.edge_life} base intervals already" if graph.edge_life > 1 else ""
    size = f"{graph.num_snapshots:,} snapshots of {graph.num_nodes:,} nodes"
    described = f"Transferring {graph.name}: {size} to {device}{alive}"
    return TransferStudy(tuple(rows), tuple(shares), described)


def _check(forms: Sequence[str], **numbers: tuple[int, int]) -> None:
    """Refuse numbers below their minimum, and unknown formats."""
    for name, (number, least) in numbers.items():
        if number < least:
            raise ConfigError(f"{name}={number}: give a whole number of at least {least}.")
    for form in forms:
        if form not in delta.FORMATS:
            raise UnknownNameError("format", form, delta.FORMATS)


def _plans(graph: DynamicGraph, blocks: Sequence[int] | None, ranks: Sequence[int] | None) -> list[SnapshotBlocks]:
    blocks = [count for count in BLOCKS if count <= graph.num_snapshots] if blocks is None else blocks
    ranks = [number for number in RANKS if number <= graph.num_nodes] if ranks is None else ranks
    every = range(graph.num_snapshots)
    return [SnapshotBlocks(every, count, number, graph.num_nodes) for count in blocks for number in ranks]


def _row(snapshots: Sequence[Snapshot], changes: SequenceChanges, form: delta.TransferFormat) -> dict[str, Any]:
    sent, whole = delta.encode(snapshots, form).nbytes, delta.encode(snapshots, form, difference=False).nbytes
    least, _ = changes.brought(form, [range(len(snapshots))])
    return {
        "snapshots": len(snapshots),
        "edges": int(changes.edges.sum()),
        "overlap": changes.overlap,
        "whole_bytes": whole,
        "difference_bytes": sent,
        "ratio": whole / sent,
        "bound": whole / least,
        "reached": least / sent,
    }


def _times(
    snapshots: Sequence[Snapshot], form: delta.TransferFormat, *, repeats: int, device: str, saved_bytes: int
) -> dict[str, Any]:
    if not repeats:
        names = ("whole_s", "difference_s", "difference_copy_s", "difference_unpack_s", "time_ratio", "worth_below")
        return dict.fromkeys(names)
    from dtdg_lab.systems.snapshot_blocks.transfer_times import transfer_times

    whole, less = transfer_times(snapshots, form, device=device, repeats=repeats)
    more_s = less.unpack_s - whole.unpack_s
    return {
        "whole_s": whole.total_s,
        "difference_s": less.total_s,
        "difference_copy_s": less.copy_s,
        "difference_unpack_s": less.unpack_s,
        "time_ratio": whole.total_s / less.total_s,
        "worth_below": saved_bytes / more_s if saved_bytes and more_s > 0 else None,
    }


def _share(changes: SequenceChanges, form: delta.TransferFormat, plan: SnapshotBlocks) -> dict[str, Any]:
    less, whole = changes.brought(form, delta.own_ranges(plan))
    return {
        "blocks": plan.blocks,
        "ranks": plan.ranks,
        "share": delta.benefiting_share(plan),
        "whole_bytes": whole,
        "difference_bytes": less,
        "ratio": whole / less,
    }


# ``lab.estimate.block_memory``: peak memory and time of a step against the number of time blocks, measured here.


_UNKNOWN: Mapping[int, int] = MappingProxyType({})
COST_COLUMNS = ("blocks", "peak_bytes", "step_s", "predicted_bytes")
MEMORY_MEANINGS: Mapping[str, str] = MappingProxyType(catalogue.DECLARED["snapshot_blocks"]["columns"]["block_memory"])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BlockStudy(StudyResult):
    """Steps of one config with different numbers of blocks.

    Attributes:
        rows: one for each number of blocks; ``MEMORY_MEANINGS`` describes the columns.
        traces: blocks -> memory over the step.
        described: what was measured, in words.
    """

    rows: tuple[dict[str, Any], ...]
    traces: Mapping[int, MemoryFacts]
    described: str
    meanings = MEMORY_MEANINGS

    @property
    def figure(self) -> Figure:
        """Peaks against blocks, and memory over the step with the fewest and the most blocks."""
        costs = [StepCost(*(row[name] for name in COST_COLUMNS)) for row in self.rows]
        cards = [(draw_block_costs(costs), least_memory_caption(costs))]
        for blocks in dict.fromkeys((min(self.traces), max(self.traces))):
            facts, title = self.traces[blocks], f"Memory over a step with {StepCost(blocks, None, None).name}"
            cards.append((memory_figure(facts, title), facts.words))
        return sheet(cards, title=self.described, wide={0})


def estimate_block_memory(
    config: RunConfig,
    blocks: Sequence[int] = (1, 2, 4, 8),
    *,
    graph: DynamicGraph | None = None,
    steps: int = 3,
    predicted: Mapping[int, int] = _UNKNOWN,
) -> BlockStudy:
    """Peak memory and time of a step with each number of blocks, on one rank in this process; nothing is trained.

    Args:
        config: of a system with time blocks; trained on one rank.
        blocks: numbers of blocks, 1 or more.
        graph: the data; by default the config's.
        steps: number of timed steps for each.
        predicted: blocks -> peak bytes, drawn beside the measurements.

    Raises:
        ConfigError: the system has no blocks, or a number of them is invalid.
        LabError: the config cannot be built on the graph, for example because there are more blocks than
            snapshots.

    References: ESDG section 3.1, which reports that memory falls with the number of blocks.
    """
    alone = _on_one_rank(config, blocks, steps)
    graph = load_for(config) if graph is None else graph
    from dtdg_lab.training.block_memory import block_cost

    costs = [block_cost(alone.replace(blocks=count), graph, steps=steps) for count in blocks]
    traces = {cost.blocks: MemoryFacts.read(cost.trace.to_dict()) for cost in costs}
    described = f"{config.model} on {graph.name}, {config.system} on one rank: steps by number of time blocks"
    return BlockStudy(tuple(_row_memory_study(cost, costs[0], predicted) for cost in costs), traces, described)


def _on_one_rank(config: RunConfig, blocks: Sequence[int], steps: int) -> RunConfig:
    named = [name for name in catalogue.names("systems") if "blocks" in _options(name)]
    if config.system not in named:
        raise ConfigError(f"system={config.system!r} has no time blocks. Choose one of {', '.join(named)}.")
    if not blocks or min(blocks) < 1 or steps < 1:
        raise ConfigError(
            f"blocks={tuple(blocks)}, steps={steps}: give at least one number of blocks, each 1 or more, and at least "
            "1 step, as in block_memory(config, (1, 2, 4))."
        )
    # ranks have whole snapshots, not partitions; the number of node partitions stays
    alone = {"row_ranks": 1, "parts": 1} if "row_ranks" in _options(config.system) else {}
    return config.replace(ranks=1, slow_rank=-1, **alone)


def _options(system: str) -> tuple[str, ...]:
    return catalogue.entry("parallel", catalogue.system(system).parts["parallel"]).options


def _row_memory_study(cost: BlockCost, first: BlockCost, predicted: Mapping[int, int]) -> dict[str, Any]:
    largest = float(first.gradient.abs().max()) or 1.0
    return {
        "blocks": cost.blocks,
        "peak_bytes": cost.peak_bytes,
        "predicted_bytes": predicted.get(cost.blocks),
        "step_s": cost.step_s,
        "loss": cost.loss,
        "gradient_difference": float((cost.gradient - first.gradient).abs().max()) / largest,
    }


# ``lab.estimate.volumes``: values sent in a step by snapshot and by hypergraph node partitioning, without any ranks.


MODELS = ("tmgcn", "cdgcn", "evolvegcn-o")
VOLUME_STUDY_RANKS = (2, 4, 16, 64)
SMOOTHED = ("tmgcn", "evolvegcn-o", "evolvegcn-h")  # by the M-transform, or by longer edge life: the same edges
LINK_OUTPUTS = 2  # outputs per node from which the paper's linear head scores pairs
# ESDG's Table 2: ranks -> (snapshot, hypergraph), in billions of values; None: it did not run
PAPER: Mapping[str, Mapping[int, tuple[float, float | None]]] = MappingProxyType(
    {
        "tmgcn": MappingProxyType({4: (5.2, 3.2), 16: (6.5, 6.8), 64: (6.8, 9.5)}),
        "cdgcn": MappingProxyType({4: (13.8, 0.4), 16: (17.3, 0.9), 64: (18.1, 1.2)}),
        "evolvegcn-o": MappingProxyType({4: (0.0, None), 16: (0.0, 5.0), 64: (0.0, 6.9)}),
    }
)
VOLUME_MEANINGS: Mapping[str, str] = MappingProxyType(catalogue.DECLARED["snapshot_blocks"]["columns"]["volumes"])


@dataclass(frozen=True, slots=True)
class VolumeRow:
    """One model on one number of ranks; ``VOLUME_MEANINGS`` describes the numbers."""

    model: str
    ranks: int
    snapshot: int
    snapshot_as_paper: int
    hypergraph: int
    ratio: float | None
    paper_ratio: float | None
    edges: int
    partition_s: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class VolumeStudy(StudyResult):
    """Volumes of one graph by model and number of ranks.

    Attributes:
        outcomes: in the order of models, then ranks.
        collectives: model -> those of a step, ours beside the paper's, with the reason of each difference.
        described: what was counted, in words.
    """

    outcomes: tuple[VolumeRow, ...]
    collectives: Mapping[str, tuple[AllToAllCost, ...]]
    described: str
    meanings = VOLUME_MEANINGS
    digits = 3

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Plain values, one row for each model and number of ranks."""
        return [asdict(each) for each in self.outcomes]

    @property
    def figure(self) -> Figure:
        """Values sent over ranks, by both methods, with a panel for each model, as a plotly figure dict."""
        return forecast_charts.volume_figure(self.rows)

    def collective_rows(self) -> list[dict[str, Any]]:
        """Plain values, a row per model and collective of a step, with the reason of each difference."""
        shown = ("layer", "pass_name", "collective", "width", "paper", "why")
        return [
            {"model": model} | {name: getattr(cost, name) for name in shown}
            for model, some in self.collectives.items()
            for cost in some
        ]

    def conclusion(self) -> str:
        """Where one kind of partition sends less than the other, by model."""
        models = dict.fromkeys(row.model for row in self.outcomes)
        return "\n".join(
            forecast_charts.crossing([row for row in self.rows if row["model"] == name]) for name in models
        )


def estimate_volumes(
    graph: DynamicGraph,
    model: str | Sequence[str] = MODELS,
    ranks: Sequence[int] = VOLUME_STUDY_RANKS,
    *,
    hidden: int = 6,
    layers: int = 2,
    blocks: int = 4,
    smoothing: int = 5,
    pairs: int = LINK_OUTPUTS,
    protocol: str = "warm",
    seed: int = 0,
    imbalance: float = 0.03,
) -> VolumeStudy:
    """Count exactly what a step sends under snapshot and under hypergraph node partitioning, for any numbers of ranks.

    Nothing is trained. Parameter gradients, which both all-reduce, are in neither count.

    Args:
        graph: T snapshots, not smoothed yet.
        model: a name of the catalogue, or several.
        ranks: R; at most N each.
        hidden: H of the model.
        layers: of the model.
        blocks: nb, time blocks for both; at most the number of training snapshots.
        smoothing: snapshots whose edges a smoothed one holds: w of TM-GCN, l of EvolveGCN; others use the graph
            unchanged.
        pairs: outputs per node from which pairs are scored: 2 for the paper's link prediction; 0 if the loss is a
            sum over nodes.
        protocol: whose training snapshots are counted.
        seed: of the partitioner.
        imbalance: allowed for the partitioner.

    Raises:
        ConfigError: a name or value is invalid.
        UnsupportedError: snapshot partitioning does not support the model's recurrence.
        PlanError: there are more ranks than nodes.
        NotAvailableError: mtkahypar is not installed.

    References: ESDG section 6.4, Table 2 (PaToH there, Mt-KaHyPar here).
    """
    models, numbers = [model] if isinstance(model, str) else list(model), list(ranks)
    _check_volume_study(graph, models, numbers, smoothing=smoothing, pairs=pairs, blocks=blocks, protocol=protocol)
    hidden, layers = OPTIONS["hidden"].check(hidden), OPTIONS["layers"].check(layers)
    train = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[protocol]).train
    many, features = min(blocks, len(train)), graph.num_features
    of_model = {of: collectives(of, features, hidden, layers, pairs=pairs, blocks=many) for of in dict.fromkeys(models)}
    plans = [SnapshotBlocks(train, many, count, graph.num_nodes) for count in numbers]
    smooths = [name for name in of_model if name in SMOOTHED]
    smooth = smoothed(graph, smoothing) if smooths else graph
    outcomes = []
    for name, plan in product(of_model, plans):
        on, facts = smooth if name in smooths else graph, model_facts(name, features, hidden, layers)
        made = make_partition("hypergraph", on, plan.ranks, seed=seed, imbalance=imbalance)
        outcomes.append(_row_volume_study(name, on, plan, some=of_model[name], facts=facts, made=made))
    size = f"{graph.num_nodes:,} nodes with {features} features; {layers} layer{'s' * (layers > 1)}, hidden {hidden}"
    described = (
        f"Values sent in one step of {len(train)} snapshots in {many} block{'s' * (many > 1)} of {graph.name!r}, "
        f"{size}; edges live {smoothing} snapshots for {', '.join(smooths) or 'no model'}."
    )
    return VolumeStudy(tuple(outcomes), MappingProxyType(of_model), described)


def _check_volume_study(graph: Any, models: list[str], ranks: list[int], *, protocol: str, **least: int) -> None:
    if not isinstance(graph, DynamicGraph):
        raise ConfigError(f"volumes() got {shortened(graph)}; give a graph, such as lab.datasets.load(name).")
    if protocol not in PROTOCOLS:
        raise UnknownNameError("protocol", protocol, PROTOCOLS)
    if not models or not ranks:
        raise ConfigError(f"models={models}, ranks={ranks}: give at least one of each.")
    for name, value in least.items():
        if value < (name != "pairs"):
            raise ConfigError(f"{name}={value}: at least {int(name != 'pairs')} is required.")


def _row_volume_study(
    name: str,
    graph: DynamicGraph,
    plan: SnapshotBlocks,
    *,
    some: Sequence[AllToAllCost],
    facts: ModelFacts,
    made: Partition,
) -> VolumeRow:
    """Both counts of one model and number of ranks."""
    train, layers = plan.snapshots, len(facts.layer_hops)
    again = facts.memory in RERUN_MEMORIES
    before_last = len(train) - len(plan.block(plan.blocks - 1))
    trained = graph.snapshots[train.start : train.stop]
    halo = between_parts(trained, made, facts.pulls, rerun_before=before_last if again else 0).total
    ours = redistributed(plan, some, layers).total
    return VolumeRow(
        model=name,
        ranks=plan.ranks,
        snapshot=ours,
        snapshot_as_paper=_as_paper(plan, some),
        hypergraph=halo,
        ratio=halo / ours if ours else None,
        paper_ratio=_paper_ratio(name, plan.ranks),
        edges=sum(snapshot.num_edges for snapshot in trained),
        partition_s=made.seconds,
    )


def smoothed(graph: DynamicGraph, window: int) -> DynamicGraph:
    """The graph whose snapshots hold the edges of the last ``window`` snapshots, weighted by their mean.

    Like M-transform and edge life, except for the weights, which no count reads; features stay unchanged.
    """
    snapshots = tuple(averaged(graph.snapshots, window))
    return replace(graph, snapshots=snapshots, name=f"{graph.name}, {window} snapshots smoothed", counts=None)


def _as_paper(plan: SnapshotBlocks, some: Sequence[AllToAllCost]) -> int:
    """Six all-to-all phases per layer over all snapshots, including two of recomputation; four with one block."""
    paid = (cost.paper for cost in some if cost.pass_name != "rerun" or plan.blocks > 1)
    return int(collective_rows(plan, "to_vertices").sum()) * sum(paid)


def _paper_ratio(model: str, ranks: int) -> float | None:
    snapshot, hypergraph = PAPER.get(model, {}).get(ranks, (0.0, None))
    return hypergraph / snapshot if hypergraph is not None and snapshot else None


# Steps of a recorded run of ESDG as the scaling model takes them: what each rank did, and how long its parts took.


WARM_UPS = 1  # steps left out: the first fills caches


def measured_step(
    run: StoredRun, graph: DynamicGraph | None = None, *, cores: int | None = None
) -> tuple[MeasuredStep, StepSettings, SequenceChanges]:
    """The median step of a run, what it computes, and the graph it computes on.

    Where there were more ranks than cores, compute and transfer are the rank's processor seconds, in the proportion of
    their wall times, and nothing else is known. They then hold what exchanges cost the processor, too.

    Args:
        run: of a system whose ranks have whole snapshots, without overlap where there are several.
        graph: its data; loaded where not given.
        cores: of the machine it ran on; those of this process where not given.

    Raises:
        ConfigError: it is another system's, has too few steps, or hides exchanges behind computing.
    """
    described, config = _blocks_event(run), run.config
    ranks = described["ranks"]
    if ranks > 1 and config["overlap"] != "off":
        raise ConfigError(
            f"run {run.id} hides exchanges behind computing, so that neither can be timed alone: record one with "
            "overlap='off'."
        )
    graph = load_for(config) if graph is None else graph
    first, *_, last = described["bounds"]
    changes = delta.sequence_changes(graph.snapshots[first:last])
    settings = _settings(run, described, graph.num_features)
    steps = run.table("steps")
    steps = steps[steps["step"] >= WARM_UPS]
    if steps.empty:
        raise ConfigError(f"run {run.id} has no step after the first: record one of at least {WARM_UPS + 1} epochs.")
    shared = ranks > (len(os.sched_getaffinity(0)) if cores is None else cores)
    by_rank = steps.groupby("rank", sort=True)[list(STEP_SECONDS)].median()
    found = measured_from(run.id, settings.work(changes, ranks), by_rank, shared=shared)
    if ranks == 1 and not shared:
        found = replace(found, communicate_s=0.0)  # alone nothing moves
    return found, settings, changes


def _blocks_event(run: StoredRun) -> dict[str, Any]:
    """What the run's last event ``blocks`` says."""
    described = [event["data"] for event in run.events if event["kind"] == "blocks"]
    if not described or described[-1].get("layout") != "snapshot" or described[-1]["row_ranks"] > 1:
        raise ConfigError(
            f"run {run.id} is of system {run.config.system!r}; steps of esdg, whose ranks have whole snapshots, are "
            "needed. Record one with system='esdg'."
        )
    return described[-1]


def _settings(run: StoredRun, described: dict[str, Any], features: int) -> StepSettings:
    config, last = run.config, run.config.layers - 1
    scored = [
        width
        for layer, pass_name, collective, width in described["collectives"]
        if (layer, pass_name, collective) == (last, "forward", "to_snapshots")
    ]
    return _settings_of(
        config,
        features,
        pairs=scored[0] if scored else 0,
        blocks=described["blocks"],
        streamed=not run.table("transfers").empty,
        difference=config["delta_transfer"],
        reuse=config["halo_reuse"],
    )


# Curves of ``lab.estimate.scaling_forecast``.


def snapshot_rows(facts: Facts, ranks: Sequence[int]) -> list[Row]:
    """Bytes that the busiest rank sends in a step of ESDG: exact, as far as there are nodes for the ranks.

    References: ESDG section 6.4: S N (R - 1) / R rows a collective, whatever the graph.
    """
    settings, changes = settings_of(facts), delta.sequence_changes(facts.snapshots)
    found = []
    for count in ranks:
        if count > facts.graph.num_nodes:
            continue
        try:
            moved = settings.work(changes, count).sent
        except LabError:  # the model's memory cannot be divided by snapshots
            return []
        value = float(moved.sum(axis=1).max())
        found.append(curve_row("rank_bytes", "rows by snapshots (esdg)", count, value, "formula"))
    return found
