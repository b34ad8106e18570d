"""Whole snapshots on each rank for what mixes neighbours, some nodes for what runs through time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dtdg_lab.core.plans import Partition, SnapshotBlocks
from dtdg_lab.core.units import format_bytes
from dtdg_lab.engine.async_overlap import OverlapTrial
from dtdg_lab.engine.backprop import evolving_weights as evolved
from dtdg_lab.engine.backprop import time_blocks as blocks
from dtdg_lab.engine.backprop.evolving_weights import SnapshotSummaries, StateRelay
from dtdg_lab.engine.capabilities import DescribesMemory, ObservesSteps, Replannable, StepOutcome
from dtdg_lab.engine.graph_view import DeviceSequence, NumberedSequence, SnapshotSequence
from dtdg_lab.engine.halo_exchange import Exchanger, HaloSequence
from dtdg_lab.engine.segment import SequenceSegment
from dtdg_lab.engine.strategy import BuildContext, RecordRows, Step, StepMarks, StepResult, Strategy
from dtdg_lab.graphs.delta import kept_bytes
from dtdg_lab.records.events import Event, OverlapChosen
from dtdg_lab.systems.snapshot_blocks.graph_storage import is_streamed
from dtdg_lab.systems.snapshot_blocks.redistribution import Redistribution
from dtdg_lab.training.block_memory import BlockMemory, planned_blocks
from dtdg_lab.training.partition import blocks_event


class SnapshotBlockStrategy(Strategy, Replannable, ObservesSteps, DescribesMemory):
    """One step an epoch: the whole training split in blocks of time, loss at every snapshot. Collective.

    Losses and gradients are those of :class:`dtdg_lab.systems.single.SingleStrategy`, whatever the blocks and ranks.

    Args:
        context: what it is built from. Its model is any but of ``neighbourhood`` memory, whose spatial part reads what
            the snapshot before left. Option ``overlap`` says whether rows travel piece by piece while more are
            computed, ``halo_reuse`` whether rows that depend on no parameter are moved once and kept.
        plan: the snapshots and nodes of each rank; its snapshots are the labelled ones of the training split.
        snapshots: this rank's rows of the graph: all of them, or a share where ranks split snapshots by rows.
        halo: what ranks that split snapshots exchange rows by; None where none do.
        block_memory: memory of a step by the number of blocks, where that was measured.

    References: ESDG sections 3 and 4; section 6.5 for what it leaves open: overlap, and snapshots split by rows.
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
        self.context, self._block_memory = context, block_memory
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
        of_run: SnapshotSequence = snapshots
        if moves is not None and through_time:  # the loss is taken over the nodes that run through time here
            chunk = plan.chunk(group.rank)
            of_run = NumberedSequence(snapshots, torch.arange(chunk.start, chunk.stop, device=snapshots.device))
        self._run = SequenceSegment(model, of_run, context.task, plan.snapshots, "all")
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
        """The one step, the same every epoch."""
        return (Step(0, (0,) if self._rank == 0 else (), 1),)

    def compute(self, work: Step, marks: StepMarks) -> StepResult:
        """This rank's share of the loss and of the gradients of the whole sequence."""
        run = self._run
        self._moved.marks = self._summaries.marks = self._timeline.marks = marks
        if self._halo is not None:
            self._halo.marks = marks
        marks("batch")
        run.task.prepare(run.at)
        marks("transfer")
        loss = float(self._add_gradients())
        own = sum(len(self._plan.own(block, self._rank)) for block in range(self._plan.blocks))
        return StepResult(loss, len(work.groups), own * self._snapshots.own)

    def rows(self) -> RecordRows:
        """Return and forget the rows sent to each rank, seconds of exchanges and graphs brought."""
        exchangers = [self._moved, self._summaries, *([] if self._halo is None else [self._halo])]
        links = [link for of in exchangers for link in of.drain()]
        exchanges = [row for of in exchangers for row in of.times.drain()]
        feed = self._snapshots.feed if isinstance(self._snapshots, DeviceSequence) else None
        return {"links": links, "exchanges": exchanges, "transfers": [] if feed is None else [*feed.drain()]}

    def _add_gradients(self) -> Tensor:
        memory = self._run.model.memory
        if memory == "per_vertex":
            return blocks.add_gradients_blocks(self._run, self._timeline)
        if memory == "weights_from_data":
            return evolved.add_gradients_from_data(self._run, self._timeline, self._gather, self._relay)
        return evolved.add_gradients_evolved(self._run, self._timeline)

    def _bring(self, own: range) -> None:
        if isinstance(self._snapshots, DeviceSequence):
            self._snapshots.bring(own)

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
        """The blocks of time."""
        of, memory = self.context, self._block_memory
        peak = None if memory is None else memory.peak_bytes(self._plan.blocks)
        note = ""
        if of.config["graph_storage"] == "auto" and self._plan.blocks > 1 and self._plan.row_ranks == 1:
            size = format_bytes(kept_bytes(of.graph, self._plan, np.dtype(of.config["dtype"]).itemsize))
            streamed = isinstance(self._snapshots, DeviceSequence) and self._snapshots.feed is not None
            how = "do not fit, so that graphs are transferred for every block" if streamed else "stay on the device"
            note = f"operators of {size} {how} (memory_gib={of.config['memory_gib']:g})"
        described: list[Event] = [blocks_event(of.config, of.graph, self._plan, of.task, peak_bytes=peak, graphs=note)]
        if self._trial is not None and self._trial.chosen is not None:
            described.append(self._trial.chosen)
        return described

    @property
    def epoch_changes(self) -> dict[str, Any]:
        """The setting that asks for a trial."""
        return {} if self._trial is None else {"overlap": "auto"}

    def on_step_end(self, outcome: StepOutcome) -> None:
        """Add the step to the epoch that is timed."""
        if self._trial is not None and self._trial.chosen is None:
            self._trial.add(outcome.seconds)

    def on_epoch_end(self) -> tuple[str, ...]:
        """Overlap exchanges in the next epoch as the trial has it; collective where it chooses."""
        assert self._trial is not None and self._moves is not None
        if self._trial.chosen is not None:
            return ()
        self._trial.end_epoch()
        self._moves.overlap = self._trial.on
        return () if self._trial.chosen is None else (self._trial.chosen.kind,)

    def adopt_plan(self, recorded: Mapping[str, Any]) -> tuple[str, ...]:
        """Overlap exchanges as in the run that is replayed, whose choice is not measured again."""
        assert self._trial is not None and self._moves is not None
        chosen = OverlapChosen.read(recorded)
        self._trial.choose(chosen)
        self._moves.overlap = chosen.on
        return (chosen.kind,)

    def probes_after(self, before: Strategy) -> bool:
        """Where the blocks of time are others than before."""
        return not (
            isinstance(before, SnapshotBlockStrategy)
            and before.plan == self._plan
            and before.context.config.system == self.context.config.system
        )


def build(of: BuildContext) -> SnapshotBlockStrategy:
    """Snapshots over ranks in blocks of time; collective.

    Raises:
        LabError: blocks of time do not fit the snapshots, the ranks or the memory.
    """
    config = of.config
    measured = partial(_of_plan, of, streamed=config["graph_storage"] != "resident")
    plan, memory = planned_blocks(of, by_rows=config["row_ranks"], make=measured)
    peak = 0.0 if memory is None else memory.peak_bytes(plan.blocks)
    return _of_plan(of, plan, memory, streamed=is_streamed(config, of.graph, plan, peak_bytes=peak))


def _of_plan(
    of: BuildContext, plan: SnapshotBlocks, block_memory: BlockMemory | None = None, *, streamed: bool
) -> SnapshotBlockStrategy:
    config = of.config
    snapshots: DeviceSequence | HaloSequence = of.sequence
    halo = None
    if plan.row_ranks > 1:
        row_group, _ = of.group.split(plan.row_ranks)
        first = of.group.rank - of.group.rank % plan.row_ranks  # of the ranks that share this one's snapshots
        halo = Exchanger(row_group, ranks=range(first, first + plan.row_ranks))
        counts = [len(plan.rows(rank)) for rank in range(plan.row_ranks)]
        owner = np.repeat(np.arange(plan.row_ranks), counts).astype(np.int32)
        snapshots = HaloSequence(
            of.sequence.graph,
            Partition(owner, plan.row_ranks),
            halo,
            row_group,
            of.sequence.settings,
            directions=of.model.facts.directions,
            reuse=config["halo_reuse"],
        )
    elif plan.blocks > 1 and streamed:  # those of one block at a time are here
        snapshots = of.sequence.fed(difference=config["delta_transfer"])
    elif plan.blocks > 1:
        of.sequence.keep_spaces(int(config["memory_gib"] * 2**30))
    return SnapshotBlockStrategy(of, plan, snapshots, halo=halo, block_memory=block_memory)
