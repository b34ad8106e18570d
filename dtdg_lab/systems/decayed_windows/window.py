"""Temporal decay (FlareDTDG): window shapes, surviving chunks, shrunken edges, memory, the tuner of K and alpha."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, PlanError, shortened
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.core.plans import Chunking, HybridBatch, SurvivalOrder
from dtdg_lab.core.rng import generator
from dtdg_lab.graphs.snapshot import Snapshot

# How many chunks of each part the decayed snapshots of a window have.


RULES = ("text", "ladder")
_ROUNDING = 1e-9  # what a product of floats may miss a whole number by, and still be taken for it


def decayed_counts(rule: str, *, chunks: int, alpha: float, decayed: int) -> tuple[int, ...]:
    """Chunks of each decayed snapshot, newest first; at least one, and never more than in a newer one.

    ``text``: each has floor(beta times those of the one after it), from C on; beta is the m-th root of alpha, so that
    the oldest has about alpha C. ``ladder``: geometric from ceil(alpha C) for the newest down to 1 for the oldest, each
    rung rounded up; where one is decayed, it has ceil(alpha C).

    Args:
        rule: ``text`` or ``ladder``.
        chunks: C, of a part.
        alpha: above 0, at most 1.
        decayed: m; none give an empty tuple.

    Raises:
        ConfigError: a value is not allowed.

    References: FlareDTDG section 3.2 (``text``), and its released code (``ladder``, where it is ``auto:alpha``), which
        also fits the savings of memory that the paper reports.
    Differs from the released code: a rung that floats put less than 1e-9 above a whole number is that number. The
        oldest snapshot of a ladder keeps one chunk whatever alpha is, so ``ladder`` with alpha = 1 is not full history.
    """
    if rule not in RULES:
        raise ConfigError(f"decay={shortened(rule)}: {' and '.join(RULES)} are allowed.")
    if not 0 < alpha <= 1:
        raise ConfigError(f"alpha={shortened(alpha)}: a share of chunks above 0 and at most 1 is needed.")
    if chunks < 1 or decayed < 0:
        raise ConfigError(f"{chunks} chunks and {decayed} decayed snapshots: at least 1 and at least 0 are needed.")
    return _text(chunks, alpha, decayed) if rule == "text" else _ladder(chunks, alpha, decayed)


def kept_share(counts: Sequence[int], *, chunks: int, full: int) -> float:
    """Rows a window has of those it would have if every snapshot were full, where all chunks are alike; 0 to 1.

    Args:
        counts: chunks of each decayed snapshot.
        chunks: C, of a full one.
        full: K, how many are full.

    Raises:
        ConfigError: there is no snapshot, or no chunk.
    """
    snapshots = full + len(counts)
    if snapshots < 1 or chunks < 1:
        raise ConfigError(
            f"the share of rows in {snapshots} snapshots of {chunks} chunks: at least 1 of each is needed."
        )
    return (full * chunks + sum(counts)) / (snapshots * chunks)


def _text(chunks: int, alpha: float, decayed: int) -> tuple[int, ...]:
    counts: list[int] = []
    for _ in range(decayed):
        before = counts[-1] if counts else chunks
        counts.append(max(1, math.floor(alpha ** (1 / decayed) * before + _ROUNDING)))
    return tuple(counts)


def _ladder(chunks: int, alpha: float, decayed: int) -> tuple[int, ...]:
    top = max(1, math.ceil(alpha * chunks - _ROUNDING))
    steps = max(1, decayed - 1)
    return tuple(math.ceil(top ** (1 - place / steps) - _ROUNDING) for place in range(decayed))


# Greedy choice of K and alpha: one step to the neighbouring setting of the lowest validation loss, within memory.


ALPHA_STEP = 0.1
LEAST_ALPHA = 0.1  # that tuning goes down to: the paper's tuning begins there, and a step below it would leave none
LEAST_GAIN = 1e-4  # relative: below it a neighbour is no better, only differently rounded
_MOST_ALPHA = OPTIONS["alpha"].high or 1.0
_DIGITS = 6  # steps of 0.1 that are added up would leave 0.30000000000000004


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """A point of the K x alpha map; of two, the smaller one has fewer full snapshots, then fewer chunks.

    Attributes:
        full_snapshots: K, 1 or more.
        alpha: in (0, 1].

    Raises:
        PlanError: a number is out of its bounds.
    """

    full_snapshots: int
    alpha: float

    def __post_init__(self) -> None:
        if self.full_snapshots < 1 or not 0 < self.alpha <= 1:
            raise PlanError(
                f"full_snapshots={self.full_snapshots}, alpha={self.alpha}: at least 1 full snapshot and an alpha in "
                "(0, 1] are needed."
            )


def neighbours(at: Setting, *, window: int) -> tuple[Setting, ...]:
    """The settings one step away, smaller ones first: K-1, alpha-0.1, alpha+0.1, K+1, as far as they are allowed.

    K stays within 1 .. window, alpha within ``LEAST_ALPHA`` .. 1: a step that would lead beyond ends at the bound, and
    from an alpha at or below the least one there is no step down. Where all snapshots are full (K = window), alpha says
    nothing, and only K-1 is a neighbour.

    Args:
        at: the present setting; a K above ``window`` counts as ``window``.
        window: snapshots of a batch, W.
    """
    full, alpha = min(at.full_snapshots, window), at.alpha
    fewer = [Setting(full - 1, alpha)] if full > 1 else []
    if full == window:
        return tuple(fewer)
    down = min(alpha, max(round(alpha - ALPHA_STEP, _DIGITS), LEAST_ALPHA))
    up = min(round(alpha + ALPHA_STEP, _DIGITS), _MOST_ALPHA)
    beside = [Setting(full, value) for value in (down, up) if value != alpha]
    return (*fewer, *beside, Setting(full + 1, alpha))


def candidates(
    at: Setting, *, window: int, predicted: Callable[[Setting], float], most_bytes: float
) -> tuple[Setting, ...]:
    """The neighbours worth asking about: those whose predicted peak is within the budget.

    Where the present setting is over the budget itself and no neighbour is within it, the one that needs least is the
    only candidate, if it needs less than the present one: several decisions then lead back into the budget.

    Args:
        at: the present setting.
        window: snapshots of a batch, W.
        predicted: setting -> peak bytes of a step on the largest rank.
        most_bytes: the budget.
    """
    around = neighbours(at, window=window)
    within = tuple(setting for setting in around if predicted(setting) <= most_bytes)
    if within or predicted(at) <= most_bytes:
        return within
    smaller = [setting for setting in around if predicted(setting) < predicted(at)]
    return (min(smaller, key=predicted),) if smaller else ()


def next_setting(at: Setting, values: Mapping[Setting, float], *, must_leave: bool = False) -> Setting:
    """The setting to go on with: the best candidate if it is better than the present one, else the present one.

    Args:
        at: the present setting.
        values: validation loss of the present setting and of its candidates; one that is not finite is never chosen.
        must_leave: the present setting is over the budget: go to the best candidate whatever its loss.

    Returns:
        Of equally good candidates the smallest.

    Raises:
        PlanError: there is no loss of the present setting.

    References: FlareDTDG section 3.5, which traverses "the steepest loss reduction direction".
    Differs from the paper: it names no least gain and no rule for ties; ours are ``LEAST_GAIN`` and less work.
    """
    if at not in values:
        raise PlanError(f"values has no loss of the present setting {at}: ask for it as for its neighbours.")
    finite = [setting for setting in values if setting != at and math.isfinite(values[setting])]
    if not finite:
        return at
    best = min(finite, key=lambda setting: (values[setting], setting))
    present = values[at]
    is_better = not math.isfinite(present) or present - values[best] > LEAST_GAIN * abs(present)
    return best if must_leave or is_better else at


# Edges of decayed snapshots: prefixes of one numbering, sliced from each other.


WAYS = ("in", "out")
_NOT_HERE = np.iinfo(np.int32).max  # the number of a node that the order lacks: beyond every prefix


@dataclass(frozen=True, slots=True, eq=False)
class ShrunkenEdges:
    """The E edges among n nodes, each node with those that it pulls along; read-only.

    Attributes:
        indptr: (n + 1,) int64: node i pulls from ``indices[indptr[i]:indptr[i + 1]]``.
        indices: (E,) int32, 0 to n - 1; a row's are in the order of the snapshot's row (``in``) or ascending (``out``).
        weights: (E,) float32, or None where edges carry no weight.
        degrees: (n,) float64: weighted degree along this way, of these edges alone.
        other_degrees: (n,) float64: the same along the other way.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32] | None
    degrees: NDArray[np.float64]
    other_degrees: NDArray[np.float64]

    @property
    def rows(self) -> int:
        """Nodes n."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Edges E."""
        return len(self.indices)


class Shrinker:
    """Decayed snapshots as prefixes of an order of nodes.

    All snapshots of an epoch share one numbering, so a prefix of a snapshot is cut out of a longer one by comparing
    numbers: the first rows, and of their columns those below n. The longest prefix asked for is taken from the graph,
    every later one from the prefix before it. A prefix longer than the one kept is taken from the graph again.

    Args:
        snapshots: of the same N nodes.

    References: FlareDTDG section 3.3.
    Differs from the paper: numbers are given to a snapshot's edges when it is first asked for, and only to those of its
    prefix, rather than to all edges of all snapshots before the epoch.
    """

    def __init__(self, snapshots: Sequence[Snapshot]) -> None:
        self._snapshots = snapshots
        self._order: SurvivalOrder | None = None
        self._number = np.empty(0, np.int32)
        self._one_part = True
        self._kept: dict[tuple[int, str], ShrunkenEdges] = {}

    def renumber(self, order: SurvivalOrder) -> None:
        """Take the order of an epoch; what was cut out under another one is let go.

        Raises:
            PlanError: it names nodes that the snapshots lack.
        """
        nodes = self._snapshots[0].num_nodes
        if len(order.vertices) and not (order.vertices.min() >= 0 and order.vertices.max() < nodes):
            raise PlanError(
                f"the order holds nodes {order.vertices.min()} to {order.vertices.max()}; those of the snapshots "
                f"are numbered 0 to {nodes - 1}."
            )
        self._kept.clear()
        self._order = order
        self._number = np.full(nodes, _NOT_HERE, np.int32)
        self._number[order.vertices] = np.arange(len(order.vertices), dtype=np.int32)
        self._one_part = bool((order.parts == order.parts[:1]).all())

    def edges(self, t: int, rows: int, way: str = "in") -> ShrunkenEdges:
        """The edges of snapshot t among the first ``rows`` nodes of the order, within one part each.

        Costs O(edges of the prefix of t that was asked for before); the first time, O(edges into these nodes).

        Args:
            t: number of a snapshot.
            rows: n, 0 to all.
            way: ``in``: a node pulls from its in-neighbours; ``out``: from its out-neighbours.

        Raises:
            PlanError: no order was given, it has fewer nodes, or there is no such snapshot or way.
        """
        if self._order is None:
            raise PlanError("edges of a decayed snapshot need an order of nodes: call renumber first.")
        if not 0 <= rows <= len(self._order.vertices) or not 0 <= t < len(self._snapshots) or way not in WAYS:
            raise PlanError(
                f"edges {way!r} of the first {rows} nodes in snapshot {t}: the order has "
                f"{len(self._order.vertices)}, there are {len(self._snapshots)} snapshots, and ways are 'in', 'out'."
            )
        kept = self._kept.get((t, way))
        if kept is not None and kept.rows == rows:
            return kept
        if kept is not None and kept.rows > rows:
            made = _sliced(kept, rows)
        else:
            made = self._taken(self._snapshots[t], rows, self._order) if way == "in" else _turned(self.edges(t, rows))
        self._kept[t, way] = made
        return made

    def keep_only(self, snapshots: range) -> None:
        """Let go of the prefixes of all other snapshots: those that a window has left."""
        for key in [key for key in self._kept if key[0] not in snapshots]:
            del self._kept[key]

    def _taken(self, snapshot: Snapshot, rows: int, order: SurvivalOrder) -> ShrunkenEdges:
        """Cut a prefix out of the whole graph."""
        own = order.vertices[:rows]
        starts = snapshot.indptr[own]
        bounds = np.zeros(rows + 1, np.int64)
        np.cumsum(snapshot.indptr[own + 1] - starts, out=bounds[1:])
        lengths = np.diff(bounds)
        at = np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], lengths)
        numbers = self._number.take(snapshot.indices.take(at))  # take: several times as fast as square brackets
        held = numbers < rows
        if not self._one_part:
            row_parts = np.repeat(order.parts[:rows], lengths)
            held &= order.parts[np.where(held, numbers, 0)] == row_parts
        chosen = np.flatnonzero(held)
        weights = None if snapshot.weights is None else snapshot.weights.take(at.take(chosen))
        return _edges(_held_before(held, bounds), numbers.take(chosen), weights)


def _sliced(edges: ShrunkenEdges, rows: int) -> ShrunkenEdges:
    """A shorter prefix: the first rows, and of their columns those among the rows."""
    bounds = edges.indptr[: rows + 1]
    head = edges.indices[: bounds[-1]]
    held = head < rows
    chosen = np.flatnonzero(held)
    weights = None if edges.weights is None else edges.weights.take(chosen)
    return _edges(_held_before(held, bounds), head.take(chosen), weights)


def _turned(edges: ShrunkenEdges) -> ShrunkenEdges:
    """The same edges along the other way."""
    rows = np.repeat(np.arange(edges.rows, dtype=np.int32), np.diff(edges.indptr))
    order = np.argsort(edges.indices, kind="stable")  # stable: a row's columns ascend
    weights = None if edges.weights is None else edges.weights[order]
    indptr = np.zeros(edges.rows + 1, np.int64)
    np.cumsum(np.bincount(edges.indices, minlength=edges.rows), out=indptr[1:])
    return _read_only(ShrunkenEdges(indptr, rows[order], weights, edges.other_degrees, edges.degrees))


def _held_before(held: NDArray[np.bool_], bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many are held before each of the bounds."""
    before = np.zeros(len(held) + 1, np.int64)
    np.cumsum(held, out=before[1:])
    return before[bounds]


def _edges(indptr: NDArray[np.int64], indices: NDArray[np.int32], weights: NDArray[np.float32] | None) -> ShrunkenEdges:
    """Edges that nodes pull along, with the degrees that these alone give them."""
    rows = len(indptr) - 1
    if weights is None:
        degrees = np.diff(indptr).astype(np.float64)
    else:
        degrees = np.bincount(np.repeat(np.arange(rows), np.diff(indptr)), weights, rows).astype(np.float64)
    other = np.bincount(indices, weights, rows).astype(np.float64)
    return _read_only(ShrunkenEdges(indptr, indices, weights, degrees, other))


def _read_only(edges: ShrunkenEdges) -> ShrunkenEdges:
    for array in (edges.indptr, edges.indices, edges.weights, edges.degrees, edges.other_degrees):
        if array is not None:
            array.setflags(write=False)
    return edges


# Edges of a decayed snapshot as one makes them without an order for the epoch: cut out and relabelled every time.


def naive_edges(
    snapshot: Snapshot, vertices: NDArray[np.int64], parts: NDArray[np.int32], way: str = "in"
) -> ShrunkenEdges:
    """The edges of a snapshot among some nodes, within one part each: the induced subgraph, relabelled.

    Looks at every edge of the snapshot and sorts the ends that are left. What
    :class:`dtdg_lab.systems.decayed_windows.window.Shrinker` is measured and tested against.

    Args:
        snapshot: N nodes.
        vertices: (n,) distinct ones, in the order in which they are numbered anew.
        parts: (n,) the part of each.
        way: ``in``: a node pulls from its in-neighbours; ``out``: from its out-neighbours.

    Returns:
        The edges; a row's columns are ordered as those of the shrinker.

    References: the variant without shrinking of FlareDTDG section 4.3 (tables 9 and 10).
    """
    part = np.full(snapshot.num_nodes, -1, np.int32)
    part[vertices] = parts
    targets, sources = snapshot.rows(), snapshot.indices.astype(np.int64)
    held = (part[targets] >= 0) & (part[targets] == part[sources])
    targets, sources = targets[held], sources[held]
    weights = None if snapshot.weights is None else snapshot.weights[held]

    rows, edges = len(vertices), len(targets)
    labels, label = np.unique(np.concatenate([vertices, targets, sources]), return_inverse=True)
    number = np.empty(len(labels), np.int64)
    number[label[:rows]] = np.arange(rows)
    to, of = number[label[rows : rows + edges]], number[label[rows + edges :]]
    pulling, pulled = (to, of) if way == "in" else (of, to)
    order = np.lexsort((sources if way == "in" else pulled, pulling))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pulling, minlength=rows))]).astype(np.int64)
    return ShrunkenEdges(
        indptr,
        pulled[order].astype(np.int32),
        None if weights is None else weights[order],
        np.bincount(pulling, weights, rows).astype(np.float64),
        np.bincount(pulled, weights, rows).astype(np.float64),
    )


# The shape of a window: how many snapshots are full, and how many chunks the decayed ones before them keep.


WHOLE_CHUNKS = 1  # of parts whose snapshots are always full


@dataclass(frozen=True, slots=True)
class Trapezoid:
    """What the batches of a run look like, near the start of a segment excepted.

    Attributes:
        window: W snapshots.
        full: K of them, the newest, are full.
        chunks: C of each part.
        alpha: how far chunks fall.
        decay: by which rule.

    Raises:
        ConfigError: the numbers do not fit.

    References: FlareDTDG section 3.2.
    """

    window: int
    full: int
    chunks: int
    alpha: float
    decay: str

    def __post_init__(self) -> None:
        if not 1 <= self.full <= self.window:
            raise ConfigError(
                f"full_snapshots={self.full} of window={self.window}: from 1 to the whole window are allowed. Set "
                "fewer full snapshots, or a longer window."
            )

    @classmethod
    def of(cls, config: RunConfig, *, chunks: int = WHOLE_CHUNKS) -> Trapezoid:
        """What a config asks for, of parts of ``chunks`` chunks each; without decayed snapshots there is one."""
        asked = config.options["batching"]
        window = asked["window"]
        if "alpha" not in asked:
            return cls(window, window, WHOLE_CHUNKS, 1.0, "text")
        return cls(window, asked["full_snapshots"], chunks, asked["alpha"], asked["decay"])

    @property
    def counts(self) -> tuple[int, ...]:
        """(m,) chunks of each decayed snapshot, newest first."""
        return decayed_counts(self.decay, chunks=self.chunks, alpha=self.alpha, decayed=self.window - self.full)


# Memory of a step over a window, as it follows from the window's shape and a few steps that were measured.


@dataclass(frozen=True, slots=True)
class RowMemory:
    """Peak bytes of a step on the largest rank, of windows of some part sizes.

    ``base_bytes`` are there always, ``row_bytes`` for each row of each snapshot, and ``piece_bytes`` for each row and
    snapshot of the largest piece: as many nodes as run through time at once, ``piece_rows`` at most.

    Attributes:
        base_bytes: as said.
        row_bytes: as said.
        piece_bytes: as said.
        nodes: own nodes of the largest rank.
        chunks: C of each part.
        piece_rows: as said.
    """

    base_bytes: float
    row_bytes: float
    piece_bytes: float
    nodes: int
    chunks: int
    piece_rows: int

    @classmethod
    def through(
        cls, steps: Sequence[tuple[Trapezoid, float]], *, nodes: int, chunks: int, piece_rows: int
    ) -> RowMemory:
        """Fitted to the shapes and peak bytes of some steps, none of which takes more; what would be negative is 0.

        Args:
            steps: at least one.
            nodes: own nodes of the largest rank.
            chunks: C.
            piece_rows: most nodes that run through time at once.
        """
        shapes = cls(0.0, 0.0, 0.0, nodes, chunks, piece_rows)
        sizes = np.array([[1.0, shapes.rows(shape), shapes.piece(shape)] for shape, _ in steps])
        peaks, kept = np.array([peak for _, peak in steps]), [0, 1, 2]
        while True:
            scale = sizes[:, kept].max(axis=0)
            found = np.linalg.lstsq(sizes[:, kept] / scale, peaks, rcond=None)[0] / scale
            if len(kept) == 1 or found.min() >= 0:
                break
            del kept[int(np.argmin(found * scale))]
        numbers = np.zeros(3)
        numbers[kept] = np.maximum(found, 0.0)
        short = max(1.0, float(np.max(peaks / (sizes @ numbers))))  # a budget is not to be exceeded
        base, row, piece = (float(number) * short for number in numbers)
        return cls(base, row, piece, nodes, chunks, piece_rows)

    def rows(self, shape: Trapezoid) -> float:
        """Rows of all snapshots of a whole window; chunks are taken as alike."""
        return self.nodes * (shape.full + sum(shape.counts) / self.chunks)

    def piece(self, shape: Trapezoid) -> float:
        """Rows times snapshots of the largest piece: nodes that enter a window together run through the rest."""
        heights = [self.nodes, *(self.nodes * count / self.chunks for count in shape.counts), 0.0]
        pieces = [
            min(newer - older, self.piece_rows) * (shape.full + place)
            for place, (newer, older) in enumerate(pairwise(heights))
        ]
        return max(pieces)

    def peak_bytes(self, shape: Trapezoid) -> float:
        """Estimated peak of a step of a whole window; shorter ones are cut so that they take no more."""
        return self.base_bytes + self.row_bytes * self.rows(shape) + self.piece_bytes * self.piece(shape)


# The steps of an epoch: the training split cut in two at random, the later part first, a window at each snapshot.


def segments(train: range, *, seed: int, epoch: int) -> tuple[range, ...]:
    """The training split, cut at a snapshot drawn anew each epoch; the later segment comes first.

    Args:
        train: consecutive snapshots, at least one.
        seed: of the run.
        epoch: whose cut is asked for.

    Returns:
        ``[s, stop)`` and ``[start, s)``; all of it as one where s is the first.

    Raises:
        PlanError: there is no snapshot, or they are not consecutive.

    References: FlareDTDG section 3.5, algorithm 1. What the paper leaves open: s is drawn evenly.
    """
    if not len(train) or train.step != 1:
        raise PlanError(f"segments of {train}: at least one snapshot, one after another, is needed.")
    cut = int(generator(seed, "batching/segments", epoch).integers(train.start, train.stop))
    return tuple(part for part in (range(cut, train.stop), range(train.start, cut)) if len(part))


def hybrid_batch(
    segment: range,
    target: int,
    *,
    window: int,
    full_snapshots: int,
    counts_newest_first: Sequence[int],
    after: int | None = None,
) -> HybridBatch:
    """The window that ends at a target: as many snapshots as its segment has before it; decayed ones lack first.

    Args:
        segment: consecutive snapshots, among them the target.
        target: t.
        window: W, snapshots of a whole window.
        full_snapshots: K, 1 to W.
        counts_newest_first: chunks of the decayed snapshots of a whole window, W - K of them, newest first.
        after: target of the step before in this segment; t - 1 where not given. State goes on after t - 1 only.

    Raises:
        PlanError: the target is in no such segment, or the numbers do not fit each other.
    """
    if target not in segment:
        raise PlanError(f"target {target} is not in the segment of snapshots {segment.start} to {segment.stop - 1}.")
    if not 1 <= full_snapshots <= window:
        raise PlanError(
            f"full_snapshots={full_snapshots} of window={window}: from 1 to the whole window are allowed. Set fewer "
            "full snapshots, or a longer window."
        )
    if len(counts_newest_first) != window - full_snapshots:
        raise PlanError(
            f"{len(counts_newest_first)} counts of chunks for the {window - full_snapshots} decayed snapshots of a "
            f"window of {window} with {full_snapshots} full ones: each needs one."
        )
    snapshots = range(max(segment.start, target - window + 1), target + 1)
    full = min(full_snapshots, len(snapshots))
    counts = tuple(reversed(counts_newest_first[: len(snapshots) - full]))
    follows = after is None or after == target - 1
    return HybridBatch(target, snapshots, full, counts, carries=follows and target - window >= segment.start)


def epoch_batches(
    train: range,
    *,
    seed: int,
    epoch: int,
    window: int,
    full_snapshots: int,
    counts_newest_first: Sequence[int],
    labelled: Collection[int] | None = None,
) -> tuple[HybridBatch, ...]:
    """All steps of an epoch in order, where nothing changes between them.

    Args:
        train: consecutive snapshots.
        seed: of the run.
        epoch: whose steps are asked for.
        window: W.
        full_snapshots: K, 1 to W.
        counts_newest_first: chunks of the W - K decayed snapshots, newest first.
        labelled: the snapshots that have a step; all where None.

    Raises:
        PlanError: the numbers do not fit each other.
    """
    batches = []
    for segment in segments(train, seed=seed, epoch=epoch):
        before = segment.start - 1
        for target in segment:
            if labelled is not None and target not in labelled:
                continue
            batches.append(
                hybrid_batch(
                    segment,
                    target,
                    window=window,
                    full_snapshots=full_snapshots,
                    counts_newest_first=counts_newest_first,
                    after=before,
                )
            )
            before = target
    return tuple(batches)


# Which chunks survive longest in decayed snapshots: shuffled once an epoch, each part's on its own.


def survival_order(
    owner: NDArray[np.int32], chunking: Chunking, parts: range, *, seed: int, epoch: int
) -> SurvivalOrder:
    """The nodes of some parts, those of the chunks that survive longest first.

    A part's chunks are shuffled by a stream of its own: whichever other parts a rank has, the same survive.

    Args:
        owner: (N,) the part of each node.
        chunking: of these nodes, in parts of this partition.
        parts: consecutive ones, such as those of a rank.
        seed: of the run.
        epoch: whose order is asked for.

    Raises:
        PlanError: the chunking is of other nodes, a part is none of its parts, or a chunk of one is empty.

    References: FlareDTDG section 3.3 (steps 1 and 2 of figure 4).
    Differs from the paper: each part has a shuffle of its own, so that its processes need not know of each other.
    """
    if chunking.chunk.shape != owner.shape or not parts or parts.step != 1:
        raise PlanError(
            f"{len(chunking.chunk)} nodes in chunks and {len(owner)} in parts, {len(parts)} of them asked for: the "
            "same nodes and at least one part are needed."
        )
    if parts.start < 0 or parts.stop > chunking.parts:
        raise PlanError(f"parts {parts.start} to {parts.stop - 1}: they are numbered 0 to {chunking.parts - 1}.")
    chunks = chunking.chunks
    place = np.empty((len(parts), chunks), np.int64)
    for row, part in zip(place, parts, strict=True):
        row[generator(seed, "batching/survival", epoch, part).permutation(chunks)] = np.arange(chunks)
    own = np.flatnonzero((owner >= parts.start) & (owner < parts.stop))
    seat = owner[own] - np.int32(parts.start)
    key = place[seat, chunking.chunk[own]] * len(parts) + seat
    sizes = np.bincount(key, minlength=chunks * len(parts))
    if not sizes.all():
        first = int(np.flatnonzero(sizes == 0)[0]) % len(parts) + parts.start
        raise PlanError(f"a chunk of part {first} holds no node: chunks of another partition? Make them of this one.")
    order = np.argsort(key.astype(np.uint16) if len(sizes) <= 1 << 16 else key, kind="stable")  # 16 bits: radix sort
    rows = np.concatenate([[0], np.cumsum(sizes.reshape(chunks, len(parts)).sum(axis=1))])
    return SurvivalOrder(own[order], owner[own][order], rows)
