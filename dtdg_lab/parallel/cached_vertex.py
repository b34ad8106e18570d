"""Vertex parts that hold copies of what their layers reach: each trains alone, and gradients alone are exchanged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.kernels.operator_settings import OperatorSettings
from dtdg_lab.models.base import DynamicModel
from dtdg_lab.parallel.cached_files import cached_part
from dtdg_lab.parallel.cached_part import reach_of
from dtdg_lab.parallel.cached_sequence import CachedSequence
from dtdg_lab.parallel.cached_size import cache_size
from dtdg_lab.parallel.device_sequence import PULLS_BYTES, SPACES_BYTES
from dtdg_lab.parallel.grouped import HOW, bring
from dtdg_lab.parallel.layout import Computed, Marks, Work
from dtdg_lab.parallel.run import Run
from dtdg_lab.tasks.task import Task


class CachedVertexLayout:
    """One step an epoch: each part goes through the whole training part of the sequence with its own vertices' loss.

    The shares of all parts add up to what :class:`dtdg_lab.parallel.single.SingleLayout` computes: exactly for memories
    ``per_vertex``, ``weights`` and ``none``; for ``weights_from_data`` the best vertices are each part's own
    (approximation), for ``neighbourhood`` state from beyond the layers' hops is cut off (truncated).

    Args:
        model: any model.
        sequences: of the parts that this rank executes.
        task: what is predicted.
        train: the labelled snapshots of the training part.
        counts_group: whether this rank counts the one group that all ranks compute together: true on one of them.

    Raises:
        UnsupportedError: the task needs all vertices at once.

    References: DynaHB section 4.1 (L-layer neighbourhoods cached on every worker); section 7.1, baseline PyGT-Dist.
    """

    def __init__(
        self, model: DynamicModel, sequences: Sequence[CachedSequence], task: Task, train: range, *, counts_group: bool
    ) -> None:
        if not task.per_vertex:
            raise UnsupportedError(
                f"task={task.name!r} on layout cached_vertex: its loss needs all vertices at once, and each part "
                "computes its own alone. Choose system='adgnn-t' (halo_vertex), or another task."
            )
        self._model, self._counts_group = model, counts_group
        self._runs = [Run(model, sequence, task, train, "all") for sequence in sequences]

    def epoch(self, epoch: int) -> Sequence[Work]:
        """The one step, the same every epoch."""
        return (Work(0, (0,) if self._counts_group else (), 1),)

    def compute(self, work: Work, marks: Marks) -> Computed:
        """Gradients of this rank's parts, one part after another."""
        marks("batch")
        for run in self._runs:
            bring(run)
        marks("transfer")
        loss_sum = sum(float(HOW[self._model.memory](run)) for run in self._runs)
        return Computed(loss_sum, len(work.groups), sum(run.own * len(run.snapshots) for run in self._runs))

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """None: gradients alone are exchanged."""
        return {}


def cached_sequences(
    graph: DynamicGraph,
    partition: Partition,
    parts: Iterable[int],
    model: DynamicModel,
    train: range,
    *,
    cache_gib: float,
    settings: OperatorSettings,
    ways: Iterable[str] = ("in",),
) -> list[CachedSequence]:
    """What a rank's parts train on; their caches are made where no process has made them yet.

    Every rank comes to the same decision on the size, since it is that of all parts together.

    Args:
        graph: N vertices.
        partition: of these vertices into P parts.
        parts: those of this rank.
        model: whose layers they serve.
        train: the snapshots that are trained.
        cache_gib: most that all P parts may take together, in GiB.
        settings: of the operators, the same for all parts.
        ways: along which edges the model pulls.

    Raises:
        UnsupportedError: the parts would take more; nothing has been written then.
        DataError: a cache cannot be written.
    """
    reach = reach_of(model.memory, model.layers * model.hops_per_layer, train, ways=ways)
    cache_size(graph, partition, reach).refuse_above(cache_gib, graph.num_nodes * len(train))
    chosen = tuple(parts)
    share = max(1, len(chosen))
    room = {"pulls_bytes": PULLS_BYTES // share, "spaces_bytes": SPACES_BYTES // share}
    held = [cached_part(graph, partition.vertices(part), reach) for part in chosen]
    return [CachedSequence(part, model.hops_per_layer, settings, **room) for part in held]
