"""The base of all strategies: their interface, snapshot sequences, segments, and threads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.models.base import DynamicModel, State
from dtdg_lab.tasks.base import Rows, Task

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.core.plans import Partition
    from dtdg_lab.distributed.gradients import FlatGradients
    from dtdg_lab.distributed.group import Group
    from dtdg_lab.engine.graph_view import DeviceSequence, SnapshotSequence, SnapshotView
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.records.events import Event

# The interface of a strategy.


class StepMarks:
    """Takes note of the boundaries between the phases of a step; this one records nothing."""

    def __call__(self, phase: str) -> None:
        """The time since the last mark was this phase."""

    def exchange(self, wait_s: float) -> None:
        """The time since the last mark was an exchange, whose first ``wait_s`` seconds were waiting."""

    def block(self, number: int, pass_name: str) -> None:
        """Time block ``number`` begins, in the pass ``forward``, ``rerun`` (recompute) or ``backward``."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of this rank: the groups of its parts, and the number of groups of all ranks.

    ``snapshots`` is the number of snapshots that it computes, if steps differ in it.
    """

    iteration: int
    groups: tuple[int, ...]
    total_groups: int
    snapshots: int = 0


@dataclass(frozen=True, slots=True)
class StepResult:
    """A rank's result of a step: the sum of its groups' mean losses, and its amount of work.

    A group shared by several ranks is counted by one of them, and each adds its share of the group's loss.
    ``vertex_snapshots`` counts the nodes of every snapshot of every group, whether or not the loss uses them.
    """

    loss_sum: float
    groups: int
    vertex_snapshots: int


RECORDED_PLAN = "recorded_plan"  # in the state of a strategy: the plan that a run which is replayed had there


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What is known of a step that is over, as far as a strategy may learn from it.

    Attributes:
        seconds: of the whole step.
        communicate_s: of the exchange of gradients, without waiting.
        energy_j: joules of this rank, where they are known.
        rows: what the strategy recorded of the step, by table.
    """

    seconds: float
    communicate_s: float
    energy_j: float | None
    rows: Mapping[str, Sequence[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What strategies are built from.

    Attributes:
        config: the run's settings.
        graph: the data, whole; plans may read its edges, never its labels.
        model: on this rank's device.
        sequence: all nodes, with the labels of the test split sealed.
        task: what is predicted.
        train: the labelled snapshots of the training split.
        validation: the snapshots of the validation split.
        group: the ranks.
        device: where this rank computes.
        partition: of the nodes into P parts, where the system has one.
        state: of an earlier strategy, from a checkpoint, to be restored as far as it fits.
    """

    config: RunConfig
    graph: DynamicGraph
    model: DynamicModel
    sequence: DeviceSequence
    task: Task
    train: range
    validation: range
    group: Group
    device: str
    partition: Partition | None
    state: Mapping[str, Any]

    @property
    def parts(self) -> range:
        """The P / R consecutive parts of a plan that this rank executes."""
        share = self.config.parts // self.group.size
        return range(self.group.rank * share, (self.group.rank + 1) * share)


class Strategy:
    """How training is laid over processes; hooks that a strategy does not need do nothing.

    Steps of an epoch are a pure function of config and epoch.

    Attributes:
        context: what it was built from; set by :meth:`dtdg_lab.systems.base.SystemFamily.build`.
        plan_kinds: the kinds of the events that :meth:`plan_events` may give.
        probed_plans: those of them that say more once memory has been probed, and are then reported again.
        fails_by_rank: whether :meth:`validate_settings` may refuse on some ranks only.
        share: of all training nodes, those of this rank.
    """

    context: BuildContext
    plan_kinds: tuple[str, ...] = ()
    probed_plans: tuple[str, ...] = ()
    fails_by_rank = False
    share = 1.0

    # steps

    def epoch(self, epoch: int) -> Sequence[Step]:
        """This rank's steps; every rank has the same number."""
        raise NotImplementedError

    def compute(self, step: Step, marks: StepMarks) -> StepResult:
        """Forward and backward of one step, adding to the parameters' gradients.

        It marks the ends of ``batch`` and ``transfer``, and every exchange of rows.
        """
        raise NotImplementedError

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """What was recorded since the last call, by table: its columns after ``epoch``."""
        return {}

    def probe_steps(self) -> Iterator[Callable[[StepMarks], Any]]:
        """Steps whose peak memory is measured, the largest that there may be; they leave no record.

        Gradients are cleared after each. Training runs on afterwards as if they had not been computed.
        """
        largest = max(self.epoch(0), key=lambda step: (len(step.groups), step.snapshots))
        yield partial(self.compute, largest)
        self.rows()

    def probes_after(self, before: Strategy) -> bool:
        """Whether peak memory is measured again where this strategy has replaced another one during a run."""
        return False

    # from building to closing

    def setup(self, gradients: FlatGradients) -> None:
        """Finish building once gradients exist, such as what must be measured; collective."""

    def slowable_links(self, group: Group) -> Any:
        """Links of its own that emulated congestion makes slow; None where all rows go by the group. Collective."""
        return None

    def open(self) -> None:
        """Start what runs beside training."""

    def close(self) -> None:
        """End what runs beside training; a second call does nothing."""

    @property
    def children(self) -> tuple[int, ...]:
        """Process numbers of what works for this rank, whose energy counts as its own."""
        return ()

    # around a step

    def on_step_start(self, step: int) -> None:
        """What is computed next is this step of the run."""

    def on_step_end(self, outcome: StepOutcome) -> None:
        """A step is over and recorded."""

    @property
    def requested_choice(self) -> int:
        """The number that rank 0 sends with its control state, which all ranks then receive."""
        return 0

    def receive_choice(self, choice: int) -> None:
        """Use what rank 0 chose, from the next step on."""

    # decisions while training

    @property
    def decides(self) -> bool:
        """Whether this rank takes decisions that are recorded in ``decisions``."""
        return False

    def decide_after_step(self, loss: float | None, seconds: float) -> tuple[Any, ...] | None:
        """The row of a decision after a step: columns of ``decisions`` after ``epoch``; None where none is due.

        Args:
            loss: of the step on this rank; None where it had no labels.
            seconds: the step took.
        """
        return None

    def decide_after_evaluation(self, validation_loss: float | None) -> tuple[Any, ...] | None:
        """The same after an evaluation of the validation split."""
        return None

    def repeat_decision(self, action: Any) -> None:
        """Take the decision of a run that is replayed."""

    def replay_draws(self, drawn: Mapping[tuple[int, int], Any]) -> None:
        """Use the batches of a run that is replayed, by step and part."""

    def tune(self, epoch: int, config: RunConfig, components: Any) -> Any:
        """The decision of a tuner at the end of an epoch, the same on every rank; None where none is due. Collective.

        Args:
            epoch: the one that ended.
            config: the settings now.
            components: what trains (:class:`dtdg_lab.training.build.RunComponents`).
        """
        return None

    # plans

    def plan_events(self) -> list[Event]:
        """Events that describe the plans it trains by; called on rank 0."""
        return []

    @property
    def epoch_changes(self) -> dict[str, Any]:
        """The settings for whose sake :meth:`on_epoch_end` may change the plan; empty where it never does."""
        return {}

    def on_epoch_end(self) -> tuple[str, ...]:
        """Adopt another plan where the epoch that ended asks for one; collective.

        Returns:
            The kinds of plan events that changed.

        Raises:
            PlanError: another plan was due and could not be made; the old one stays.
        """
        return ()

    def adopt_plan(self, recorded: Mapping[str, Any]) -> tuple[str, ...]:
        """Use the plan of a run that is replayed; the kinds of plan events that changed."""
        return ()

    # live settings and state

    def validate_settings(self, config: RunConfig) -> str:
        """Why it cannot train under a config that differs in live settings only; empty where it can."""
        return ""

    def apply_settings(self, config: RunConfig) -> None:
        """Train under a config that differs in live settings only, from the next step on."""

    def settings_events(self, changes: Collection[str]) -> list[Event]:
        """Events that record the effect of changed settings."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """What it has measured and decided, for a checkpoint; without what is carried from step to step."""
        return {}

    @property
    def at_rest(self) -> bool:
        """Whether the next step needs nothing of the last one but the parameters."""
        return True

    def carried_state(self) -> dict[str, Any]:
        """What is carried from the last step to the next one, of all ranks, for a checkpoint; collective."""
        return {}

    def load_carried(self, state: Mapping[str, Any]) -> None:
        """Restore what a checkpoint carried, where it did."""


def check_per_vertex(task: Task, where: str, why: str = "", instead: str = "system='adgnn-t' (halo_vertex)") -> None:
    """Refuse a task whose loss needs all nodes at once.

    Args:
        task: what is predicted.
        where: on what it is refused.
        why: some nodes are not there.
        instead: what serves such tasks.

    Raises:
        UnsupportedError: it is such a task.
    """
    if not task.per_vertex:
        raise UnsupportedError(
            f"task={task.name!r} {where}: its loss needs all nodes at once{why}. Choose {instead}, or another task."
        )


# Gradients of a model's parameters from pieces of work, added up in order.


Gradients = tuple[Tensor | None, ...]


class Learned:
    """The parameters of a model that learn.

    Args:
        model: whose parameters they are.
    """

    def __init__(self, model: nn.Module) -> None:
        self._parameters = tuple(parameter for parameter in model.parameters() if parameter.requires_grad)

    def gradients(
        self, ends: Sequence[Tensor], seeds: Sequence[Tensor | None], inputs: Sequence[Tensor]
    ) -> tuple[Gradients, Gradients]:
        """Gradients of the parameters and of some inputs, from a piece's ends and their gradients.

        Args:
            ends: those without a history count for nothing.
            seeds: the gradient of each; None is 1 for a scalar.
            inputs: those that need no gradient get None.
        """
        learning = [(end, seed) for end, seed in zip(ends, seeds, strict=True) if end.requires_grad]
        given = [x for x in inputs if x.requires_grad]
        if not learning:
            return (None,) * len(self._parameters), (None,) * len(inputs)
        wanted = [*self._parameters, *given]
        seeded = [seed for _, seed in learning]
        found = iter(torch.autograd.grad([end for end, _ in learning], wanted, seeded, allow_unused=True))
        of_parameters = tuple(next(found) for _ in self._parameters)
        return of_parameters, tuple(next(found) if x.requires_grad else None for x in inputs)

    def add(self, gradients: Gradients) -> None:
        """Add a piece's gradients to the parameters', which stay where they are."""
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            if gradient is None:
                continue
            if parameter.grad is None:
                parameter.grad = gradient.detach().clone()
            else:
                parameter.grad.add_(gradient)


# A run of consecutive snapshots from the initial state: what is to be differentiated, however it is computed.


@dataclass(frozen=True)
class SequenceSegment:
    """Snapshots trained from the initial state.

    The loss is the mean of the task's over the snapshots it is taken at, without those that have no labelled item, as
    evaluations have it; 0 where none has any.

    Attributes:
        model: whose parameters' gradients are wanted.
        sequence: the graph on this device, all nodes or some.
        task: what is predicted.
        snapshots: S consecutive ones.
        loss_at: ``last`` or ``all`` of them.
        kept: of snapshots that have some nodes alone, the share of their labelled items that these hold, on all
            ranks together; their loss is the mean over what is kept.
    """

    model: DynamicModel
    sequence: SnapshotSequence
    task: Task
    snapshots: range
    loss_at: str
    kept: Mapping[int, float] = field(default_factory=dict)

    @property
    def at(self) -> range:
        """The snapshots where loss is taken."""
        return self.snapshots if self.loss_at == "all" else self.snapshots[-1:]

    @cached_property
    def num_labelled(self) -> int:
        """How many of the snapshots where loss is taken have labelled items."""
        return sum(self.task.labelled(t) and self.kept.get(t, 1.0) > 0 for t in self.at)

    @property
    def own(self) -> int:
        """n, the nodes whose loss is computed here."""
        return self.sequence.own

    def initial_state(self) -> State:
        """The state before the run, for every row that its spaces hold."""
        return self.model.initial_state(self.sequence.view(self.snapshots[0]).num_rows)

    def layer_state(self, layer: int, rows: int) -> State:
        """The state before the run of the rows that a layer runs through time; other layers' tensors are not read."""
        return self.model.initial_state(rows)

    def through_time(self, layer: int, x: Tensor, state: State, rows: slice) -> tuple[Tensor, State]:
        """A layer's temporal part: (S, n, C) -> (S, n, H) and the state after it; ``rows`` says which nodes of it."""
        return self.model.temporal_sequence(layer, x, state)

    def loss(self, z: Tensor, snapshots: range, rows: Rows) -> Tensor:
        """What some nodes at some snapshots add to the loss of the run, a scalar.

        A task that needs all nodes at once gets them, joined from all ranks, for the snapshots that are this rank's
        turn.

        Args:
            z: their readout, (S', n, outputs).
            snapshots: S' of those where loss is taken.
            rows: which of the own nodes they are; all of them where the task is not ``per_vertex``.
        """
        if self.task.per_vertex:
            vertices = self.sequence.vertices
            losses = self.task.loss(z, snapshots, rows if vertices is None else vertices[rows])
        else:
            losses = self._joint_losses(z, snapshots)
        if self.kept:
            shares = [self.kept.get(t, 1.0) or 1.0 for t in snapshots]  # where nothing is held, the loss is 0
            losses = losses / losses.new_tensor(shares)
        return losses.sum() / max(self.num_labelled, 1)

    def snapshot(self, t: int, state: State) -> tuple[Tensor, State]:
        """A snapshot through all layers: hidden rows of the nodes that its space holds, and the state after it."""
        space = self.sequence.view(t)
        return self.model.snapshot(space, space.inputs, state)

    def loss_of(self, t: int, h: Tensor) -> Tensor | None:
        """A snapshot's share of the loss, from its hidden rows; None where no loss is taken."""
        if t not in self.at:
            return None
        return self.loss(self.model.readout(h[: self.own]).unsqueeze(0), range(t, t + 1), slice(0, self.own))

    def _joint_losses(self, z: Tensor, snapshots: range) -> Tensor:
        joined = self.sequence.join(z)
        everyone = slice(0, joined.shape[1])
        own = [
            self.task.loss(joined[place : place + 1], range(t, t + 1), everyone).sum()
            for place, t in enumerate(snapshots)
            if self.sequence.has_turn(t)
        ]
        # without a turn the joined rows still take part in backward, which every rank must
        return torch.stack(own) if own else joined.sum() * 0


# Pieces of work that know nothing of each other, on as many threads as torch may use, with results in order.
#
# One thread for each piece, instead of all threads for each operation: a core finds in its cache what it wrote there,
# and no thread waits for the others after every operation. Bits do not depend on the number of threads.


T = TypeVar("T")
R = TypeVar("R")


def in_order(work: Callable[[T], R], items: Sequence[T], *, device: str, alone: bool = False) -> list[R]:
    """Results of ``work`` for each item, in order, when all are there (see :func:`in_turn`)."""
    return list(in_turn(work, items, device=device, alone=alone))


def in_turn(work: Callable[[T], R], items: Sequence[T], *, device: str, alone: bool = False) -> Generator[R]:
    """Results of ``work`` for each item, in order, each as soon as it is there.

    With ``alone`` they are done one after another, as work in which ranks exchange rows must be. Else on the CPU
    ``torch.get_num_threads()`` items are in work at once, each with one thread of torch; elsewhere, or where
    something watches this thread's operations (as the probe of peak memory does), one after another. ``work`` must set
    its own gradient mode, which threads do not share, and must not add to gradients, whose order would be a race.
    """
    threads = torch.get_num_threads()
    if alone or device != "cpu" or min(threads, len(items)) < 2 or _get_current_dispatch_mode() is not None:
        yield from map(work, items)
        return
    torch.set_num_threads(1)  # new threads start with it
    try:
        with ThreadPoolExecutor(min(threads, len(items)), thread_name_prefix="snapshots") as pool:
            yield from pool.map(work, items)
    finally:
        torch.set_num_threads(threads)


# What is computed of a run at once: consecutive snapshots, the spaces of them that are here, and how rows move.


@dataclass(frozen=True, slots=True)
class AllToAllPhase:
    """One movement of rows between what mixes neighbours and what runs through time.

    Attributes:
        layer: of the model, from 0.
        backward: whether gradients move; else values do.
        width: C, numbers in a row.
    """

    layer: int
    backward: bool
    width: int


# Given a stack of snapshots or a piece of the nodes: their rows, and what else the work gave. Then all that moved, in
# order: rows of each snapshot, or of each stack, and the rest.
OfStack = Callable[[int], tuple[Tensor, T]]
OfRows = Callable[[slice], tuple[Tensor, T]]
Moved = tuple[list[Tensor], list[T]]


class BlockRows:
    """Rows of a time block: of all nodes (n) in own snapshots, and of own nodes (m) in all S snapshots.

    What is computed is given as work on pieces, so that rows of one piece may be sent while the next is computed.
    Here rows are already where they are needed; subclasses move them between ranks.

    Args:
        spaces: the S snapshots, some stacked.
        device: where work is done.
        alone: whether pieces over spaces must be worked on one after another.
    """

    def __init__(self, spaces: Sequence[SnapshotView], *, device: str, alone: bool) -> None:
        self._stacks = [len(space.snapshots) for space in spaces]
        self._device, self._alone = device, alone

    def to_vertices(self, work: OfStack[T], phase: AllToAllPhase) -> Moved[T]:
        """Rows of own nodes in every snapshot of the block, S times (m, C), and what else the work gave, in order.

        Args:
            work: given the place of an own stack of S' snapshots, its rows (S' n, C) without history, and a rest.
            phase: what moves.
        """
        found = in_order(work, range(len(self._stacks)), device=self._device, alone=self._alone)
        return by_snapshot(self._stacks, [rows for rows, _ in found]), [rest for _, rest in found]

    def to_snapshots(
        self, work: OfRows[T], pieces: Sequence[slice], phase: AllToAllPhase, *, like: Tensor, height: int
    ) -> Moved[T]:
        """Rows of all nodes in each own stack, (S' height, C), and what else the work gave, in order.

        Args:
            work: given a piece of the own nodes, their rows in all snapshots, (S, piece, C), and a rest.
            pieces: of the own nodes, in order; as many on every rank.
            phase: what moves.
            like: of the type and on the device of the result.
            height: rows of a snapshot where nothing moves; those that no piece has are zero.
        """
        covered = sum(rows.stop - rows.start for rows in pieces) == height
        make = like.new_empty if covered else like.new_zeros
        out = [make(stacked * height, phase.width) for stacked in self._stacks]
        parts = by_snapshot(self._stacks, out)

        def write(rows: slice) -> T:
            found, rest = work(rows)
            for part, here in zip(parts, found, strict=True):
                part[rows] = here
            return rest

        return out, in_order(write, pieces, device=self._device)

    def pieces(self, rows: int, size: int) -> list[slice]:
        """The first ``rows`` own nodes in pieces of at most ``size``, as many pieces on every rank."""
        return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


@dataclass(frozen=True, slots=True)
class TimeBlock:
    """S consecutive snapshots of a run, as one rank computes them.

    Attributes:
        snapshots: all S of them.
        stacks: for every layer the spaces of own snapshots, some stacked; the same snapshots for all layers.
        vertices: for every layer how many nodes are run through time here: those that the next layer reads, and the
            own ones in the last.
        seam: moves rows between own snapshots and own nodes.
    """

    snapshots: range
    stacks: Sequence[Sequence[SnapshotView]]
    vertices: Sequence[int]
    seam: BlockRows


class Timeline:
    """A run's snapshots in consecutive time blocks; one block is loaded at a time.

    Here some of them are the only block, and it needs no transfers.

    Args:
        run: the segment.
        snapshots: those of the block; all where None.
    """

    def __init__(self, run: SequenceSegment, snapshots: range | None = None) -> None:
        self._run, self._snapshots = run, run.snapshots if snapshots is None else snapshots

    def __len__(self) -> int:
        """nb, the blocks."""
        return 1

    def open(self, number: int, pass_name: str) -> TimeBlock:
        """Load a block; data of an earlier one may be released.

        Args:
            number: of the block, from 0.
            pass_name: the pass: ``forward``, or ``rerun`` for recomputation.
        """
        sequence = self._run.sequence
        stacks = [sequence.stacks(self._snapshots, layer) for layer in range(self._run.model.layers)]
        seam = BlockRows(stacks[0], device=sequence.device, alone=sequence.collective)
        read = [spaces[0].num_rows // len(spaces[0].snapshots) for spaces in stacks[1:]]
        return TimeBlock(self._snapshots, stacks, [*read, self._run.own], seam)

    def turn(self, number: int) -> None:
        """Note that backward of a block begins."""


def by_snapshot(stacks: Sequence[int], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Views of stacked rows, one for each snapshot.

    Args:
        stacks: snapshots in each tensor.
        tensors: (S' n, C) each.
    """
    return [
        part
        for stacked, rows in zip(stacks, tensors, strict=True)
        for part in rows.unflatten(0, (stacked, -1)).unbind()
    ]
