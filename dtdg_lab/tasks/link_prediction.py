"""Link prediction: the edges of the next snapshot, against random pairs without an edge."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from dtdg_lab.core.errors import DataError, UnsupportedError
from dtdg_lab.core.rng import generator
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import EdgeSet
from dtdg_lab.graphs.split import Split
from dtdg_lab.kernels.uploads import upload
from dtdg_lab.records.link_metrics import HIGH, LOW, PAIRS, RANKED
from dtdg_lab.tasks.base import Rows, Scores, Task, mean_or_none
from dtdg_lab.tasks.link_samples import NO_VERTEX, LinkSamples, edge_seed, link_samples, ranking_candidates
from dtdg_lab.tasks.metrics import (
    LEAST_POSITIVES,
    RESAMPLES,
    auc_and_average_precision,
    interval,
    reciprocal_ranks,
    resampled,
)


@dataclass(frozen=True, slots=True)
class EdgeBank:
    """The persistence baseline: probabilities of an edge tomorrow, for edges of today and for other pairs.

    Attributes:
        if_edge: probability for an edge of today.
        if_not: probability for another pair.

    Source: EdgeBank of Poursafaei et al. 2022, "Towards better evaluation for dynamic link prediction", with a memory
    of one snapshot; the probabilities, which a loss needs, are ours.
    """

    if_edge: float
    if_not: float

    @classmethod
    def fit(cls, snapshots: Iterable[tuple[EdgeSet, EdgeSet]], *, prior: float) -> EdgeBank:
        """Estimate probabilities by Bayes' rule from the shares of tomorrow's edges and other pairs that exist today.

        One of each kind is added to every count, so that no probability is 0 or 1.

        Args:
            snapshots: the edges today and tomorrow, of each training snapshot.
            prior: share of positives among the scored pairs.
        """
        repeated = edges = gone = absent = 0
        for today, tomorrow in snapshots:
            common = len(np.intersect1d(today.numbers, tomorrow.numbers, assume_unique=True))
            repeated, edges = repeated + common, edges + len(tomorrow)
            gone, absent = gone + len(today) - common, absent + tomorrow.absent
        edge_share, other_share = (repeated + 1) / (edges + 2), (gone + 1) / (absent + 2)
        if_edge = prior * edge_share / (prior * edge_share + (1 - prior) * other_share)
        if_not = prior * (1 - edge_share) / (prior * (1 - edge_share) + (1 - prior) * (1 - other_share))
        return cls(if_edge, if_not)

    def cross_entropy(self, is_edge: Tensor, labels: Tensor) -> float:
        """Return the mean cross-entropy over pairs, from the masks of edges today and tomorrow, (n,)."""
        chance = self.if_not + is_edge.double() * (self.if_edge - self.if_not)
        return float(functional.binary_cross_entropy(chance, labels.double()))


# Significant bits after rounding. Strategies differ in the last bits of 24, or of 53.
BITS = {torch.float32: 14, torch.float64: 30}


def round_noise(z: Tensor) -> Tensor:
    """Round every entry to 14 significant bits (30 in float64), as float64, so that equal nodes tie.

    Each entry keeps its own scale, so a node with large entries does not reduce the others' resolution. Entries below
    their column's median magnitude are rounded to multiples of the median's unit: entries near 0 are differences of
    larger numbers, and as noisy as those. Sums of rounded entries in float64 are equal if the entries are.

    Args:
        z: (N, C), float32 or float64.

    Source: ours.
    """
    precision, z = 2.0 ** -BITS[z.dtype], z.double()
    if not len(z):
        return z
    unit = precision * torch.maximum(_power_above(z), _power_above(z.abs().median(dim=0).values))
    return torch.where(unit > 0, torch.round(z / unit) * unit, z)  # 0, infinite and NaN stay


def _power_above(z: Tensor) -> Tensor:
    """Return the next power of two above each magnitude; 0 for 0."""
    mantissa = torch.frexp(z).mantissa
    return torch.where(z == 0, z, z / mantissa)


_BLOCK = 1 << 22  # numbers of a block of pair products
_CACHED_BYTES = 1 << 28  # of cached ranking candidates of the validation split
_NUMBERS = ("loss", "accuracy", "auc", "average_precision", "mrr")
# columns of a snapshot's measures: three counts, the constant's loss, then the model's numbers and persistence's
_POSITIVES, _NEGATIVES, _RANKED, _CONSTANT, _MODEL, _TODAY = 0, 1, 2, 3, 4, 9


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs on the device, (P + Q,): the first P are edges of the next snapshot."""

    src: Tensor
    dst: Tensor
    labels: Tensor
    positives: int


@dataclass(frozen=True, slots=True)
class _Ranking:
    """Ranking candidates of positives: sources (U,), targets (U, K), and the row of each positive, (P,)."""

    sources: Tensor
    targets: Tensor
    row: Tensor

    @property
    def ranked(self) -> Tensor:
        """The mask of positives with candidates, (P,)."""
        return (self.targets[self.row] != NO_VERTEX).any(dim=1)


class LinkPrediction(Task):
    """Binary cross-entropy of pairs at t: edges of ``graph.following[t]`` against pairs that it does not hold.

    Positives and negatives come from :func:`link_samples`, with a seed that depends only on the edges that labels of
    the training split count (:func:`edge_seed`). So they are the same on every rank, in every run and epoch of a
    protocol, and for all features and smoothings. A pair (u, v) scores w . [h_u ; h_v] + b (``concat``, ESDG) or
    h'_u . h'_v / sqrt(H) with h' the readout (``dot``); above 0 predicts an edge.

    Metrics are means over the split's snapshots with edges: ``accuracy``, ``auc``, ``average_precision``, and ``mrr``,
    which ranks every positive against ``ranking_negatives`` targets without an edge from its source
    (:func:`ranking_candidates`). ``mrr`` leaves out sources with edges to all nodes, and is not computed for the
    training split. Metrics round embeddings to 14 significant bits (30 in float64), so that equal nodes tie
    (:func:`round_noise`); the loss does not.

    In the test split each metric has a 95 % percentile interval over 1,000 bootstrap resamples of the pairs of every
    snapshot (:mod:`dtdg_lab.tasks.metrics`), under ``<name>_low`` and ``<name>_high``, given at least ten positives.
    ``pairs`` counts the scored pairs, ``ranked`` the positives in MRR; see :mod:`dtdg_lab.records.link_metrics`.
    Persistence is :class:`EdgeBank`; the edges of today are those of the previous label.

    Args:
        graph: T labelled snapshots of N nodes, with the snapshots that follow them.
        split: the splits of the sequence.
        device: device of the pairs.
        dtype: type of the labels.
        hidden: width of the readout for ``dot``, H.
        link_share: share of the edges that are positives (theta of ESDG).
        negatives: negatives for each positive.
        ranking_negatives: targets against which each source's positives are ranked.
        link_head: ``concat`` or ``dot``.
        seed: seed of the run, for resampling pairs; it does not choose them.

    Raises:
        UnsupportedError: the graph has no following snapshots.
        DataError: no snapshot of the training split is followed by edges.

    Source: ESDG section 6 (theta = 0.1, as many negatives, concatenated embeddings, accuracy); ROLAND section 5 and
    TGB 2023 (MRR against fixed negatives).
    """

    name = "link"
    needs = ("following",)
    per_vertex = False
    loss_name, main_metrics = "cross-entropy (nats)", ("mrr", "average_precision", "auc", "accuracy")
    columns = _TODAY + len(_NUMBERS)
    resampled = (len(_NUMBERS) - 1) * RESAMPLES

    @classmethod
    def count_outputs(cls, graph: DynamicGraph, *, hidden: int, **options: Any) -> int:
        """Return the columns that the head reads of a node."""
        return 2 if options["link_head"] == "concat" else hidden

    def __init__(
        self,
        graph: DynamicGraph,
        split: Split,
        *,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        hidden: int = 32,
        link_share: float = 0.1,
        negatives: int = 1,
        ranking_negatives: int = 100,
        link_head: str = "concat",
        seed: int = 0,
    ) -> None:
        if graph.following is None:
            raise UnsupportedError(
                f"task='link' on {graph.name!r}, which does not hold the snapshots that follow; it serves "
                f"{', '.join(graph.tasks)}. Rebuild the graph from its edges, or choose another task."
            )
        self._graph, self._following, self._split = graph, graph.following, split
        self._device, self._dtype = device, dtype
        self.outputs = self.count_outputs(graph, hidden=hidden, link_head=link_head)
        self._head, self._share, self._negatives = link_head, link_share, negatives
        self._candidates = ranking_negatives
        self._seed, self._run_seed = edge_seed(self._following[t] for t in split.train), seed
        self._pairs: dict[int, _Pairs] = {}
        self._rankings: dict[int, _Ranking] = {}
        self._today: dict[tuple[int, str], list[float]] = {}
        self._cached_bytes = 0
        if not any(len(EdgeSet(self._following[t])) for t in split.train):
            raise DataError(
                f"no snapshot of the training split of {graph.name!r} ({split.train.start} to {split.train.stop - 1}) "
                "is followed by edges, so link prediction cannot train. Choose another protocol or cut."
            )

    # pairs

    def _samples(self, edges: EdgeSet, t: int) -> LinkSamples:
        return link_samples(edges, seed=self._seed, t=t, share=self._share, negatives=self._negatives)

    def _pairs_of(self, t: int) -> _Pairs:
        if t not in self._pairs:
            samples = self._samples(EdgeSet(self._following[t]), t)
            src, dst = (upload(array, self._device) for array in (samples.src, samples.dst))
            labels = torch.zeros(len(src), dtype=self._dtype, device=self._device)
            labels[: samples.positives] = 1
            self._pairs[t] = _Pairs(src, dst, labels, samples.positives)
        return self._pairs[t]

    def _ranking_of(self, t: int, part: str) -> _Ranking:
        """Return ranking candidates; those of the validation split are cached within a memory limit."""
        if t in self._rankings:
            return self._rankings[t]
        pairs = self._pairs_of(t)
        sources, row = np.unique(pairs.src[: pairs.positives].cpu().numpy(), return_inverse=True)
        targets = ranking_candidates(EdgeSet(self._following[t]), sources, seed=self._seed, t=t, count=self._candidates)
        ranking = _Ranking(*(upload(array, self._device) for array in (sources, targets, row)))
        if part == "validation" and self._cached_bytes + targets.nbytes <= _CACHED_BYTES:
            self._cached_bytes += targets.nbytes
            self._rankings[t] = ranking
        return ranking

    def prepare(self, snapshots: range) -> None:
        """Draw the pairs of these snapshots and move them to the device."""
        for t in snapshots:
            self._pairs_of(t)

    def labelled(self, t: int) -> bool:
        """Return True if edges follow the snapshot."""
        return self._pairs_of(t).positives > 0

    # the model

    def _score(self, z: Tensor, src: Tensor, dst: Tensor) -> Tensor:
        """Return the scores of pairs, (n,)."""
        if self._head == "concat":
            return z[:, 0].index_select(0, src) + z[:, 1].index_select(0, dst)
        return (z.index_select(0, src) * z.index_select(0, dst)).sum(dim=1) / math.sqrt(self.outputs)

    def loss(self, z: Tensor, snapshots: range, rows: Rows) -> Tensor:
        """Return the mean cross-entropy of each snapshot's pairs: (S, N, outputs) -> (S,)."""
        losses = []
        for t, embedded in zip(snapshots, z.unbind(0), strict=True):
            pairs = self._pairs_of(t)
            if len(pairs.src):
                score = self._score(embedded, pairs.src, pairs.dst)
                losses.append(functional.binary_cross_entropy_with_logits(score, pairs.labels))
            else:
                losses.append(embedded.sum() * 0)
        return torch.stack(losses)

    def share(self, snapshots: range, rows: Rows) -> Tensor:
        """Return 1 for each snapshot with pairs, which are not divided between nodes."""
        return torch.tensor([float(self.labelled(t)) for t in snapshots])

    def trains(self) -> NDArray[np.bool_]:
        """Return True for all nodes: any node may be in a pair."""
        return np.ones(self._graph.num_nodes, bool)

    def measure(self, z: Tensor, t: int, rows: slice, part: str) -> Tensor:
        """Return counts, losses and metrics of the snapshot, zeros without following edges: (N, outputs) -> (14,)."""
        pairs, rounded, z = self._pairs_of(t), round_noise(z), z.double()
        zeros = torch.zeros(self.columns, dtype=torch.float64, device=z.device)
        if not pairs.positives:
            return zeros
        loss = functional.binary_cross_entropy_with_logits(self._score(z, pairs.src, pairs.dst), pairs.labels.double())
        score = self._score(rounded, pairs.src, pairs.dst)
        ranking = None if part == "train" else self._ranking_of(t, part)
        ranks = None if ranking is None else self._reciprocal_ranks(rounded, score[: pairs.positives], ranking)
        model = [
            float(loss),
            *_pair_metrics(score > 0, score, pairs),
            0.0 if ranks is None or not len(ranks) else float(ranks.mean()),
        ]
        if (t, part) not in self._today:
            self._today[t, part] = self._persistence(t, pairs, ranking)
        ranked = 0 if ranks is None else len(ranks)
        counts = [pairs.positives, len(pairs.src) - pairs.positives, ranked]
        return zeros.new_tensor([*counts, self._constant_loss(pairs), *model, *self._today[t, part]])

    def _reciprocal_ranks(self, z: Tensor, positive: Tensor, ranking: _Ranking) -> Tensor:
        """Return the reciprocal ranks of positives with candidates."""
        targets, width = ranking.targets, ranking.targets.shape[1]
        scores = torch.full(targets.shape, -torch.inf, dtype=z.dtype, device=z.device)
        step = max(1, _BLOCK // max(width * self.outputs, 1))
        for block in (slice(i, i + step) for i in range(0, len(targets), step)):
            valid = targets[block] != NO_VERTEX
            src = ranking.sources[block, None].expand(valid.shape)[valid]
            scores[block][valid] = self._score(z, src, targets[block][valid])
        ranked = ranking.ranked
        return reciprocal_ranks(positive[ranked], scores, ranking.row[ranked])

    # baselines

    def _today_of(self, t: int) -> EdgeSet:
        """Return the edges of today as labels define them: the edges of the previous label.

        For the first snapshot these are its own edges, which smoothing does not change. With ``strict_label`` it may
        also hold edges older than its newest base interval.
        """
        return EdgeSet(self._following[t - 1] if t else self._graph.snapshots[0])

    @cached_property
    def _edge_bank(self) -> EdgeBank:
        train = ((self._today_of(t), EdgeSet(self._following[t])) for t in self._split.train)
        return EdgeBank.fit(train, prior=1 / (1 + self._negatives))

    def _constant_loss(self, pairs: _Pairs) -> float:
        """Return the mean cross-entropy of predicting 1 / (1 + negatives), the share of positives, for every pair."""
        total, prior = len(pairs.src), 1 / (1 + self._negatives)
        return -(pairs.positives * math.log(prior) + (total - pairs.positives) * math.log1p(-prior)) / total

    def _persistence(self, t: int, pairs: _Pairs, ranking: _Ranking | None) -> list[float]:
        """Return loss and metrics of persistence, in the order of ``_NUMBERS``."""
        today = self._today_of(t)
        is_edge = torch.from_numpy(today.holds(pairs.src.cpu().numpy(), pairs.dst.cpu().numpy()))
        is_edge = is_edge.to(self._device)
        loss = self._edge_bank.cross_entropy(is_edge, pairs.labels)
        numbers = [loss, *_pair_metrics(is_edge, is_edge.double(), pairs), 0.0]
        if ranking is not None and bool((ranked := ranking.ranked).any()):
            src, dst = ranking.sources.cpu().numpy()[:, None], ranking.targets.cpu().numpy()
            absent = dst == NO_VERTEX
            scores = today.holds(np.broadcast_to(src, dst.shape), np.where(absent, 0, dst)).astype(np.float64)
            scores[absent] = -np.inf
            candidates = torch.from_numpy(scores).to(self._device)
            positive = is_edge[: pairs.positives].double()
            numbers[-1] = float(reciprocal_ranks(positive[ranked], candidates, ranking.row[ranked]).mean())
        return numbers

    # scores

    def resample(self, z: Tensor, t: int) -> Tensor:
        """Return accuracy, AUC, average precision and MRR of a test snapshot on resampled pairs, (4,000,)."""
        pairs, rounded = self._pairs_of(t), round_noise(z)
        if not pairs.positives:
            return torch.zeros(self.resampled, dtype=torch.float64, device=z.device)
        score = self._score(rounded, pairs.src, pairs.dst)
        ranks = self._reciprocal_ranks(rounded, score[: pairs.positives], self._ranking_of(t, "test"))
        draws = generator(self._run_seed, "link/bootstrap", t)
        metrics = resampled(score.cpu().numpy(), pairs.positives, ranks.cpu().numpy(), draws)
        return torch.from_numpy(metrics.reshape(-1)).to(z.device)

    def scores(self, part: str, sums: NDArray[np.float64], resamples: NDArray[np.float64] | None = None) -> Scores:
        """Return means over the split's snapshots with following edges, and the numbers of pairs."""
        has_edges = sums[:, _POSITIVES] > 0
        defined = {"auc": has_edges & (sums[:, _NEGATIVES] > 0), "mrr": sums[:, _RANKED] > 0}
        defined["average_precision"] = defined["auc"]
        means: dict[int, dict[str, float | None]] = {
            first: {
                name: mean_or_none(sums[defined.get(name, has_edges), first + index])
                for index, name in enumerate(_NUMBERS)
            }
            for first in (_MODEL, _TODAY)
        }
        model, today = means[_MODEL], means[_TODAY]
        metrics = {name: model[name] for name in _NUMBERS[1:]}
        metrics |= {f"persistence_{name}": today[name] for name in _NUMBERS[1:]}
        metrics |= {PAIRS: float(sums[:, [_POSITIVES, _NEGATIVES]].sum()), RANKED: float(sums[:, _RANKED].sum())}
        if resamples is not None and sums[:, _POSITIVES].sum() >= LEAST_POSITIVES:
            draws = resamples.reshape(len(resamples), len(_NUMBERS) - 1, RESAMPLES)
            for index, name in enumerate(_NUMBERS[1:]):
                is_defined = defined.get(name, has_edges)
                if model[name] is not None:
                    metrics[name + LOW], metrics[name + HIGH] = interval(draws[is_defined, index].mean(axis=0))
        constant = mean_or_none(sums[has_edges, _CONSTANT])
        return Scores(part, model["loss"], today["loss"], constant, int(has_edges.sum()), metrics)


def _pair_metrics(predicted: Tensor, score: Tensor, pairs: _Pairs) -> tuple[float, float, float]:
    """Return accuracy, AUC and average precision; without negatives, AUC and average precision are 0 and ignored."""
    label = pairs.labels > 0
    accuracy = float((predicted == label).double().mean())
    if pairs.positives == len(label):
        return accuracy, 0.0, 0.0
    return accuracy, *auc_and_average_precision(score, label)
