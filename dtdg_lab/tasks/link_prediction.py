"""Link prediction: seeded negatives, heads, and the EdgeBank baseline."""

from __future__ import annotations

import hashlib
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
from dtdg_lab.graphs.sealed import for_a_hash
from dtdg_lab.graphs.snapshot import EdgeSet, Ints, Snapshot
from dtdg_lab.graphs.split import Split
from dtdg_lab.records.link_metrics import HIGH, LOW, PAIRS, RANKED
from dtdg_lab.tasks.base import Rows, Scores, Task, mean_or_none
from dtdg_lab.tasks.metrics import (
    LEAST_POSITIVES,
    RESAMPLES,
    auc_and_average_precision,
    interval,
    reciprocal_ranks,
    resampled,
)

# What link prediction is asked about: some edges, random pairs that are none, and targets to rank edges against.
#
# Every draw is a function of (seed, snapshot): the seed is made of the edges to be predicted, so that the same edges
# give the same pairs on every rank and in every run, and nothing needs to be stored.


NO_VERTEX = -1  # fills rows of ranking candidates that have fewer than the others
_CANDIDATES_AT_ONCE = 1 << 20  # candidates drawn at once, so that little memory is needed beside them


@dataclass(frozen=True, slots=True, eq=False)
class LinkSamples:
    """P edges and Q pairs of different nodes that are no edges, each in the order of (source, target).

    Attributes:
        src: shape (P + Q,), int32: sources, the edges' first.
        dst: shape (P + Q,), int32: targets.
        positives: P.
    """

    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    positives: int


def link_samples(edges: EdgeSet, *, seed: int, t: int, share: float, negatives: int) -> LinkSamples:
    """A share of the edges, drawn without repetition, and ``negatives`` as many other pairs.

    Args:
        edges: the edges to be predicted; self loops are none.
        seed: of the data.
        t: number of the snapshot.
        share: share of the edges that are taken, rounded, at least 1 where there are edges (theta of ESDG).
        negatives: pairs for each edge taken, out of all pairs of different nodes that are no edges, all equally
            likely and none twice; all of them where there are fewer.

    Source: ESDG section 6 (theta = 0.1, as many negatives); the seed is ours.
    """
    count = max(1, math.floor(share * len(edges) + 0.5)) if len(edges) else 0
    draw = generator(seed, "link/positives", t)
    chosen = np.sort(draw.choice(len(edges), count, replace=False, shuffle=False)) if count else np.zeros(0, np.int64)
    wanted = min(count * negatives, edges.absent)
    draw = generator(seed, "link/negatives", t)
    order = np.sort(draw.choice(edges.absent, wanted, replace=False, shuffle=False)) if wanted else chosen[:0]
    src, dst = edges.pairs(np.concatenate([edges.numbers[chosen], edges.nth_absent(order)]))
    return LinkSamples(src, dst, count)


def ranking_candidates(
    edges: EdgeSet, sources: NDArray[np.int32], *, seed: int, t: int, count: int
) -> NDArray[np.int32]:
    """For each source, targets that it has no edge to, itself excluded; shape (U, K), K at most ``count``.

    The M targets without an edge from a source are divided into ``count`` equal stretches from a random start, and one
    is drawn from each: every target is equally likely, and none comes twice. A source with M <= ``count`` gets all M;
    the rest of its row is ``NO_VERTEX``.

    Args:
        edges: the edges to be predicted.
        sources: shape (U,): distinct nodes.
        seed: of the data.
        t: number of the snapshot.
        count: targets wanted for each source.

    Source: ROLAND section 5 draws 1,000 such targets for each source; the stretches are ours.
    """
    first, available = edges.absent_from(sources)
    taken = np.minimum(available, count)
    width = int(taken.max(initial=0))
    draw = generator(seed, "link/ranking", t)
    start = (draw.random(len(sources)) * available).astype(np.int64)
    found = np.empty((len(sources), width), dtype=np.int32)
    step = max(1, _CANDIDATES_AT_ONCE // max(width, 1))
    for block in (slice(i, i + step) for i in range(0, len(sources), step)):
        order = _one_of_each_stretch(draw, available[block, None], taken[block, None], start[block, None], width)
        valid = np.arange(width) < taken[block, None]
        numbers = edges.nth_absent(np.where(valid, first[block, None] + order, 0))
        found[block] = np.where(valid, edges.pairs(numbers)[1], np.int32(NO_VERTEX))
    return found


def _one_of_each_stretch(
    draw: np.random.Generator, available: Ints, taken: Ints, start: Ints, width: int
) -> NDArray[np.int64]:
    """Places among ``available`` ones, (rows, width): the first ``taken`` of each row count and are all different."""
    # bounds by whole numbers, so that neighbouring stretches share no place
    bounds = np.minimum(np.arange(width + 1), taken) * available // np.maximum(taken, 1)
    low, length = bounds[:, :-1], np.diff(bounds, axis=1)
    within = low + (draw.random(length.shape) * length).astype(np.int64)
    return np.asarray((within + start) % np.maximum(available, 1))


# Persistence for edges: what is an edge today is one tomorrow, as surely as that held in the training split.


@dataclass(frozen=True, slots=True)
class EdgeBank:
    """Chances that a pair is a positive, given that it is an edge today, or that it is none.

    Attributes:
        if_edge: chance for a pair that is an edge today.
        if_not: chance for one that is none.

    Source: EdgeBank of Poursafaei et al. 2022, "Towards better evaluation for dynamic link prediction", with a memory
    of one snapshot; the chances, which a loss needs, are ours.
    """

    if_edge: float
    if_not: float

    @classmethod
    def fit(cls, snapshots: Iterable[tuple[EdgeSet, EdgeSet]], *, prior: float) -> EdgeBank:
        """Chances by Bayes' rule from how often edges of tomorrow, and other pairs, are edges today.

        One of each kind is added to every count, so that no chance is 0 or 1.

        Args:
            snapshots: the edges today and tomorrow, of each training snapshot.
            prior: share of positives among the pairs asked about.
        """
        kept = edges = gone = absent = 0
        for today, tomorrow in snapshots:
            both = len(np.intersect1d(today.numbers, tomorrow.numbers, assume_unique=True))
            kept, edges = kept + both, edges + len(tomorrow)
            gone, absent = gone + len(today) - both, absent + tomorrow.absent
        of_edges, of_others = (kept + 1) / (edges + 2), (gone + 1) / (absent + 2)
        if_edge = prior * of_edges / (prior * of_edges + (1 - prior) * of_others)
        if_not = prior * (1 - of_edges) / (prior * (1 - of_edges) + (1 - prior) * (1 - of_others))
        return cls(if_edge, if_not)

    def cross_entropy(self, held: Tensor, labels: Tensor) -> float:
        """Mean over pairs, (n,): ``held`` says which are edges today, ``labels`` which will be."""
        chance = self.if_not + held.double() * (self.if_edge - self.if_not)
        return float(functional.binary_cross_entropy(chance, labels.double()))


# A seed that is made of a graph's edges, and of nothing else that the graph holds.


_TAKEN = 4096  # sources, and rows, that are read of a snapshot: large graphs lie on disk


def edge_seed(snapshots: Iterable[Snapshot]) -> int:
    """A number below 2^256 that other edges change, and features, labels, weights and smoothing do not.

    Numbers of nodes and edges of every snapshot enter, and about ``_TAKEN`` of its edges, evenly spaced; all of them
    where there are no more. It seeds draws: graphs that agree in these may as well share it.

    Args:
        snapshots: one after the other; none is kept.

    Source: ours.
    """
    digest = hashlib.sha256(b"dtdg-lab edges 1")
    for snapshot in snapshots:
        digest.update(f"{snapshot.num_nodes},{snapshot.num_edges};".encode())
        for array, type_ in ((snapshot.indptr, np.int64), (snapshot.indices, np.int32)):
            taken = array[:: max(1, len(array) // _TAKEN)]
            digest.update(np.ascontiguousarray(taken, dtype=type_).tobytes())
    return int(digest.hexdigest(), 16)


# Rounding of embeddings, so that nodes that are alike tie whatever the order in which a layout sums.


# Bits that are kept of an entry. What layouts differ by is some last bits of 24, or of 53.
BITS = {torch.float32: 14, torch.float64: 30}


def round_noise(z: Tensor) -> Tensor:
    """Every entry rounded to 14 significant bits (30 in float64), as float64; shape (N, C), as given.

    Each entry keeps its own scale, so that a node with large entries leaves the others' resolution alone. Entries
    below their column's median magnitude are rounded to multiples of what the median is: those near 0 are differences
    of larger numbers, and as noisy as these.

    Scores that are summed of rounded entries in float64 are equal where the entries are equal.

    Args:
        z: (N, C), float32 or float64.

    Source: ours.
    """
    kept, z = 2.0 ** -BITS[z.dtype], z.double()
    if not len(z):
        return z
    unit = kept * torch.maximum(_power_above(z), _power_above(z.abs().median(dim=0).values))
    return torch.where(unit > 0, torch.round(z / unit) * unit, z)  # 0, infinite and NaN stay


def _power_above(z: Tensor) -> Tensor:
    """The power of two that is next above each magnitude; 0 for 0."""
    mantissa = torch.frexp(z).mantissa
    return torch.where(z == 0, z, z / mantissa)


# Link prediction: which edges the next snapshot has, against random pairs that it has not.


_BLOCK = 1 << 22  # numbers of a block of pair products
_KEPT_BYTES = 1 << 28  # ranking candidates of the validation split that are kept rather than drawn again
_OWN = ("loss", "accuracy", "auc", "average_precision", "mrr")
# what is measured of a snapshot: three counts, the constant's loss, then the model's numbers and persistence's
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
    """What positives are ranked against: sources (U,), targets (U, K), and the row of each positive, (P,)."""

    sources: Tensor
    targets: Tensor
    row: Tensor

    @property
    def ranked(self) -> Tensor:
        """Which positives have anything to be ranked against, (P,)."""
        return (self.targets[self.row] != NO_VERTEX).any(dim=1)


class LinkPrediction(Task):
    """Binary cross-entropy of pairs at t: edges of ``graph.following[t]`` against pairs that it does not hold.

    Positives and negatives are those of :func:`link_samples`, drawn from a seed made of
    ``graph.following`` alone (:func:`edge_seed`), so that every rank, run and epoch has
    the same, whatever features or smoothing the model is given. A pair (u, v) scores w . [h_u ; h_v] + b (``concat``,
    ESDG) or h'_u . h'_v / sqrt(H) with h' the readout (``dot``); above 0 means an edge.

    Metrics, each the mean over the part's snapshots that have edges: ``accuracy``, ``auc``, ``average_precision``, and
    ``mrr``: every positive is ranked against ``ranking_negatives`` targets that its source has no edge to
    (:func:`ranking_candidates`); those whose source has edges to all are left out. ``mrr`` is
    not computed for the training split. Metrics score embeddings rounded to 14 significant bits (30 in float64), so
    that nodes that are alike tie (:func:`round_noise`); the loss scores them as they
    are. Of the test split each metric has a 95 % percentile interval over 1,000 bootstrap resamples of the pairs of
    every snapshot (:mod:`dtdg_lab.tasks.metrics`), under ``<name>_low`` and ``<name>_high``; none of fewer than ten
    positives. ``pairs`` are all that were scored, ``ranked`` the positives that MRR is of; see
    :mod:`dtdg_lab.records.link_metrics`. Persistence is :class:`EdgeBank`: the edges that the label before counted are
    those of today.

    Args:
        graph: T labelled snapshots of N nodes, with the snapshots that follow them.
        split: the parts of the sequence.
        device: where pairs are kept.
        dtype: type of the labels.
        hidden: H, width of the readout for ``dot``.
        link_share: share of the edges that are positives (theta of ESDG).
        negatives: negatives for each positive.
        ranking_negatives: targets each source's positives are ranked against.
        link_head: ``concat`` or ``dot``.
        seed: of the run, which resamples pairs; it does not choose them.

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
    columns = _TODAY + len(_OWN)
    resampled = (len(_OWN) - 1) * RESAMPLES

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
        self._seed, self._run_seed = edge_seed(for_a_hash(graph.following)), seed
        self._pairs: dict[int, _Pairs] = {}
        self._rankings: dict[int, _Ranking] = {}
        self._today: dict[tuple[int, str], list[float]] = {}
        self._kept_bytes = 0
        if not any(len(EdgeSet(self._following[t])) for t in split.train):
            raise DataError(
                f"no snapshot of the training split of {graph.name!r} ({split.train.start} to {split.train.stop - 1}) "
                "is followed by edges: link prediction has nothing to learn from. Choose another protocol or cut."
            )

    # pairs

    def _samples(self, edges: EdgeSet, t: int) -> LinkSamples:
        return link_samples(edges, seed=self._seed, t=t, share=self._share, negatives=self._negatives)

    def _pairs_of(self, t: int) -> _Pairs:
        if t not in self._pairs:
            samples = self._samples(EdgeSet(self._following[t]), t)
            src, dst = (torch.tensor(array, device=self._device) for array in (samples.src, samples.dst))
            labels = torch.zeros(len(src), dtype=self._dtype, device=self._device)
            labels[: samples.positives] = 1
            self._pairs[t] = _Pairs(src, dst, labels, samples.positives)
        return self._pairs[t]

    def _ranking_of(self, t: int, part: str) -> _Ranking:
        """Kept for validation, which is evaluated often, while memory allows; drawn again elsewhere."""
        if t in self._rankings:
            return self._rankings[t]
        pairs = self._pairs_of(t)
        sources, row = np.unique(pairs.src[: pairs.positives].cpu().numpy(), return_inverse=True)
        targets = ranking_candidates(EdgeSet(self._following[t]), sources, seed=self._seed, t=t, count=self._candidates)
        found = _Ranking(*(torch.tensor(array, device=self._device) for array in (sources, targets, row)))
        if part == "validation" and self._kept_bytes + targets.nbytes <= _KEPT_BYTES:
            self._kept_bytes += targets.nbytes
            self._rankings[t] = found
        return found

    def prepare(self, snapshots: range) -> None:
        """Draw the pairs of these snapshots and move them to the device."""
        for t in snapshots:
            self._pairs_of(t)

    def labelled(self, t: int) -> bool:
        """Whether edges follow the snapshot."""
        return self._pairs_of(t).positives > 0

    # the model

    def _score(self, z: Tensor, src: Tensor, dst: Tensor) -> Tensor:
        """Scores of pairs, (n,)."""
        if self._head == "concat":
            return z[:, 0].index_select(0, src) + z[:, 1].index_select(0, dst)
        return (z.index_select(0, src) * z.index_select(0, dst)).sum(dim=1) / math.sqrt(self.outputs)

    def loss(self, z: Tensor, snapshots: range, rows: Rows) -> Tensor:
        """(S, N, outputs) -> (S,): mean cross-entropy of each snapshot's pairs."""
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
        """All pairs of each snapshot that has any: pairs are not taken apart."""
        return torch.tensor([float(self.labelled(t)) for t in snapshots], device=self._device)

    def trains(self) -> NDArray[np.bool_]:
        """All: any node may be in a pair."""
        return np.ones(self._graph.num_nodes, bool)

    def measure(self, z: Tensor, t: int, rows: slice, part: str) -> Tensor:
        """(N, outputs) -> (14,): counts, losses and metrics of the snapshot; zeros where it is followed by no edge."""
        pairs, rounded, z = self._pairs_of(t), round_noise(z), z.double()
        found = torch.zeros(self.columns, dtype=torch.float64, device=z.device)
        if not pairs.positives:
            return found
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
        return found.new_tensor([*counts, self._constant_loss(pairs), *model, *self._today[t, part]])

    def _reciprocal_ranks(self, z: Tensor, positive: Tensor, ranking: _Ranking) -> Tensor:
        """Of the positives that are ranked at all."""
        targets, width = ranking.targets, ranking.targets.shape[1]
        scores = torch.full(targets.shape, -torch.inf, dtype=z.dtype, device=z.device)
        step = max(1, _BLOCK // max(width * self.outputs, 1))
        for block in (slice(i, i + step) for i in range(0, len(targets), step)):
            valid = targets[block] != NO_VERTEX
            src = ranking.sources[block, None].expand(valid.shape)[valid]
            scores[block][valid] = self._score(z, src, targets[block][valid])
        ranked = ranking.ranked
        return reciprocal_ranks(positive[ranked], scores, ranking.row[ranked])

    # predictors that learn nothing

    def _today_of(self, t: int) -> EdgeSet:
        """The edges of today as labels count them: those that the label before counted.

        The first snapshot has no label before it. There it is the snapshot, which smoothing leaves as it is; with
        ``strict_label`` it may hold edges that are older than its newest base interval, which is not known by itself.
        """
        return EdgeSet(self._following[t - 1] if t else self._graph.snapshots[0])

    @cached_property
    def _edge_bank(self) -> EdgeBank:
        train = ((self._today_of(t), EdgeSet(self._following[t])) for t in self._split.train)
        return EdgeBank.fit(train, prior=1 / (1 + self._negatives))

    def _constant_loss(self, pairs: _Pairs) -> float:
        """Mean cross-entropy of predicting 1 / (1 + negatives), the share of positives, for every pair."""
        total, prior = len(pairs.src), 1 / (1 + self._negatives)
        return -(pairs.positives * math.log(prior) + (total - pairs.positives) * math.log1p(-prior)) / total

    def _persistence(self, t: int, pairs: _Pairs, ranking: _Ranking | None) -> list[float]:
        """The numbers of ``_OWN`` for "an edge today is one tomorrow"."""
        today = self._today_of(t)
        held = torch.from_numpy(today.holds(pairs.src.cpu().numpy(), pairs.dst.cpu().numpy()))
        held = held.to(self._device)
        loss = self._edge_bank.cross_entropy(held, pairs.labels)
        found = [loss, *_pair_metrics(held, held.double(), pairs), 0.0]
        if ranking is not None and bool((ranked := ranking.ranked).any()):
            src, dst = ranking.sources.cpu().numpy()[:, None], ranking.targets.cpu().numpy()
            absent = dst == NO_VERTEX
            scores = today.holds(np.broadcast_to(src, dst.shape), np.where(absent, 0, dst)).astype(np.float64)
            scores[absent] = -np.inf
            candidates = torch.from_numpy(scores).to(self._device)
            positive = held[: pairs.positives].double()
            found[-1] = float(reciprocal_ranks(positive[ranked], candidates, ranking.row[ranked]).mean())
        return found

    # scores

    def resample(self, z: Tensor, t: int) -> Tensor:
        """(N, outputs) -> (4,000,): accuracy, AUC, average precision and MRR of a test snapshot on resampled pairs."""
        pairs, rounded = self._pairs_of(t), round_noise(z)
        if not pairs.positives:
            return torch.zeros(self.resampled, dtype=torch.float64, device=z.device)
        score = self._score(rounded, pairs.src, pairs.dst)
        ranks = self._reciprocal_ranks(rounded, score[: pairs.positives], self._ranking_of(t, "test"))
        draws = generator(self._run_seed, "link/bootstrap", t)
        found = resampled(score.cpu().numpy(), pairs.positives, ranks.cpu().numpy(), draws)
        return torch.from_numpy(found.reshape(-1)).to(z.device)

    def scores(self, part: str, sums: NDArray[np.float64], again: NDArray[np.float64] | None = None) -> Scores:
        """Means over the part's snapshots that are followed by edges, with the pairs that they are of."""
        has_edges = sums[:, _POSITIVES] > 0
        defined = {"auc": has_edges & (sums[:, _NEGATIVES] > 0), "mrr": sums[:, _RANKED] > 0}
        defined["average_precision"] = defined["auc"]
        means: dict[int, dict[str, float | None]] = {
            first: {
                name: mean_or_none(sums[defined.get(name, has_edges), first + place]) for place, name in enumerate(_OWN)
            }
            for first in (_MODEL, _TODAY)
        }
        own, today = means[_MODEL], means[_TODAY]
        metrics = {name: own[name] for name in _OWN[1:]}
        metrics |= {f"persistence_{name}": today[name] for name in _OWN[1:]}
        metrics |= {PAIRS: float(sums[:, [_POSITIVES, _NEGATIVES]].sum()), RANKED: float(sums[:, _RANKED].sum())}
        if again is not None and sums[:, _POSITIVES].sum() >= LEAST_POSITIVES:
            draws = again.reshape(len(again), len(_OWN) - 1, RESAMPLES)
            for place, name in enumerate(_OWN[1:]):
                there = defined.get(name, has_edges)
                if own[name] is not None:
                    metrics[name + LOW], metrics[name + HIGH] = interval(draws[there, place].mean(axis=0))
        constant = mean_or_none(sums[has_edges, _CONSTANT])
        return Scores(part, own["loss"], today["loss"], constant, int(has_edges.sum()), metrics)


def _pair_metrics(said: Tensor, score: Tensor, pairs: _Pairs) -> tuple[float, float, float]:
    """Accuracy, AUC and average precision; the latter two are 0 and not counted where there are no negatives."""
    label = pairs.labels > 0
    accuracy = float((said == label).double().mean())
    if pairs.positives == len(label):
        return accuracy, 0.0, 0.0
    return accuracy, *auc_and_average_precision(score, label)
