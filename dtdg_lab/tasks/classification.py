"""Node classification: the class of labelled nodes, by cross-entropy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from dtdg_lab.core.errors import DataError, UnsupportedError
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import repeats
from dtdg_lab.graphs.split import Split
from dtdg_lab.kernels.uploads import as_tensor, upload
from dtdg_lab.tasks.base import PARTS, Rows, Scores, Task, mean_or_none
from dtdg_lab.tasks.metrics import accuracy, confusion, f1_of, macro_f1

Ints = NDArray[np.int64]


class LastClass:
    """The persistence baseline: a node keeps its last known class; without one, the class shares of training apply.

    The last class has probability p, the share of training labels that equal the last known class. The other classes
    share 1 - p by frequency. Shares are (count + 1) / (total + number of outcomes), so that none is 0.

    Args:
        counts: labels of each class in the training split, (C,).
        train: the training split, the source of p.
        row: returns the known classes of a snapshot, (N,), -1 if unknown.

    Source: ours.
    """

    def __init__(self, counts: Ints, train: range, row: Callable[[int], Ints]) -> None:
        self._row = row
        self._share = (counts + 1) / (counts.sum() + len(counts))
        repeats_count = total = 0
        for t, last in zip(train, self.before(train), strict=True):
            classes = row(t)
            known = (classes >= 0) & (last >= 0)
            repeats_count, total = repeats_count + int((classes[known] == last[known]).sum()), total + int(known.sum())
        self._stays = (repeats_count + 1) / (total + 2)

    def before(self, snapshots: range) -> Iterator[Ints]:
        """Yield, for each of these snapshots, the last known class of every node, (N,), -1 if there is none."""
        last: Ints | None = None
        for t in range(snapshots.stop):
            classes = self._row(t)
            last = np.full_like(classes, -1) if last is None else last
            if t >= snapshots.start:
                yield last
            last = np.where(classes >= 0, classes, last)

    def cross_entropies(self, true: Ints, last: Ints) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return cross-entropies of persistence and of the constant prediction, for each item, (n,)."""
        constant = -np.log(self._share[true])
        other_share = np.maximum(1 - self._share[last], np.finfo(float).tiny)
        chance = np.where(true == last, self._stays, (1 - self._stays) * self._share[true] / other_share)
        return np.where(last >= 0, -np.log(chance), constant), constant


UNLABELLED = -1


class Classification(Task):
    """Cross-entropy of C classes over the labelled nodes of a snapshot: those with ``graph.classes[t, v] >= 0``.

    If the data set splits its nodes (``graph.vertex_split``), a split's loss and metrics are over its nodes in its
    snapshots. Metrics over all labelled items of a split: ``accuracy``, ``macro_f1`` (mean over classes that occur or
    are predicted), ``rarest_f1`` (of the class with the fewest training labels), and ``majority_accuracy`` (of always
    predicting the most common training class). Persistence is :class:`LastClass`.

    Args:
        graph: T labelled snapshots of N nodes, with classes.
        split: the splits of the sequence.
        device: device of the labels.
        dtype: type of losses; labels are integers.

    Raises:
        UnsupportedError: the graph has no classes.
        DataError: no node is labelled in the training split.

    Source: DynaHB section 6.1, Table 1 (Cora-T, Pubmed-T), EvolveGCN section 4.2 (F1 of the minority class).

    Differs from the papers: classes are not weighted (EvolveGCN weighs Elliptic's).
    """

    name = "classification"
    needs = ("classes",)
    per_vertex = True
    loss_name, main_metrics = "cross-entropy (nats)", ("accuracy", "macro_f1")

    @classmethod
    def count_outputs(cls, graph: DynamicGraph, *, hidden: int, **options: Any) -> int:
        """Return the number of classes."""
        return max(graph.num_classes, 1)

    def __init__(
        self, graph: DynamicGraph, split: Split, *, device: str = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        if graph.classes is None or not graph.num_classes:
            raise UnsupportedError(
                f"task='classification' on {graph.name!r}, which has no classes; it serves {', '.join(graph.tasks)}. "
                "Give classes with the graph, or choose another task."
            )
        self._classes, self._vertex_split = graph.classes, graph.vertex_split
        self._split, self._device, self._dtype = split, device, dtype
        self._static = repeats(self._classes)  # one row stands for all snapshots
        self.outputs = graph.num_classes
        self.columns = 2 + self.outputs**2
        self._labels: dict[tuple[int, str], tuple[Tensor, Tensor, int]] = {}
        self._divisors: dict[tuple[range, torch.dtype], Tensor] = {}
        counts = sum(
            (np.bincount(labels[labels >= 0], minlength=self.outputs) for labels in map(self._train_row, split.train)),
            np.zeros(self.outputs, dtype=np.int64),
        )
        if not counts.sum():
            raise DataError(
                f"no node of {graph.name!r} is labelled in the training split (snapshots {split.train.start} to "
                f"{split.train.stop - 1}), so classification cannot train. Choose another protocol or cut."
            )
        self._most_common = int(np.argmax(counts))
        self._rarest = int(np.argmin(np.where(counts > 0, counts, counts.max() + 1)))
        self._last_class = LastClass(counts, split.train, self._train_row)
        self._baselines: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

    # labels

    def _row(self, t: int, part: str) -> NDArray[np.int64]:
        """Return classes of the split's nodes at t, -1 elsewhere; (N,)."""
        row = np.asarray(self._classes[t], dtype=np.int64)
        if self._vertex_split is None:
            return row
        return np.where(self._vertex_split == PARTS.index(part), row, UNLABELLED)

    def _train_row(self, t: int) -> NDArray[np.int64]:
        return self._row(t, "train")

    def _label(self, t: int, part: str) -> tuple[Tensor, Tensor, int]:
        """Return the split's labels at t on the device and on the CPU, and their number."""
        key = (0 if self._static else t, part if self._vertex_split is not None else "")
        if key not in self._labels:
            row = self._row(t, part)
            self._labels[key] = (upload(row, self._device), as_tensor(row), int((row >= 0).sum()))
        return self._labels[key]

    def prepare(self, snapshots: range) -> None:
        """Move the training labels of these snapshots, and their numbers, to the device."""
        for t in snapshots:
            self._label(t, "train")
            self._divisor(range(t, t + 1), self._dtype)

    def labelled(self, t: int) -> bool:
        """Return True if a training node is labelled at the snapshot."""
        return self._label(t, "train")[2] > 0

    # the model

    def loss(self, z: Tensor, snapshots: range, rows: Rows) -> Tensor:
        """Return cross-entropies of these nodes over the number of labels of each snapshot: (S, n, C) -> (S,)."""
        true = torch.stack([self._label(t, "train")[0][rows] for t in snapshots])
        losses = functional.cross_entropy(
            z.flatten(0, 1), true.flatten(), ignore_index=UNLABELLED, reduction="none"
        ).view(true.shape)
        return losses.sum(dim=1) / self._divisor(snapshots, z.dtype)

    def _divisor(self, snapshots: range, dtype: torch.dtype) -> Tensor:
        """Return the number of training labels of each snapshot, at least 1, on the device; copied there once."""
        key = snapshots, dtype
        if key not in self._divisors:
            counts = [max(self._label(t, "train")[2], 1) for t in snapshots]
            self._divisors[key] = upload(torch.tensor(counts, dtype=dtype), self._device)
        return self._divisors[key]

    def share(self, snapshots: range, rows: Rows) -> Tensor:
        """Return labels of these nodes over all labels of the snapshot."""
        _, labels, counts = zip(*(self._label(t, "train") for t in snapshots), strict=True)
        items = torch.stack([(label[rows] >= 0).sum() for label in labels])
        return items / torch.tensor([max(count, 1) for count in counts], dtype=torch.float64)

    def trains(self) -> NDArray[np.bool_]:
        """Return the nodes that are labelled at some snapshot of the training split."""
        rows = [self._train_row(t) >= 0 for t in (self._split.train[:1] if self._static else self._split.train)]
        return np.logical_or.reduce(rows)

    def measure(self, z: Tensor, t: int, rows: slice, part: str) -> Tensor:
        """Return the sum of cross-entropies, the number of labels, and the confusion table: (n, C) -> (2 + C * C,)."""
        label = self._label(t, part)[0][rows]
        is_labelled = label >= 0
        label, z = label[is_labelled], z[is_labelled].double()
        loss = functional.cross_entropy(z, label, reduction="sum")
        table = torch.bincount(label * self.outputs + z.argmax(dim=1), minlength=self.outputs**2).double()
        return torch.cat([torch.stack([loss, is_labelled.sum().double()]), table])

    def scores(self, part: str, sums: NDArray[np.float64], resamples: NDArray[np.float64] | None = None) -> Scores:
        """Return losses as means over snapshots with labels, and metrics over all labelled items of the split."""
        losses, counts = sums[:, 0], sums[:, 1]
        labelled = counts > 0
        baseline, today = self._baseline(part)
        metrics: dict[str, float | None] = {}
        for prefix, table in (("", sums[:, 2:].sum(axis=0).reshape(self.outputs, -1)), ("persistence_", today)):
            metrics[f"{prefix}accuracy"] = accuracy(table)
            metrics[f"{prefix}macro_f1"] = macro_f1(table)
            metrics[f"{prefix}rarest_f1"] = f1_of(table, self._rarest)
        items = today.sum()
        metrics["majority_accuracy"] = float(today[self._most_common].sum() / items) if items else None
        loss = mean_or_none(losses[labelled] / counts[labelled])
        persistence, constant = (mean_or_none(values) for values in baseline[labelled].T)
        return Scores(part, loss, persistence, constant, int(labelled.sum()), metrics)

    # baselines

    def _baseline(self, part: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean losses of persistence and the constant by snapshot, (S, 2), and persistence's table, (C, C)."""
        if part not in self._baselines:
            losses, table = [], np.zeros((self.outputs, self.outputs))
            snapshots = getattr(self._split, part)
            for t, last_known in zip(snapshots, self._last_class.before(snapshots), strict=True):
                row = self._row(t, part)
                items = row >= 0
                true, last = row[items], last_known[items]
                losses.append([mean_or_none(values) or 0.0 for values in self._last_class.cross_entropies(true, last)])
                guess = np.where(last >= 0, last, self._most_common)
                table += confusion(true, guess, self.outputs)
            self._baselines[part] = np.array(losses).reshape(-1, 2), table
        return self._baselines[part]
