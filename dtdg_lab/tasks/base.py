"""The interface of every task: its labels, loss and scores, beside those of baselines."""

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
Rows = slice | Tensor  # some of the nodes: a run of them, or their numbers


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a model on a split, beside two baselines; None if a number is not defined.

    Attributes:
        split: ``train``, ``validation`` or ``test``.
        loss: mean over snapshots with labelled items of the mean loss over these items.
        persistence_loss: the same for "tomorrow is as today".
        mean_loss: the same for one prediction for all items, taken from the training split.
        snapshots: number of snapshots with labelled items.
        metrics: other numbers of the model, and those of persistence under ``persistence_<name>``.
    """

    split: str
    loss: float | None
    persistence_loss: float | None
    mean_loss: float | None
    snapshots: int
    metrics: dict[str, float | None] = field(default_factory=dict)


class Task(Protocol):
    """A prediction from a model's readout, for T labelled snapshots of N nodes.

    A task holds all labels of the graph on every rank, and draws nothing that depends on the number of ranks.

    It is made as ``Task(graph, split, device=..., dtype=..., **options)`` with the options of its entry, and the run's
    ``seed`` and ``hidden`` if its constructor has these parameters.

    Attributes:
        name: in the catalogue.
        needs: labels of the graph beside ``targets``: ``classes``, or ``following`` (the edges that follow).
        outputs: columns of the model's readout.
        per_vertex: whether the loss is a sum over nodes, so that blocks of nodes may be taken apart; of the class.
        loss_name: name of the loss in charts.
        main_metrics: names of metrics that are shares of 1, larger is better; charts show the first available one.
        columns: K, the length of the output of :meth:`measure`.
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
        """Return ``outputs`` for a graph without reading its labels; by default those of the class.

        Args:
            graph: the data.
            hidden: H of the model.
            options: of the task.
        """
        return cls.outputs

    def prepare(self, snapshots: range) -> None:
        """Copy the data for the loss of these snapshots to the device; ``loss`` does so otherwise."""

    def labelled(self, t: int) -> bool:
        """Return True if the training loss of this snapshot has labelled items, so that it counts in a mean."""

    def loss(self, z: Tensor, snapshots: range, rows: Rows) -> Tensor:
        """Return the contribution of some nodes to the training loss of some snapshots, with the history of ``z``.

        Args:
            z: readout of these nodes, (S, n, outputs).
            snapshots: the S consecutive snapshots ``z`` is of.
            rows: the n nodes; all N if the task is not ``per_vertex``.

        Returns:
            (S,): for each snapshot, the share of these nodes in the mean loss over the snapshot's labelled items;
            the shares of blocks of nodes add up to that mean. 0 if the snapshot has no labelled item.
        """

    def share(self, snapshots: range, rows: Rows) -> Tensor:
        """Return the share of each snapshot's labelled items that some nodes hold, (S,).

        ``loss`` over it is the mean over these nodes' own items. 0 if they have none, or the snapshot has none.

        Args:
            snapshots: S consecutive ones.
            rows: some nodes; all N if the task is not ``per_vertex``.
        """

    def trains(self) -> NDArray[np.bool_]:
        """Return the mask of nodes with a label in the training loss of some snapshot, (N,)."""

    def measure(self, z: Tensor, t: int, rows: slice, part: str) -> Tensor:
        """Return the contribution of some nodes to the sums behind the scores of a split, without history.

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
