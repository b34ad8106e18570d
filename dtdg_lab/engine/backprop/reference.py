"""Gradients by plain automatic differentiation, and by groups of snapshots in turn or at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from torch import Tensor

from dtdg_lab.core.plans import SnapshotGroups
from dtdg_lab.engine.backprop.evolving_weights import add_gradients_evolved
from dtdg_lab.engine.backprop.gradients import DeferredGradients, LearnedParameters, defer_gradients
from dtdg_lab.engine.backprop.time_blocks import add_gradients_blocks, add_gradients_stepwise
from dtdg_lab.engine.record_rows import GroupRow
from dtdg_lab.engine.segment import SequenceSegment
from dtdg_lab.engine.strategy import Step, StepMarks, StepResult, loss_sum
from dtdg_lab.engine.views.sequence import SnapshotSequence
from dtdg_lab.kernels.device_clock import DeviceClock, Stamp, clock_of
from dtdg_lab.kernels.parallel_map import concurrent_map
from dtdg_lab.models.base import DynamicModel, State
from dtdg_lab.tasks.base import Task

# How long each snapshot group took, as the rows of table ``groups``.


class GroupClock:
    """Times groups.

    Args:
        clock: clock of the device that computes the groups.
    """

    def __init__(self, clock: DeviceClock) -> None:
        self._clock = clock
        self._timed: list[tuple[Sequence[int], Stamp, Stamp, float]] = []

    @contextmanager
    def of(self, groups: Sequence[int]) -> Iterator[None]:
        """Time a block that computes some groups; where they are several at once, each is given an equal share."""
        start, cpu_s = self._clock.stamp(), time.process_time()
        yield
        self._timed.append((groups, start, self._clock.stamp(), time.process_time() - cpu_s))

    def drain(self) -> Callable[[], list[GroupRow]]:
        """Forget the times of groups, and return a function that reads them."""
        timed, self._timed = self._timed, []
        return lambda: [row for block in timed for row in self._rows(*block)]

    def _rows(self, groups: Sequence[int], start: Stamp, end: Stamp, cpu_s: float) -> Iterator[GroupRow]:
        start_ns, end_ns = self._clock.ns(start), self._clock.ns(end)
        share_ns = (end_ns - start_ns) // max(len(groups), 1)
        for index, group in enumerate(groups):
            begin_ns = start_ns + index * share_ns
            yield GroupRow(group, begin_ns, begin_ns + share_ns, cpu_s / len(groups))


# A run as it is written down: snapshot after snapshot, then one backward through all of them. The reference.


def plain_loss(run: SequenceSegment) -> Tensor:
    """Return the loss of a segment, a scalar with its history; for every model and task."""
    loss, state = _snapshot(run, run.snapshots[0], run.initial_state())
    return _rest(run, loss, state)


def add_gradients_plain(run: SequenceSegment) -> Tensor:
    """Add the gradients of a run's loss to the parameters', and return the loss.

    Where the first snapshot keeps so much for backward that all would exceed the limit of activations, snapshots are
    recomputed step by step (:mod:`dtdg_lab.engine.backprop.time_blocks`).
    """
    loss = _loss_if_it_fits(run)
    if loss is None:
        return add_gradients_stepwise(run)
    if run.sequence.collective:  # every rank runs all of backward, which exchanges rows
        loss.backward()
    else:
        learned = LearnedParameters(run.model)
        learned.add(learned.gradients([loss], [None], [])[0])
    return loss.detach()


def _loss_if_it_fits(run: SequenceSegment) -> Tensor | None:
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.layout is torch.strided:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        first, state = _snapshot(run, run.snapshots[0], run.initial_state())
    for tensor in (run.sequence.view(run.snapshots[0]).inputs, *run.model.parameters()):
        sizes.pop(tensor.untyped_storage().data_ptr(), None)
    limit_bytes = run.sequence.settings.limits.activation_bytes
    if run.sequence.any_rank(sum(sizes.values()) * len(run.snapshots) > limit_bytes):
        return None
    return _rest(run, first, state)


def _rest(run: SequenceSegment, first: Tensor | None, state: State) -> Tensor:
    """Return the segment's loss, from that of the first snapshot and the state after it."""
    losses = [] if first is None else [first]
    for t in run.snapshots[1:]:
        loss, state = _snapshot(run, t, state)
        losses += [] if loss is None else [loss]
    return torch.stack(losses).sum()


def _snapshot(run: SequenceSegment, t: int, state: State) -> tuple[Tensor | None, State]:
    """Return the snapshot's share of the loss, if any, and the state after it."""
    h, state = run.snapshot(t, state)
    return run.loss_of(t, h), state


# Loss and gradients of groups of consecutive snapshots, each from the initial state: what the group layouts share.


# memory of a model -> how a run of it is differentiated; all give what ``plain`` gives
HOW: Mapping[str, Callable[[SequenceSegment], Tensor]] = MappingProxyType(
    {
        "per_vertex": add_gradients_blocks,
        "weights": add_gradients_evolved,
        "none": add_gradients_evolved,
        "weights_from_data": add_gradients_plain,
        "neighbourhood": add_gradients_plain,
    }
)


def bring(run: SequenceSegment) -> None:
    """Move what a run needs onto the device, as far as it is kept there."""
    run.task.prepare(run.at)
    if HOW[run.model.memory] is add_gradients_plain:
        for t in run.snapshots:
            run.sequence.view(t)
        return
    for layer in range(run.model.layers):
        run.sequence.stacks(run.snapshots, layer)


# Several snapshot groups of a rank at once: all of them are in memory.


def add_gradients_concurrently(runs: Sequence[SequenceSegment]) -> list[Tensor]:
    """Add the gradients of several runs' losses to the parameters', and return the losses.

    Each run has a thread of its own, and a stream of its own on a GPU. It is differentiated like a single one. Losses
    and gradients are bit-equal to those of the runs one by one.

    Args:
        runs: of one model; each has a sequence of its own, because views are built on first use by one thread.

    References: DyGNeX section 5.1 and appendix I (BLAD: two processes on a GPU, one for each of two snapshot groups).
    """

    def compute(run: SequenceSegment) -> tuple[Tensor, DeferredGradients]:
        with torch.enable_grad(), defer_gradients() as deferred:  # threads begin with the default of their own
            return HOW[run.model.memory](run), deferred

    results = concurrent_map(compute, runs, device=runs[0].sequence.device)
    for _, deferred in results:
        deferred.add()
    return [loss for loss, _ in results]


@dataclass(slots=True)
class GroupRunner:
    """Forward and backward of whole groups.

    A group's loss is the mean of the task's over the snapshots where loss is taken and that have labelled items.

    Attributes:
        model: any model.
        sequence: the graph on this rank's device, all nodes or some.
        task: what is predicted.
        groups: K groups of consecutive snapshots.
        loss_at: ``last`` or ``all`` snapshots of a group.
        twins: sequences of the same data for further groups that are computed at once; none for one group at a time.
        device_clock: clock of the sequence's device, such as the group's; a new one if None.
        clock: times the groups.
    """

    model: DynamicModel
    sequence: SnapshotSequence
    task: Task
    groups: SnapshotGroups
    loss_at: str
    twins: Sequence[SnapshotSequence] = ()
    device_clock: DeviceClock | None = None
    clock: GroupClock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = GroupClock(self.device_clock or clock_of(self.sequence.device))

    def compute(self, work: Step, marks: StepMarks) -> StepResult:
        """Add the gradients of a step's groups to the parameters, of as many groups at once as there are sequences."""
        sequences = (self.sequence, *self.twins)
        runs = [self._run(group, sequences[index % len(sequences)]) for index, group in enumerate(work.groups)]
        marks("batch")
        for run in runs:
            bring(run)
        marks("transfer")
        losses: list[Tensor] = []
        for first in range(0, len(runs), len(sequences)):
            at_once = slice(first, first + len(sequences))
            with self.clock.of(work.groups[at_once]):
                if self.twins:
                    losses += add_gradients_concurrently(runs[at_once])
                else:
                    losses.append(HOW[self.model.memory](runs[first]))
        return StepResult(
            loss_sum(losses, self.sequence.device),
            len(runs),
            self.sequence.own * sum(len(run.snapshots) for run in runs),
        )

    def _run(self, group: int, sequence: SnapshotSequence) -> SequenceSegment:
        snapshots = range(int(self.groups.start[group]), int(self.groups.stop[group]))
        return SequenceSegment(self.model, sequence, self.task, snapshots, self.loss_at)
