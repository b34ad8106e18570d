"""Temporal decay (FlareDTDG): window shapes, surviving chunks, shrunken edges, memory, the tuner of K and alpha.

A *window* is a run of consecutive snapshots, the newest one is the step's target. A *chunk* is a share of a part's
nodes; a snapshot that is *decayed* has only the first few chunks of every part, the others are *full*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.model_facts import DIRECTIONS
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, PlanError, shortened
from dtdg_lab.core.rng import generator
from dtdg_lab.graphs.snapshot import Snapshot

# Plans of steps over a window of snapshots.


@dataclass(frozen=True, slots=True)
class HybridBatch:
    """The snapshots of one step: the newest in full, older ones decayed.

    Attributes:
        target: t, the newest snapshot, on which the loss is computed.
        snapshots: consecutive ones, oldest first; the last is the target.
        full: number of newest snapshots used in full; at least 1.
        counts: number of chunks of every part in each decayed snapshot, oldest first; non-decreasing.
        carries: whether the hidden state is carried over from the previous step. Its window ended one snapshot earlier
            in the same segment and included the snapshot before this window.

    Raises:
        PlanError: the numbers are inconsistent.

    References: FlareDTDG section 3.2 (trapezoid-shaped window).
    """

    target: int
    snapshots: range
    full: int
    counts: tuple[int, ...] = ()
    carries: bool = False

    def __post_init__(self) -> None:
        whole = self.snapshots
        if not len(whole) or whole.step != 1 or whole.start < 0 or whole[-1] != self.target:
            raise PlanError(
                f"the snapshots of a batch must be consecutive and end at its target {self.target}, not "
                f"{list(whole[:8])}."
            )
        if not 1 <= self.full <= len(whole):
            raise PlanError(f"full={self.full} must be from 1 to {len(whole)}, the number of snapshots.")
        if len(self.counts) != len(whole) - self.full:
            raise PlanError(
                f"{len(self.counts)} counts of chunks for {len(whole) - self.full} decayed snapshots: each needs one."
            )
        if any(count < 1 for count in self.counts) or any(old > new for old, new in pairwise(self.counts)):
            raise PlanError(
                f"counts of chunks {self.counts}, oldest first: each must be at least 1, and none above that of a "
                "newer snapshot, so that what a snapshot has is in all newer ones."
            )

    @property
    def decayed(self) -> range:
        """The decayed snapshots, oldest first."""
        return self.snapshots[: len(self.counts)]


@dataclass(frozen=True, slots=True, eq=False)
class Chunking:
    """The chunk of each node within its part, the same in all snapshots.

    Attributes:
        chunk: (N,) int32, 0 to C - 1.
        chunks: C, chunks per part.
        parts: P.
        made_by: the chunker with its settings, as text.
        seconds: that making it took.
        note: remark for the user, such as a fallback to another chunker; may be empty.

    Raises:
        PlanError: a chunk number is out of range, or there are too few nodes for the chunks of all parts.
    """

    chunk: NDArray[np.int32]
    chunks: int
    parts: int
    made_by: str = ""
    seconds: float = 0.0
    note: str = ""

    def __post_init__(self) -> None:
        given = np.asarray(self.chunk)
        if given.ndim != 1 or not len(given) or not np.issubdtype(given.dtype, np.integer):
            raise PlanError(
                f"chunks must be a non-empty vector of whole numbers, not {given.dtype} of shape {given.shape}."
            )
        if self.chunks < 1 or self.parts < 1 or self.chunks * self.parts > len(given):
            raise PlanError(
                f"{self.chunks} chunks in each of {self.parts} parts of {len(given)} nodes: every chunk holds at "
                "least one node. Set fewer chunks or parts."
            )
        if given.min() < 0 or given.max() >= self.chunks:
            raise PlanError(
                f"chunks run from {given.min()} to {given.max()}; those of a part are numbered 0 to {self.chunks - 1}."
            )
        own = given.astype(np.int32)
        own.setflags(write=False)
        object.__setattr__(self, "chunk", own)

    def __repr__(self) -> str:
        made_by = self.made_by or "manual assignment"
        return f"Chunking({len(self.chunk):,} nodes, {self.chunks} chunks in each of {self.parts} parts by {made_by})"


@dataclass(frozen=True, slots=True, eq=False)
class SurvivalOrder:
    """The own nodes of one rank by survival time, longest first: a decayed snapshot has a prefix of them.

    Attributes:
        vertices: (n,) int64, ordered by the position of their chunk in its part's shuffle, then part, then number.
        parts: (n,) int32, the part of each node.
        rows: (C + 1,) int64: ``rows[c]`` nodes are in the first c chunks of the rank's parts.

    Raises:
        PlanError: the vectors are inconsistent, or a chunk is empty.

    References: FlareDTDG section 3.3 (survival time, global remapping).
    """

    vertices: NDArray[np.int64]
    parts: NDArray[np.int32]
    rows: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name, kind in (("vertices", np.int64), ("parts", np.int32), ("rows", np.int64)):
            given = np.asarray(getattr(self, name))
            if given.ndim != 1 or not np.issubdtype(given.dtype, np.integer):
                raise PlanError(f"{name} must be a vector of whole numbers, not {given.dtype} of shape {given.shape}.")
            own = given.astype(kind)
            own.setflags(write=False)
            object.__setattr__(self, name, own)
        if self.parts.shape != self.vertices.shape:
            raise PlanError(f"{len(self.parts)} parts for {len(self.vertices)} nodes: each node needs one.")
        rows = self.rows
        if len(rows) < 2 or rows[0] != 0 or rows[-1] != len(self.vertices) or (np.diff(rows) < 1).any():
            raise PlanError(
                f"rows of the first chunks begin {rows[:8].tolist()} and end at {rows[-1:].tolist()}; they must rise "
                f"from 0 to {len(self.vertices)}, by at least 1 with every chunk."
            )

    @property
    def chunks(self) -> int:
        """C, the chunks of each part."""
        return len(self.rows) - 1


# The number of chunks of each part in the decayed snapshots of a window.


RULES = ("text", "ladder")
_ROUNDING = 1e-9  # tolerance within which a product of floats is taken for a whole number


def decayed_counts(rule: str, *, chunks: int, alpha: float, decayed: int) -> tuple[int, ...]:
    """Chunks of each decayed snapshot, newest first; at least one, and never more than in a newer one.

    ``text``: each snapshot has floor(beta times the chunks of the next newer one), starting from C; beta is the m-th
    root of alpha, so that the oldest has about alpha C. ``ladder``: geometric from ceil(alpha C) for the newest to 1
    for the oldest, each count rounded up; a single decayed snapshot has ceil(alpha C).

    Args:
        rule: ``text`` or ``ladder``.
        chunks: C, per part.
        alpha: above 0, at most 1.
        decayed: m, number of decayed snapshots; 0 gives an empty tuple.

    Raises:
        ConfigError: a value is out of range.

    References: FlareDTDG section 3.2 (``text``), and its released code (``ladder``, there ``auto:alpha``), which also
        matches the memory savings reported in the paper.
    Differs from the released code: a count that rounding errors put less than 1e-9 above a whole number is that number.
        The oldest snapshot of a ladder keeps one chunk for any alpha, so ``ladder`` with alpha = 1 is not full history.
    """
    if rule not in RULES:
        raise ConfigError(f"decay={shortened(rule)}: {' and '.join(RULES)} are allowed.")
    if not 0 < alpha <= 1:
        raise ConfigError(f"alpha={shortened(alpha)}: a share of chunks above 0 and at most 1 is needed.")
    if chunks < 1 or decayed < 0:
        raise ConfigError(f"{chunks} chunks and {decayed} decayed snapshots: at least 1 and at least 0 are needed.")
    return _text(chunks, alpha, decayed) if rule == "text" else _ladder(chunks, alpha, decayed)


def kept_share(counts: Sequence[int], *, chunks: int, full: int) -> float:
    """Share of the rows of a window relative to one of full snapshots only, for chunks of equal size; 0 to 1.

    Args:
        counts: chunks of each decayed snapshot.
        chunks: C, of a full snapshot.
        full: K, number of full snapshots.

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
    return tuple(math.ceil(top ** (1 - position / steps) - _ROUNDING) for position in range(decayed))


# Greedy choice of K and alpha: step to the neighbouring setting of lowest validation loss within the memory budget.


ALPHA_STEP = 0.1
LEAST_ALPHA = 0.1  # lower limit of tuning: the paper starts there, and a smaller alpha would keep nothing
LEAST_GAIN = 1e-4  # relative: smaller differences are due to rounding
_MOST_ALPHA = OPTIONS["alpha"].high or 1.0
_DIGITS = 6  # avoids 0.30000000000000004 after repeated steps of 0.1


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """A point of the K x alpha grid; ordered by full snapshots, then by alpha.

    Attributes:
        full_snapshots: K, 1 or more.
        alpha: in (0, 1].

    Raises:
        PlanError: a number is out of range.
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
    """The settings one step away, smaller ones first: K-1, alpha-0.1, alpha+0.1, K+1, within the allowed range.

    K stays within 1 .. window, alpha within ``LEAST_ALPHA`` .. 1: steps end at these bounds, and there is no step down
    from an alpha at or below the smallest. If all snapshots are full (K = window), alpha has no effect, and K-1 is the
    only neighbour.

    Args:
        at: the current setting; a K above ``window`` counts as ``window``.
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
    """The neighbours to evaluate: those whose predicted peak is within the budget.

    If the current setting and all neighbours exceed the budget, the neighbour that needs least is the only candidate,
    provided that it needs less than the current setting: several decisions then lead back into the budget.

    Args:
        at: the current setting.
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
    """The next setting: the best candidate if it is better than the current setting, otherwise the current one.

    Args:
        at: the current setting.
        values: validation loss of the current setting and of its candidates; one that is not finite is never chosen.
        must_leave: the current setting exceeds the budget: take the best candidate whatever its loss.

    Returns:
        Of equally good candidates the smallest.

    Raises:
        PlanError: the loss of the current setting is missing.

    References: FlareDTDG section 3.5, which traverses "the steepest loss reduction direction".
    Differs from the paper: it specifies no minimum gain and no tie rule; ours are ``LEAST_GAIN`` and less work.
    """
    if at not in values:
        raise PlanError(f"values lacks the loss of the current setting {at}: evaluate it like its neighbours.")
    finite = [setting for setting in values if setting != at and math.isfinite(values[setting])]
    if not finite:
        return at
    best = min(finite, key=lambda setting: (values[setting], setting))
    present = values[at]
    is_better = not math.isfinite(present) or present - values[best] > LEAST_GAIN * abs(present)
    return best if must_leave or is_better else at


# Edges of decayed snapshots: prefixes of one node order, sliced from each other.

_NOT_HERE = np.iinfo(np.int32).max  # index of a node that is not in the order: beyond every prefix


@dataclass(frozen=True, slots=True, eq=False)
class ShrunkenEdges:
    """The E edges among n nodes, grouped by the aggregating node; read-only.

    Attributes:
        indptr: (n + 1,) int64: node i aggregates from ``indices[indptr[i]:indptr[i + 1]]``.
        indices: (E,) int32, 0 to n - 1; sorted as in the snapshot's row (``in``) or ascending (``out``).
        weights: (E,) float32, or None for unweighted edges.
        degrees: (n,) float64: weighted degree in this direction, of these edges alone.
        other_degrees: (n,) float64: the same in the opposite direction.
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

    All snapshots of an epoch share one order, so a prefix is cut out of a longer one by comparing indices: the first
    rows, and of their columns those below n. The first prefix of a snapshot is taken from the graph, each shorter one
    from the prefix before it. A prefix longer than the stored one is taken from the graph again.

    Args:
        snapshots: of the same N nodes.

    References: FlareDTDG section 3.3.
    Differs from the paper: edges of a snapshot are renumbered when they are first needed, and only those of the
    prefix, instead of all edges of all snapshots before the epoch.
    """

    def __init__(self, snapshots: Sequence[Snapshot]) -> None:
        self._snapshots = snapshots
        self._order: SurvivalOrder | None = None
        self._number = np.empty(0, np.int32)
        self._one_part = True
        self._kept: dict[tuple[int, str], ShrunkenEdges] = {}

    def renumber(self, order: SurvivalOrder) -> None:
        """Set the order of an epoch; edges of the previous order are discarded.

        Raises:
            PlanError: it contains nodes that the snapshots lack.
        """
        nodes = self._snapshots[0].num_nodes
        if len(order.vertices) and not (order.vertices.min() >= 0 and order.vertices.max() < nodes):
            raise PlanError(
                f"the order contains nodes {order.vertices.min()} to {order.vertices.max()}; those of the snapshots "
                f"are 0 to {nodes - 1}."
            )
        self._kept.clear()
        self._order = order
        self._number = np.full(nodes, _NOT_HERE, np.int32)
        self._number[order.vertices] = np.arange(len(order.vertices), dtype=np.int32)
        self._one_part = bool((order.parts == order.parts[:1]).all())

    def edges(self, t: int, rows: int, direction: str = "in") -> ShrunkenEdges:
        """The edges of snapshot t among the first ``rows`` nodes of the order, within one part each.

        Costs O(edges of the stored prefix of t); the first time, O(edges into these nodes).

        Args:
            t: index of a snapshot.
            rows: n, 0 to all.
            direction: ``in``: a node aggregates from its in-neighbours; ``out``: from its out-neighbours.

        Raises:
            PlanError: no order was set, it has fewer nodes, or the snapshot or direction does not exist.
        """
        if self._order is None:
            raise PlanError("edges of a decayed snapshot need an order of nodes: call renumber first.")
        if (
            not 0 <= rows <= len(self._order.vertices)
            or not 0 <= t < len(self._snapshots)
            or direction not in DIRECTIONS
        ):
            raise PlanError(
                f"edges {direction!r} of the first {rows} nodes in snapshot {t}: the order has "
                f"{len(self._order.vertices)}, there are {len(self._snapshots)} snapshots, and the directions are "
                "'in' and 'out'."
            )
        kept = self._kept.get((t, direction))
        if kept is not None and kept.rows == rows:
            return kept
        if kept is not None and kept.rows > rows:
            made = _sliced(kept, rows)
        else:
            made = (
                self._taken(self._snapshots[t], rows, self._order)
                if direction == "in"
                else _turned(self.edges(t, rows))
            )
        self._kept[t, direction] = made
        return made

    def keep_only(self, snapshots: range) -> None:
        """Discard the prefixes of all other snapshots: those that have left the window."""
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
        numbers = self._number.take(snapshot.indices.take(at))  # take is several times faster than indexing
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
    """The same edges in the opposite direction."""
    rows = np.repeat(np.arange(edges.rows, dtype=np.int32), np.diff(edges.indptr))
    order = np.argsort(edges.indices, kind="stable")  # stable: a row's columns ascend
    weights = None if edges.weights is None else edges.weights[order]
    indptr = np.zeros(edges.rows + 1, np.int64)
    np.cumsum(np.bincount(edges.indices, minlength=edges.rows), out=indptr[1:])
    return _read_only(ShrunkenEdges(indptr, rows[order], weights, edges.other_degrees, edges.degrees))


def _held_before(held: NDArray[np.bool_], bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of selected elements before each of the bounds."""
    before = np.zeros(len(held) + 1, np.int64)
    np.cumsum(held, out=before[1:])
    return before[bounds]


def _edges(indptr: NDArray[np.int64], indices: NDArray[np.int32], weights: NDArray[np.float32] | None) -> ShrunkenEdges:
    """The edges with the degrees that they alone give their nodes."""
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


# Edges of a decayed snapshot without a shared order: cut out and relabelled every time.


def naive_edges(
    snapshot: Snapshot, vertices: NDArray[np.int64], parts: NDArray[np.int32], direction: str = "in"
) -> ShrunkenEdges:
    """The edges of a snapshot among some nodes, within one part each: the induced subgraph, relabelled.

    It reads every edge of the snapshot and sorts the end points that are left. It is the reference for measurements
    and tests of :class:`Shrinker`.

    Args:
        snapshot: N nodes.
        vertices: (n,) distinct ones, in the order in which they are renumbered.
        parts: (n,) the part of each.
        direction: ``in``: a node aggregates from its in-neighbours; ``out``: from its out-neighbours.

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
    pulling, pulled = (to, of) if direction == "in" else (of, to)
    order = np.lexsort((sources if direction == "in" else pulled, pulling))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pulling, minlength=rows))]).astype(np.int64)
    return ShrunkenEdges(
        indptr,
        pulled[order].astype(np.int32),
        None if weights is None else weights[order],
        np.bincount(pulling, weights, rows).astype(np.float64),
        np.bincount(pulled, weights, rows).astype(np.float64),
    )


# The shape of a window: the number of full snapshots, and the chunks kept by the decayed ones before them.


WHOLE_CHUNKS = 1  # per part, if all snapshots are full


@dataclass(frozen=True, slots=True)
class Trapezoid:
    """The shape of a run's batches, except near the start of a segment.

    Attributes:
        window: W snapshots.
        full: K of them, the newest, are full.
        chunks: C per part.
        alpha: target share of chunks.
        decay: rule of the decay.

    Raises:
        ConfigError: the numbers are inconsistent.

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
                f"full_snapshots={self.full} of window={self.window}: from 1 to the window's length are allowed. Set "
                "fewer full snapshots, or a longer window."
            )

    @classmethod
    def of(cls, config: RunConfig, *, chunks: int = WHOLE_CHUNKS) -> Trapezoid:
        """The shape that a config requests, for parts of ``chunks`` chunks; 1 chunk if no snapshot is decayed."""
        asked = config.options["batching"]
        window = asked["window"]
        if "alpha" not in asked:
            return cls(window, window, WHOLE_CHUNKS, 1.0, "text")
        return cls(window, asked["full_snapshots"], chunks, asked["alpha"], asked["decay"])

    @property
    def counts(self) -> tuple[int, ...]:
        """(m,) chunks of each decayed snapshot, newest first."""
        return decayed_counts(self.decay, chunks=self.chunks, alpha=self.alpha, decayed=self.window - self.full)


# Memory of a step over a window, predicted from the window's shape and a few measured steps.


def largest_piece(heights: Sequence[float], full: int, most: int) -> float:
    """Rows that a piece has in all snapshots of a whole window, at most: those of nodes that enter it together.

    Args:
        heights: rows of a full snapshot and of the decayed ones, newest first.
        full: K, number of full snapshots.
        most: nodes of a piece.
    """
    entering = pairwise([*heights, 0])
    return max(min(newer - older, most) * (full + position) for position, (newer, older) in enumerate(entering))


@dataclass(frozen=True, slots=True)
class RowMemory:
    """Peak bytes of a step on the largest rank as a linear function of the window's rows.

    The peak is ``base_bytes``, plus ``row_bytes`` per row of each snapshot, plus ``piece_bytes`` per row and snapshot
    of the largest piece: the nodes that run through time at once, at most ``piece_rows``.

    Attributes:
        base_bytes: constant part.
        row_bytes: per row and snapshot.
        piece_bytes: per row and snapshot of the largest piece.
        nodes: own nodes of the largest rank.
        chunks: C per part.
        piece_rows: maximum number of nodes that run through time at once.
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
        """Fit to the shapes and peak bytes of some steps, as an upper bound of all of them, without negative terms.

        Args:
            steps: at least one.
            nodes: own nodes of the largest rank.
            chunks: C.
            piece_rows: maximum number of nodes that run through time at once.
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
        short = max(1.0, float(np.max(peaks / (sizes @ numbers))))  # predictions must not be below measurements
        base, row, piece = (float(number) * short for number in numbers)
        return cls(base, row, piece, nodes, chunks, piece_rows)

    def rows(self, shape: Trapezoid) -> float:
        """Rows of all snapshots of a whole window, for chunks of equal size."""
        return self.nodes * (shape.full + sum(shape.counts) / self.chunks)

    def piece(self, shape: Trapezoid) -> float:
        """Rows of the largest piece in all snapshots."""
        heights = [self.nodes, *(self.nodes * count / self.chunks for count in shape.counts)]
        return largest_piece(heights, shape.full, self.piece_rows)

    def peak_bytes(self, shape: Trapezoid) -> float:
        """Estimated peak of a step of a whole window; shorter windows are cut so that they need no more."""
        return self.base_bytes + self.row_bytes * self.rows(shape) + self.piece_bytes * self.piece(shape)


# The steps of an epoch: the training split is cut at a random snapshot, the later segment first, a window per snapshot.


def segments(train: range, *, seed: int, epoch: int) -> tuple[range, ...]:
    """The training split, cut at a random snapshot in each epoch; the later segment comes first.

    Args:
        train: consecutive snapshots, at least one.
        seed: of the run.
        epoch: index of the epoch.

    Returns:
        ``[s, stop)`` and ``[start, s)``; a single segment if s is the first snapshot.

    Raises:
        PlanError: there is no snapshot, or they are not consecutive.

    References: FlareDTDG section 3.5, algorithm 1. Left open by the paper: s is uniformly distributed.
    """
    if not len(train) or train.step != 1:
        raise PlanError(f"segments of {train}: a non-empty range of consecutive snapshots is needed.")
    cut = int(generator(seed, "batching/segments", epoch).integers(train.start, train.stop))
    return tuple(part for part in (range(cut, train.stop), range(train.start, cut)) if len(part))


def hybrid_batch(segment: range, target: int, shape: Trapezoid, *, after: int | None = None) -> HybridBatch:
    """The window that ends at a target, cut at the start of its segment; decayed snapshots are cut first.

    Args:
        segment: consecutive snapshots that contain the target.
        target: t.
        shape: of a whole window.
        after: target of the previous step in this segment; t - 1 by default. State is only carried over from t - 1.

    Raises:
        PlanError: the target is not in the segment.
    """
    if target not in segment:
        raise PlanError(f"target {target} is not in the segment of snapshots {segment.start} to {segment.stop - 1}.")
    snapshots = range(max(segment.start, target - shape.window + 1), target + 1)
    full = min(shape.full, len(snapshots))
    counts = tuple(reversed(shape.counts[: len(snapshots) - full]))
    follows = after is None or after == target - 1
    return HybridBatch(target, snapshots, full, counts, carries=follows and target - shape.window >= segment.start)


def epoch_batches(
    train: range, shape: Trapezoid, *, seed: int, epoch: int, labelled: Collection[int] | None = None
) -> tuple[HybridBatch, ...]:
    """All steps of an epoch in order, for a constant shape.

    Args:
        train: consecutive snapshots.
        shape: of a whole window.
        seed: of the run.
        epoch: index of the epoch.
        labelled: the snapshots that have a step; None for all.
    """
    batches = []
    for segment in segments(train, seed=seed, epoch=epoch):
        before = segment.start - 1
        for target in segment:
            if labelled is not None and target not in labelled:
                continue
            batches.append(hybrid_batch(segment, target, shape, after=before))
            before = target
    return tuple(batches)


# The chunks that survive longest in decayed snapshots: shuffled per part and epoch.


def survival_order(
    owner: NDArray[np.int32], chunking: Chunking, parts: range, *, seed: int, epoch: int
) -> SurvivalOrder:
    """The nodes of some parts, ordered by how long their chunks survive, the longest first.

    A part's chunks are shuffled by its own random stream, independent of the other parts on the rank.

    Args:
        owner: (N,) the part of each node.
        chunking: of these nodes, in parts of this partition.
        parts: consecutive ones, such as those of a rank.
        seed: of the run.
        epoch: index of the epoch.

    Raises:
        PlanError: the chunking is of other nodes, a part does not exist, or a chunk of one is empty.

    References: FlareDTDG section 3.3 (steps 1 and 2 of figure 4).
    Differs from the paper: each part has a shuffle of its own, so that ranks need not exchange it.
    """
    if chunking.chunk.shape != owner.shape or not parts or parts.step != 1:
        raise PlanError(
            f"{len(chunking.chunk)} nodes in chunks and {len(owner)} in parts, {len(parts)} parts given: the node "
            "numbers must be equal, and at least one part is needed."
        )
    if parts.start < 0 or parts.stop > chunking.parts:
        raise PlanError(f"parts {parts.start} to {parts.stop - 1}: valid parts are 0 to {chunking.parts - 1}.")
    chunks = chunking.chunks
    position = np.empty((len(parts), chunks), np.int64)
    for row, part in zip(position, parts, strict=True):
        row[generator(seed, "batching/survival", epoch, part).permutation(chunks)] = np.arange(chunks)
    own = np.flatnonzero((owner >= parts.start) & (owner < parts.stop))
    seat = owner[own] - np.int32(parts.start)
    key = position[seat, chunking.chunk[own]] * len(parts) + seat
    sizes = np.bincount(key, minlength=chunks * len(parts))
    if not sizes.all():
        first = int(np.flatnonzero(sizes == 0)[0]) % len(parts) + parts.start
        raise PlanError(f"a chunk of part {first} has no nodes. Make the chunks from this partition.")
    order = np.argsort(key.astype(np.uint16) if len(sizes) <= 1 << 16 else key, kind="stable")  # 16 bits: radix sort
    rows = np.concatenate([[0], np.cumsum(sizes.reshape(chunks, len(parts)).sum(axis=1))])
    return SurvivalOrder(own[order], owner[own][order], rows)
