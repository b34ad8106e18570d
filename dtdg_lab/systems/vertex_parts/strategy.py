"""Full batches over node partitions: with a halo exchange (ADGNN-T), or with replicated neighbours (PyGT-Dist)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.engine.backprop.reference import HOW, bring
from dtdg_lab.engine.backprop.time_blocks import BlockTimeline, add_gradients_blocks, add_gradients_stepwise
from dtdg_lab.engine.capabilities import DescribesMemory
from dtdg_lab.engine.exchange.exchanger import Exchanger
from dtdg_lab.engine.exchange.halo import HaloSequence, own_nodes
from dtdg_lab.engine.segment import SequenceSegment
from dtdg_lab.engine.strategy import (
    BuildContext,
    RecordRows,
    Step,
    StepMarks,
    StepResult,
    Strategy,
    check_per_vertex,
    loss_sum,
)
from dtdg_lab.engine.views.device_sequence import DeviceSequence
from dtdg_lab.engine.views.replicated_sequence import CachedSequence, cached_sequences
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.records.events import Event
from dtdg_lab.tasks.base import Task
from dtdg_lab.training.block_memory import BlockMemory, planned_blocks
from dtdg_lab.training.partition import blocks_event, partition_event

# Node partitioning with a halo exchange for every aggregation: full batch, no redundant computation.


class HaloStrategy(Strategy, DescribesMemory):
    """One step per epoch: each rank computes its own nodes in the training split, with the loss at every snapshot.

    The parts of a rank are merged, and only rows of other ranks are exchanged. Losses and gradients equal those of
    :class:`dtdg_lab.systems.single.strategy.SingleStrategy` for every partition and every kind of memory.

    Args:
        context: the run's model, graph, task and settings.
        sequence: the own nodes of this rank (``HaloSequence``), or all nodes with one rank.
        exchanger: exchanges rows for the sequence.
        plan: time blocks for gradient checkpointing; every rank has all snapshots of a block.
        block_memory: memory of a step by number of blocks, if it was measured.

    References: ADGNN-T as DynaHB section 6.1 describes it (node parts, communication, no redundant computation).
    """

    def __init__(
        self,
        context: BuildContext,
        sequence: DeviceSequence | HaloSequence,
        exchanger: Exchanger,
        *,
        plan: SnapshotBlocks,
        block_memory: BlockMemory | None = None,
    ) -> None:
        self.context, self.block_memory = context, block_memory
        self._run = SequenceSegment(context.model, sequence, context.task, plan.snapshots, "all")
        self._marks: StepMarks = StepMarks()
        self._plan, self._sequence = plan, sequence
        self._exchanger = exchanger
        self._bring()  # building the indices of exchanges counts towards the time of the layout

    def epoch(self, epoch: int) -> Sequence[Step]:
        """Return the only step, the same in every epoch."""
        return (Step(0, (0,) if self.context.group.rank == 0 else (), 1),)

    def compute(self, work: Step, marks: StepMarks) -> StepResult:
        """Add this rank's share of the loss and of the gradients of the whole sequence."""
        run, self._exchanger.marks, self._marks = self._run, marks, marks
        marks("batch")
        self._bring()
        marks("transfer")
        loss = loss_sum([self._add_gradients()], self._sequence.device)
        return StepResult(loss, len(work.groups), run.own * len(run.snapshots))

    def rows(self) -> RecordRows:
        """Return the rows and bytes sent to each rank, and forget them."""
        return {"links": [*self._exchanger.drain()], "exchanges": self._exchanger.times.drain()}

    def _bring(self) -> None:
        """Prepare the views of all snapshots, or of each block."""
        run, plan = self._run, self._plan
        if plan.blocks == 1 or run.model.memory != "per_vertex":
            bring(run)
            return
        run.task.prepare(run.at)
        for number in range(plan.blocks):
            self._sequence.stacks(plan.block(number), 0)

    def _add_gradients(self) -> Tensor:
        run, plan = self._run, self._plan
        if plan.blocks == 1 or run.model.memory in (
            "weights",
            "none",
        ):  # these keep one snapshot's activations in any case
            self._turned(0, "forward")
            return HOW[run.model.memory](run)
        if run.model.memory == "per_vertex":
            timeline = BlockTimeline(plan, 0, self._sequence, run, bring=lambda own: None, moves=None, one_by_one=False)
            timeline.marks, timeline.turned = self._marks, self._turned
            return add_gradients_blocks(run, timeline)
        return add_gradients_stepwise(run, [plan.block(number) for number in range(plan.blocks)], self._begin)

    def _begin(self, number: int, pass_name: str) -> None:
        self._marks.block(number, pass_name)
        self._turned(number, pass_name)

    def _turned(self, number: int, pass_name: str) -> None:
        if pass_name != "backward":
            self._exchanger.forward_pass = pass_name

    # plans

    @property
    def plan_kinds(self) -> tuple[str, ...]:  # type: ignore[override]
        """Kinds of its plans; with ``blocks`` if there are several, or if memory determines their number."""
        return ("partition", "blocks") if self._names_blocks else ("partition",)

    @property
    def plan(self) -> SnapshotBlocks:
        """The blocks of time."""
        return self._plan

    @property
    def _names_blocks(self) -> bool:
        return self._plan.blocks > 1 or self.context.config["blocks"] != 1

    def plan_events(self) -> list[Event]:
        """Return the partition, and the blocks of time."""
        context, memory = self.context, self.block_memory
        events: list[Event] = [partition_event(context, blocks=self._plan)]
        if self._names_blocks:
            peak = None if memory is None else memory.peak_bytes(self._plan.blocks)
            events.append(
                blocks_event(
                    context.config,
                    context.graph,
                    self._plan,
                    context.task,
                    partition=context.partition,
                    peak_bytes=peak,
                )
            )
        return events

    def probes_after(self, previous: Strategy) -> bool:
        """Return True if the blocks of time differ from the previous strategy's."""
        if not self._names_blocks:
            return False
        return not (
            isinstance(previous, HaloStrategy)
            and previous.plan == self._plan
            and previous.context.config.system == self.context.config.system
        )


# Node parts with copies of all nodes that their layers reach: each trains alone, and only gradients are exchanged.


class ReplicatedStrategy(Strategy):
    """One step per epoch: each part runs the whole training split, with the loss of its own nodes.

    The shares of all parts sum to the result of strategy ``single``: exactly for memories ``per_vertex``, ``weights``
    and ``none``. For ``weights_from_data`` each part picks its own best nodes (approximation); for ``neighbourhood``
    state from beyond the layers' hops is cut off (truncation).

    Args:
        model: any model.
        sequences: sequences of the parts of this rank.
        task: the training task.
        train: the labelled snapshots of the training split.
        counts_group: True on the one rank that counts the group that all ranks compute together.
        describe: returns the event of the partition.

    Raises:
        UnsupportedError: the task needs all nodes at once.

    References: DynaHB section 4.1 (L-layer neighbourhoods cached on every worker); section 6.1, baseline PyGT-Dist.
    """

    def __init__(
        self,
        model: DynamicModel,
        sequences: Sequence[CachedSequence],
        task: Task,
        train: range,
        *,
        counts_group: bool,
        describe: Callable[[], Event] | None = None,
    ) -> None:
        check_per_vertex(task, "on layout cached_vertex", ", and each part computes its own alone")
        self._model, self._counts_group, self._describe = model, counts_group, describe
        self._runs = [SequenceSegment(model, sequence, task, train, "all") for sequence in sequences]

    def epoch(self, epoch: int) -> Sequence[Step]:
        """Return the only step, the same in every epoch."""
        return (Step(0, (0,) if self._counts_group else (), 1),)

    def compute(self, work: Step, marks: StepMarks) -> StepResult:
        """Add the gradients of this rank's parts, one part after another."""
        marks("batch")
        for run in self._runs:
            bring(run)
        marks("transfer")
        losses = [HOW[self._model.memory](run) for run in self._runs]
        return StepResult(
            loss_sum(losses, self._runs[0].sequence.device),
            len(work.groups),
            sum(run.own * len(run.snapshots) for run in self._runs),
        )

    plan_kinds = ("partition",)

    def plan_events(self) -> list[Event]:
        """Return the partition."""
        return [] if self._describe is None else [self._describe()]


def build_halo(context: BuildContext) -> HaloStrategy:
    """Build the strategy of node partitions that exchange halo rows; collective.

    Raises:
        LabError: the blocks of time do not fit the snapshots or the memory.
    """

    def make(plan: SnapshotBlocks, block_memory: BlockMemory | None = None) -> HaloStrategy:
        exchanger = Exchanger(context.group)
        return HaloStrategy(context, own_nodes(context, exchanger), exchanger, plan=plan, block_memory=block_memory)

    return make(*planned_blocks(context, by_rows=context.group.size, make=make))


def build_replicated(context: BuildContext) -> ReplicatedStrategy:
    """Build the strategy of node partitions with copies of their neighbours.

    Raises:
        UnsupportedError: the copies do not fit their budget.
    """
    assert context.partition is not None
    sequences = cached_sequences(
        context.sequence.graph,
        context.partition,
        context.parts,
        context.model,
        context.train,
        cache_gib=context.config["cache_gib"],
        settings=context.sequence.settings,
    )
    return ReplicatedStrategy(
        context.model,
        sequences,
        context.task,
        context.train,
        counts_group=context.group.rank == 0,
        describe=partial(partition_event, context),
    )
