"""Interface of tasks: labels, loss, and scores of models and baselines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph

PARTS = ("train", "validation", "test")
Rows = slice | Tensor  # node numbers


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of a model and of two baselines on a split; None for undefined numbers.

    Attributes:
        split: ``train``, ``validation`` or ``test``.
        loss: mean over snapshots with labelled items of the mean loss over these items.
        persistence_loss: loss of the persistence baseline, which predicts no change.
        mean_loss: loss of a constant prediction, taken from the training split.
        snapshots: number of snapshots with labelled items.
        metrics: metrics of the model, and of persistence under ``persistence_<name>``.
    """

    split: str
    loss: float | None
    persistence_loss: float | None
    mean_loss: float | None
    snapshots: int
    metrics: dict[str, float | None] = field(default_factory=dict)


class Task(Protocol):
    """A prediction from a model's readout, for T labelled snapshots of N nodes.

    A task holds all labels of the graph on every rank; its random draws do not depend on the number of ranks.
    It is made as ``Task(graph, split, device=..., dtype=..., **options)`` with the options of its entry, and the run's
    ``seed`` and ``hidden`` if its constructor has these parameters.

    Attributes:
        name: name in the catalogue.
        needs: labels of the graph beside ``targets``: ``classes``, or ``following`` (the edges of the next snapshot).
        outputs: columns of the model's readout.
        per_vertex: class attribute: whether the loss is a sum over nodes, so that blocks of nodes can be separated.
        loss_name: name of the loss in charts.
        main_metrics: names of metrics between 0 and 1, larger is better; charts show the first available one.
        columns: length of the output of :meth:`measure`, K.
        resampled: columns of the output of :meth:`resample`; 0 for a task without bootstrap.
    """

    name: str
    needs: ClassVar[tuple[str, ...]] = ()
    outputs: int
    per_vertex: bool
    loss_name: ClassVar[str] = "loss"
    main_metrics: ClassVar[tuple[str, ...]] = ()
    columns: int
    resampled: int = 0

    @classmethod
    def count_outputs(cls, graph: DynamicGraph, *, hidden: int, **options: Any) -> int:
        """Return ``outputs`` for a graph without reading its labels; by default the class attribute.

        Args:
            graph: the data.
            hidden: hidden width of the model, H.
            options: options of the task.
        """
        return cls.outputs

    def prepare(self, snapshots: range) -> None:
        """Copy the data for the loss of these snapshots to the device in advance."""

    def labelled(self, t: int) -> bool:
        """Return True if the training loss of this snapshot has labelled items."""

    def loss(self, z: Tensor, snapshots: range, rows: Rows) -> Tensor:
        """Return the contribution of some nodes to the training loss of some snapshots, differentiable in ``z``.

        Args:
            z: readout of these nodes, (S, n, outputs).
            snapshots: the S consecutive snapshots.
            rows: the n nodes; all N if the task is not ``per_vertex``.

        Returns:
            (S,): for each snapshot, the share of these nodes in the mean loss over the snapshot's labelled items;
            the shares of blocks of nodes add up to that mean. 0 if the snapshot has no labelled item.
        """

    def share(self, snapshots: range, rows: Rows) -> Tensor:
        """Return the share of each snapshot's labelled items that some nodes hold, (S,), on the CPU.

        ``loss`` divided by it is the mean over these nodes' items. It is 0 if the nodes or the snapshot have none.
        Steps read its numbers, so a tensor on a GPU would make them wait.

        Args:
            snapshots: S consecutive snapshots.
            rows: some nodes, on the CPU; all N if the task is not ``per_vertex``.
        """

    def trains(self) -> NDArray[np.bool_]:
        """Return the mask of nodes with a label in the training loss of some snapshot, (N,)."""

    def measure(self, z: Tensor, t: int, rows: slice, part: str) -> Tensor:
        """Return the contribution of some nodes to the sums behind the scores of a split, detached.

        Args:
            z: readout of these nodes at snapshot t, (n, outputs).
            t: number of the snapshot.
            rows: the n nodes; all N if the task is not ``per_vertex``.
            part: the split of t: ``train``, ``validation`` or ``test``.

        Returns:
            (K,), float64; blocks of nodes add up.
        """

    def scores(self, part: str, sums: NDArray[np.float64], resamples: NDArray[np.float64] | None = None) -> Scores:
        """Return the scores of a split from outputs of :meth:`measure` for its snapshots.

        Args:
            part: the split.
            sums: (S, K), summed over nodes.
            resamples: (S, resampled), outputs of :meth:`resample` for the same snapshots; None without bootstrap.
        """

    def resample(self, z: Tensor, t: int) -> Tensor:
        """Return metrics of one test snapshot on resampled items, (resampled,), float64.

        Args:
            z: readout of all N nodes, (N, outputs).
            t: number of the snapshot.
        """
        return z.new_zeros(0, dtype=torch.float64)


def mean_or_none(values: NDArray[np.float64]) -> float | None:
    """Return the mean of a vector; None if it is empty."""
    return float(values.mean()) if len(values) else None
