"""The interface of every task: what is predicted, its loss, and what it scores beside predictors that learn nothing."""

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
    """What a model scores on a part of the sequence, beside two predictors that learn nothing. None: not defined.

    Attributes:
        split: ``train``, ``validation`` or ``test``.
        loss: mean over the part's snapshots that have labelled items, of the mean loss over these items.
        persistence_loss: the same for "tomorrow is as today".
        mean_loss: the same for one prediction for all items, taken from the training split.
        snapshots: how many snapshots of the part have labelled items.
        metrics: other numbers of the model, and those of persistence under ``persistence_<name>``.
    """

    split: str
    loss: float | None
    persistence_loss: float | None
    mean_loss: float | None
    snapshots: int
    metrics: dict[str, float | None] = field(default_factory=dict)


class Task(Protocol):
    """What is predicted from a model's readout, for T labelled snapshots of N nodes.

    A task holds all labels of the graph on every rank, and draws nothing that depends on the number of ranks.

    It is made as ``Task(graph, split, device=..., dtype=..., **options)`` with the options of its entry; where its
    constructor also has parameters ``seed`` or ``hidden``, it gets the run's.

    Attributes:
        name: in the catalogue.
        needs: what the graph must hold beside ``targets``: ``classes``, or ``following`` (the edges that follow).
        outputs: columns that the model's readout must have.
        per_vertex: whether the loss is a sum over nodes, so that blocks of nodes may be taken apart; of the class.
        loss_name: what charts call the loss.
        main_metrics: names of metrics that are shares of 1, larger is better; the first that an evaluation has is drawn
            beside the loss.
        columns: K, the length of what :meth:`measure` returns.
        resampled: columns of what :meth:`resample` returns; 0 where the task has no bootstrap.
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
        """Return ``outputs`` for a graph without reading its labels; override it where they are not the class's.

        Args:
            graph: that is trained on.
            hidden: H of the model.
            options: of the task.
        """
        return cls.outputs

    def prepare(self, snapshots: range) -> None:
        """Copy the data for the loss of these snapshots to the device; ``loss`` does so if it has not been done."""

    def labelled(self, t: int) -> bool:
        """Whether the training loss of this snapshot has labelled items, so that it counts in a mean of losses."""

    def loss(self, z: Tensor, snapshots: range, rows: Rows) -> Tensor:
        """What some nodes add to the training loss of some snapshots; it carries the history of ``z``.

        Args:
            z: readout of these nodes, (S, n, outputs).
            snapshots: the S consecutive snapshots ``z`` is of.
            rows: the n nodes; all N where the task is not ``per_vertex``.

        Returns:
            (S,): for each snapshot, the share of these nodes in the mean loss over the snapshot's labelled items;
            the shares of blocks of nodes add up to that mean. 0 where the snapshot has no labelled item.
        """

    def share(self, snapshots: range, rows: Rows) -> Tensor:
        """How much of the training loss some nodes are: (S,), the share of each snapshot's labelled items they hold.

        ``loss`` over it is the mean over these nodes' own items. 0 where they have none, or the snapshot has none.

        Args:
            snapshots: S consecutive ones.
            rows: some nodes; all N where the task is not ``per_vertex``.
        """

    def trains(self) -> NDArray[np.bool_]:
        """Which nodes have a label that the training loss counts, in some snapshot of the training split: (N,)."""

    def measure(self, z: Tensor, t: int, rows: slice, part: str) -> Tensor:
        """What some nodes add to the numbers that the scores of a part are made of, without history.

        Args:
            z: readout of these nodes at snapshot t, (n, outputs).
            t: number of the snapshot.
            rows: the n nodes; all N where the task is not ``per_vertex``.
            part: ``train``, ``validation`` or ``test``, which t belongs to.

        Returns:
            (K,), float64; blocks of nodes add up.
        """

    def scores(self, part: str, sums: NDArray[np.float64], again: NDArray[np.float64] | None = None) -> Scores:
        """The scores of a part from what :meth:`measure` gave for its snapshots, summed over nodes: (S, K).

        Args:
            part: which.
            sums: what was measured.
            again: (S, resampled), what :meth:`resample` gave for the same snapshots; None where it was not asked.
        """

    def resample(self, z: Tensor, t: int) -> Tensor:
        """Metrics of one test snapshot on resampled items, (resampled,), float64; none where ``resampled`` is 0.

        Args:
            z: readout of all N nodes, (N, outputs).
            t: number of the snapshot.
        """
        return z.new_zeros(0, dtype=torch.float64)


def mean_or_none(values: NDArray[np.float64]) -> float | None:
    """The mean of a vector; None where it is empty."""
    return float(values.mean()) if len(values) else None
