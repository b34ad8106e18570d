"""Training strategy of a system: the steps of an epoch on one rank, their gradients and records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.distributed.all_to_all import ReadTimes
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.tasks.base import Task

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.core.plans import Partition
    from dtdg_lab.distributed.gradients import FlatGradients
    from dtdg_lab.distributed.group import Group
    from dtdg_lab.engine.views.device_sequence import DeviceSequence
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.records.events import Event

Rows = Sequence[tuple[Any, ...]]  # without step and epoch, mostly named tuples
ReadRows = Mapping[str, Rows]  # by table
RecordRows = Mapping[str, Rows | Callable[[], Rows]]  # a function returns rows of times, which are read later


def read_rows(rows: RecordRows) -> ReadRows:
    """Return the rows by table; on a GPU call it when the next step ends, since it may wait for the device."""
    return {table: table_rows() if callable(table_rows) else table_rows for table, table_rows in rows.items()}


class StepMarks:
    """Boundaries between the phases of a step; this base class records nothing."""

    def __call__(self, phase: str) -> None:
        """End a phase, which began at the last mark."""

    def exchange(self, times: ReadTimes) -> None:
        """End an exchange; this rank has waited for it since the last mark."""

    def block(self, number: int, pass_name: str) -> None:
        """Begin time block ``number`` in the pass ``forward``, ``rerun`` (recompute) or ``backward``."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of this rank.

    Attributes:
        iteration: number of the step in the epoch.
        groups: snapshot groups of this rank's parts.
        total_groups: number of groups of all ranks.
        snapshots: number of snapshots to compute; left at 0 if all steps have the same number.
    """

    iteration: int
    groups: tuple[int, ...]
    total_groups: int
    snapshots: int = 0


@dataclass(frozen=True, slots=True)
class StepResult:
    """A rank's result of a step.

    Attributes:
        loss_sum: sum of its groups' mean losses; of a group shared by several ranks, its share. A float64 scalar on
            the rank's device (:func:`loss_sum`), since a number would make the host wait for a GPU.
        groups: number of its snapshot groups; only one of the ranks that share a group counts it.
        vertex_snapshots: nodes of all snapshots of all groups, also those that the loss does not use.
    """

    loss_sum: Tensor | float
    groups: int
    vertex_snapshots: int


def loss_sum(losses: Iterable[Tensor], device: str) -> Tensor:
    """Return the sum of scalars in their order, in float64 on the device; no host waits for it."""
    total = torch.zeros((), dtype=torch.float64, device=device)
    for loss in losses:
        total = total + loss.detach().double()
    return total


@dataclass(frozen=True, slots=True)
class BuildContext:
    """Inputs from which a strategy is built.

    Attributes:
        config: the run's settings.
        graph: the training snapshots alone, which plans may read.
        model: model on this rank's device.
        sequence: all nodes, with the labels of the test split sealed.
        task: the task.
        train: labelled snapshots of the training split.
        validation: snapshots of the validation split.
        group: the processes of the run, one for each rank.
        device: device of this rank.
        partition: partition of the nodes into P parts; None if the system has none.
        state: state of an earlier strategy, from a checkpoint, to restore as far as it fits.
        gradients: gradients of the model's parameters.
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
    gradients: FlatGradients

    @property
    def parts(self) -> range:
        """Parts of a plan that this rank executes, P / R consecutive ones."""
        share = self.config.parts // self.group.size
        return range(self.group.rank * share, (self.group.rank + 1) * share)


class Strategy:
    """Distributed training of a system. Optional abilities are mixins of :mod:`dtdg_lab.engine.capabilities`.

    The steps of an epoch are a pure function of config and epoch.

    Attributes:
        plan_kinds: kinds of the events that :meth:`plan_events` may return.
        share: share of all training nodes that this rank trains.
    """

    plan_kinds: tuple[str, ...] = ()
    share = 1.0

    def epoch(self, epoch: int) -> Sequence[Step]:
        """Return this rank's steps; every rank has the same number. Averaged models deal them out by number."""
        raise NotImplementedError

    def compute(self, step: Step, marks: StepMarks) -> StepResult:
        """Run forward and backward of one step, and add to the parameters' gradients.

        Mark the ends of the phases ``batch`` and ``transfer``, and every exchange of rows.
        """
        raise NotImplementedError

    def rows(self) -> RecordRows:
        """Return the recorded rows by table, and reset them."""
        return {}

    def probe_steps(self) -> Iterator[Callable[[StepMarks], Any]]:
        """Yield the largest possible steps, whose peak memory is measured; they leave no record.

        The caller clears gradients after each. Training continues as if these steps had not run.
        """
        largest = max(self.epoch(0), key=lambda step: (len(step.groups), step.snapshots))
        yield partial(self.compute, largest)
        self.rows()

    def plan_events(self) -> list[Event]:
        """Return events that describe its plans; called on rank 0."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """Return measurements and decisions, for a checkpoint; without the state carried from step to step."""
        return {}

    def close(self) -> None:
        """Stop background work; a second call does nothing."""


def check_per_vertex(task: Task, where: str, why: str = "", instead: str = "system='adgnn-t' (halo_vertex)") -> None:
    """Refuse a task whose loss needs all nodes at once.

    Args:
        task: the task.
        where: the place in the message, such as "on batches of target nodes".
        why: reason in the message.
        instead: alternatives in the message.

    Raises:
        UnsupportedError: the task's loss needs all nodes at once.
    """
    if not task.per_vertex:
        raise UnsupportedError(
            f"task={task.name!r} {where}: its loss needs all nodes at once{why}. Choose {instead}, or another task."
        )
