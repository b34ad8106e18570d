"""A system's way to train: the steps of an epoch on one rank, their gradients, and their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.errors import UnsupportedError
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

RecordRows = Mapping[str, Sequence[tuple[Any, ...]]]  # table -> rows without step and epoch, mostly named tuples


class StepMarks:
    """Boundaries between the phases of a step; this one records nothing."""

    def __call__(self, phase: str) -> None:
        """End a phase, which lasted since the last mark."""

    def exchange(self, wait_s: float) -> None:
        """End an exchange, which lasted since the last mark and began with ``wait_s`` seconds of waiting."""

    def block(self, number: int, pass_name: str) -> None:
        """Begin time block ``number`` in the pass ``forward``, ``rerun`` (recompute) or ``backward``."""


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


@dataclass(frozen=True, slots=True)
class BuildContext:
    """Everything that a strategy is built from.

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
        gradients: of the model's parameters.
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
        """P / R consecutive parts of a plan, which this rank executes."""
        share = self.config.parts // self.group.size
        return range(self.group.rank * share, (self.group.rank + 1) * share)


class Strategy:
    """How training is laid over processes. Whatever else it does is one of :mod:`dtdg_lab.engine.capabilities`.

    Steps of an epoch are a pure function of config and epoch.

    Attributes:
        plan_kinds: kinds of the events that :meth:`plan_events` may return.
        share: share of all training nodes that this rank trains.
    """

    plan_kinds: tuple[str, ...] = ()
    share = 1.0

    def epoch(self, epoch: int) -> Sequence[Step]:
        """Return this rank's steps; every rank has the same number."""
        raise NotImplementedError

    def compute(self, step: Step, marks: StepMarks) -> StepResult:
        """Run forward and backward of one step, adding to the parameters' gradients.

        It marks the ends of ``batch`` and ``transfer``, and every exchange of rows.
        """
        raise NotImplementedError

    def rows(self) -> RecordRows:
        """Return and forget the recorded rows, by table."""
        return {}

    def probe_steps(self) -> Iterator[Callable[[StepMarks], Any]]:
        """Yield steps whose peak memory is measured, the largest that there may be; they leave no record.

        Gradients are cleared after each. Training continues afterwards as if they had not been computed.
        """
        largest = max(self.epoch(0), key=lambda step: (len(step.groups), step.snapshots))
        yield partial(self.compute, largest)
        self.rows()

    def plan_events(self) -> list[Event]:
        """Return events that describe its plans; called on rank 0."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """Return its measurements and decisions, for a checkpoint; without what is carried from step to step."""
        return {}

    def close(self) -> None:
        """End whatever runs beside training; a second call does nothing."""


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
