"""ESDG: ranks have whole snapshots for the spatial part and some nodes for the temporal part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.plans import Partition, SnapshotBlocks
from dtdg_lab.core.units import format_bytes
from dtdg_lab.engine.backprop import evolving_weights as evolved
from dtdg_lab.engine.backprop import time_blocks as blocks
from dtdg_lab.engine.backprop.evolving_weights import SnapshotSummaries, StateRelay
from dtdg_lab.engine.capabilities import DescribesMemory, ObservesSteps, Replannable, StepOutcome
from dtdg_lab.engine.exchange.exchanger import Exchanger
from dtdg_lab.engine.exchange.halo import HaloSequence
from dtdg_lab.engine.exchange.overlap import OverlapTrial
from dtdg_lab.engine.record_rows import ExchangeRow
from dtdg_lab.engine.segment import SequenceSegment
from dtdg_lab.engine.strategy import BuildContext, RecordRows, Step, StepMarks, StepResult, Strategy, loss_sum
from dtdg_lab.engine.views.device_sequence import DeviceSequence
from dtdg_lab.engine.views.sequence import NumberedSequence, SnapshotSequence
from dtdg_lab.graphs.delta import kept_bytes
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.records.events import Event, OverlapChosen
from dtdg_lab.systems.snapshot_blocks.redistribution import Redistribution
from dtdg_lab.training.block_memory import BlockMemory, planned_blocks
from dtdg_lab.training.partition import blocks_event


def is_streamed(config: RunConfig, graph: DynamicGraph, plan: SnapshotBlocks, *, peak_bytes: float = 0.0) -> bool:
    """Return True if graphs are transferred for every block, instead of staying on the device with their operators.

    Args:
        config: the run's settings; ``graph_storage="auto"`` keeps graphs that fit in ``memory_gib``.
        graph: the run's data.
        plan: the snapshots and nodes of each rank.
        peak_bytes: peak of a step, if ``memory_gib`` limits it as well.
    """
    if plan.blocks == 1 or plan.row_ranks > 1:
        return False
    if config["graph_storage"] != "auto":
        return bool(config["graph_storage"] == "streamed")
    operators = kept_bytes(graph, plan, np.dtype(config["dtype"]).itemsize)
    return operators + peak_bytes > config["memory_gib"] * 2**30


class SnapshotBlockStrategy(Strategy, Replannable, ObservesSteps, DescribesMemory):
    """One step per epoch: the whole training split in blocks of time, with the loss at every snapshot. Collective.

    Losses and gradients equal those of :class:`dtdg_lab.systems.single.SingleStrategy` for any blocks and ranks.

    Args:
        context: the run's model, graph, task and settings. The model has any memory but ``neighbourhood``, whose
            spatial part reads the state of the previous snapshot. With option ``overlap`` rows are sent piece by piece
            while more are computed. With ``halo_reuse`` rows that depend on no parameter are sent once and kept.
        plan: the snapshots and nodes of each rank; its snapshots are the labelled ones of the training split.
        snapshots: this rank's rows of the graph: all of them, or a share if ranks split snapshots by rows.
        halo: exchanger of ranks that split snapshots; None if none do.
        block_memory: memory of a step by number of blocks, if it was measured.

    References: ESDG sections 3 and 4; section 6.5 for two points it leaves open: overlap, and snapshots split by rows.
    """

    def __init__(
        self,
        context: BuildContext,
        plan: SnapshotBlocks,
        snapshots: DeviceSequence | HaloSequence,
        *,
        halo: Exchanger | None,
        block_memory: BlockMemory | None = None,
    ) -> None:
        self.context, self.block_memory = context, block_memory
        model, group = context.model, context.group
        overlap, reuse = context.config["overlap"], context.config["halo_reuse"]
        self._plan, self._rank, self._snapshots, self._halo = plan, group.rank, snapshots, halo
        _, column = group.split(plan.row_ranks)
        ranks = plan.column(group.rank)
        evolving = "weights" if model.facts.relayed else "summaries"
        self._moved, self._summaries = Exchanger(column, ranks=ranks), Exchanger(column, name=evolving, ranks=ranks)
        through_time = model.memory == "per_vertex"
        constant = model.facts.spatial[0].constant
        self._moves = moves = None
        self._trial: OverlapTrial | None = None
        if plan.groups > 1:
            self._moves = moves = Redistribution(
                plan,
                group.rank,
                column,
                self._moved,
                snapshots.dtype,
                snapshots.device,
                snapshots.graph.num_features,
                overlap == "on",
                reuse and constant,
                snapshots.collective,
            )
            if overlap == "auto" and through_time:
                self._trial = OverlapTrial(group, snapshots.device)
        trained: SnapshotSequence = snapshots
        if moves is not None and through_time:  # the loss is over the nodes of this rank's temporal part
            chunk = plan.chunk(group.rank)
            trained = NumberedSequence(snapshots, torch.arange(chunk.start, chunk.stop, device=snapshots.device))
        self._run = SequenceSegment(model, trained, context.task, plan.snapshots, "all")
        self._gather = SnapshotSummaries(plan, ranks, self._summaries)
        self._relay = StateRelay(plan, ranks, group.rank, self._summaries)
        self._timeline = blocks.BlockTimeline(
            plan,
            group.rank,
            snapshots,
            self._run,
            bring=self._bring,
            moves=moves,
            one_by_one=model.memory == "weights_from_data",
        )
        self._timeline.turned = self._turned

    def epoch(self, epoch: int) -> Sequence[Step]:
        """Return the only step, the same in every epoch."""
        return (Step(0, (0,) if self._rank == 0 else (), 1),)

    def compute(self, work: Step, marks: StepMarks) -> StepResult:
        """Add this rank's share of the loss and of the gradients of the whole sequence."""
        run = self._run
        self._moved.marks = self._summaries.marks = self._timeline.marks = marks
        if self._halo is not None:
            self._halo.marks = marks
        marks("batch")
        run.task.prepare(run.at)
        marks("transfer")
        loss = loss_sum([self._add_gradients()], self._snapshots.device)
        snapshots = sum(len(self._plan.own(block, self._rank)) for block in range(self._plan.blocks))
        return StepResult(loss, len(work.groups), snapshots * self._snapshots.own)

    def rows(self) -> RecordRows:
        """Return the rows sent to each rank, seconds of exchanges and transfers of graphs, and forget them."""
        exchangers = [self._moved, self._summaries, *([] if self._halo is None else [self._halo])]
        links = [link for exchanger in exchangers for link in exchanger.drain()]
        read_times = [exchanger.times.drain() for exchanger in exchangers]

        def exchanges() -> list[ExchangeRow]:
            return [row for read in read_times for row in read()]

        feed = self._snapshots.feed if isinstance(self._snapshots, DeviceSequence) else None
        return {"links": links, "exchanges": exchanges, "transfers": [] if feed is None else [*feed.drain()]}

    def _add_gradients(self) -> Tensor:
        memory = self._run.model.memory
        if memory == "per_vertex":
            return blocks.add_gradients_blocks(self._run, self._timeline)
        if memory == "weights_from_data":
            return evolved.add_gradients_from_data(self._run, self._timeline, self._gather, self._relay)
        return evolved.add_gradients_evolved(self._run, self._timeline)

    def _bring(self, snapshots: range) -> None:
        if isinstance(self._snapshots, DeviceSequence):
            self._snapshots.bring(snapshots)

    def _turned(self, number: int, pass_name: str) -> None:
        if self._halo is not None and pass_name != "backward":
            self._halo.forward_pass = pass_name

    # plans

    plan_kinds = ("blocks",)

    @property
    def plan(self) -> SnapshotBlocks:
        """The blocks of time."""
        return self._plan

    def plan_events(self) -> list[Event]:
        """Return the blocks of time, and the choice of overlap if a trial made it."""
        config, graph, memory = self.context.config, self.context.graph, self.block_memory
        peak = None if memory is None else memory.peak_bytes(self._plan.blocks)
        note = ""
        if config["graph_storage"] == "auto" and self._plan.blocks > 1 and self._plan.row_ranks == 1:
            size = format_bytes(kept_bytes(graph, self._plan, np.dtype(config["dtype"]).itemsize))
            streamed = isinstance(self._snapshots, DeviceSequence) and self._snapshots.feed is not None
            storage = "do not fit, so that graphs are transferred for every block" if streamed else "stay on the device"
            note = f"operators of {size} {storage} (memory_gib={config['memory_gib']:g})"
        events: list[Event] = [blocks_event(config, graph, self._plan, self.context.task, peak_bytes=peak, graphs=note)]
        if self._trial is not None and self._trial.chosen is not None:
            events.append(self._trial.chosen)
        return events

    @property
    def epoch_changes(self) -> dict[str, Any]:
        """The setting that starts a trial of overlap."""
        return {} if self._trial is None else {"overlap": "auto"}

    def on_step_end(self, outcome: StepOutcome) -> None:
        """Add the step to the timed epoch."""
        if self._trial is not None and self._trial.chosen is None:
            self._trial.add(outcome.seconds)

    def on_epoch_end(self) -> tuple[str, ...]:
        """Set the overlap of the next epoch from the trial; collective when the trial chooses."""
        assert self._trial is not None and self._moves is not None
        if self._trial.chosen is not None:
            return ()
        self._trial.end_epoch()
        self._moves.overlap = self._trial.on
        return () if self._trial.chosen is None else (self._trial.chosen.kind,)

    def adopt_plan(self, recorded: Mapping[str, Any]) -> tuple[str, ...]:
        """Overlap exchanges as in the replayed run, without measuring again."""
        assert self._trial is not None and self._moves is not None
        choice = OverlapChosen.read(recorded)
        self._trial.choose(choice)
        self._moves.overlap = choice.on
        return (choice.kind,)

    def probes_after(self, previous: Strategy) -> bool:
        """Return True if the blocks of time differ from the previous strategy's."""
        return not (
            isinstance(previous, SnapshotBlockStrategy)
            and previous.plan == self._plan
            and previous.context.config.system == self.context.config.system
        )


def build(context: BuildContext) -> SnapshotBlockStrategy:
    """Build the strategy of snapshots over ranks in blocks of time; collective.

    Raises:
        LabError: the blocks of time do not fit the snapshots, the ranks or the memory.
    """
    config = context.config
    make = partial(_build_for_plan, context, streamed=config["graph_storage"] != "resident")
    plan, memory = planned_blocks(context, by_rows=config["row_ranks"], make=make)
    peak = 0.0 if memory is None else memory.peak_bytes(plan.blocks)
    return _build_for_plan(context, plan, memory, streamed=is_streamed(config, context.graph, plan, peak_bytes=peak))


def _build_for_plan(
    context: BuildContext, plan: SnapshotBlocks, block_memory: BlockMemory | None = None, *, streamed: bool
) -> SnapshotBlockStrategy:
    config, sequence = context.config, context.sequence
    snapshots: DeviceSequence | HaloSequence = sequence
    halo = None
    if plan.row_ranks > 1:
        row_group, _ = context.group.split(plan.row_ranks)
        first = (
            context.group.rank - context.group.rank % plan.row_ranks
        )  # first of the ranks that share these snapshots
        halo = Exchanger(row_group, ranks=range(first, first + plan.row_ranks))
        counts = [len(plan.rows(rank)) for rank in range(plan.row_ranks)]
        owner = np.repeat(np.arange(plan.row_ranks), counts).astype(np.int32)
        snapshots = HaloSequence(
            sequence.graph,
            Partition(owner, plan.row_ranks),
            halo,
            row_group,
            sequence.settings,
            directions=context.model.facts.directions,
            reuse=config["halo_reuse"],
        )
    elif plan.blocks > 1 and streamed:  # the device has one block's snapshots at a time
        snapshots = sequence.fed(difference=config["delta_transfer"])
    elif plan.blocks > 1:
        sequence.keep_views(int(config["memory_gib"] * 2**30))
    return SnapshotBlockStrategy(context, plan, snapshots, halo=halo, block_memory=block_memory)
