"""Views of a graph that a model aggregates over: neighbours, self, and single nodes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.engine.delta_feed import SnapshotFeed
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.device_snapshot import DeviceSnapshot
from dtdg_lab.kernels.operators import Operators, OperatorSettings, SnapshotSource, keep_freed_memory
from dtdg_lab.kernels.spmm import choose_backend, stacked
from dtdg_lab.models.base import DynamicModel, GraphView, run_straight

# Common base of sequences that exchange nothing: each rank computes by itself.


class Apart:
    """The part of :class:`dtdg_lab.engine.strategy.SnapshotSequence` that concerns other ranks, for a single rank.

    Attributes:
        where: what holds some of the nodes, for a message.
        instead: the system that serves losses of all nodes at once.
    """

    collective = False
    where: ClassVar[str]
    instead: ClassVar[str]

    def any_rank(self, flag: bool) -> bool:
        """No other rank has a say."""
        return flag

    def join(self, z: Tensor) -> Tensor:
        """Refused: other nodes' rows are not computed here, and no rows are exchanged.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            f"a loss that needs all nodes at once, on {self.where}. Choose {self.instead}, or another task."
        )

    def has_turn(self, t: int) -> bool:
        """Always."""
        return True


# Where a pull finds the rows of neighbours: here, gathered from all ranks, or exchanged by precomputed indices.


class Gather(Protocol):
    """Joins ranks' rows; collective, without gradient."""

    def __call__(self, rows: Tensor, each: int | None = None) -> Tensor:
        """All ranks' rows in rank order: of all nodes, or ``each`` from every rank."""
        ...


class Neighbours(Protocol):
    """Gives the rows that a pull of n own rows needs."""

    async def joined(self, x: Tensor, way: str) -> Tensor:
        """The columns of the operators along a way (``in`` or ``out``): (n, F) -> (M, F), differentiable.

        It may suspend until rows are here (:mod:`dtdg_lab.engine.halo_exchange`); then somebody must drive the model.
        """
        ...

    def candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Rows (c, F) and scores (c,) that hold the k best of the snapshot, in the order in which ties are broken."""
        ...

    def layer(self, number: int) -> Neighbours:
        """The same, for one layer of a model."""
        ...


class AllHere:
    """All nodes are own rows."""

    async def joined(self, x: Tensor, way: str) -> Tensor:
        """The rows given."""
        return x

    def candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """All of them, by node."""
        return x, scores

    def layer(self, number: int) -> AllHere:
        """All layers alike."""
        return self


class Gathered:
    """Own rows are a share of consecutive nodes; all others' are gathered, without gradient.

    Args:
        gather: joins the ranks' shares.
    """

    def __init__(self, gather: Gather) -> None:
        self._gather = gather

    async def joined(self, x: Tensor, way: str) -> Tensor:
        """The rows of all nodes, in order."""
        return self._gather(x)

    def candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k best of every rank, in rank order; ranks with fewer nodes fill up with minus infinity."""
        joined = self._gather(best_filled(x, scores, k), each=k)
        return joined[:, :-1], joined[:, -1]

    def layer(self, number: int) -> Gathered:
        """All layers alike."""
        return self


def best_filled(x: Tensor, scores: Tensor, k: int) -> Tensor:
    """The k best rows beside their scores, (k, F + 1), ties to the lower row; minus infinity where there are fewer."""
    best = torch.sort(scores, descending=True, stable=True).indices[:k]
    own = torch.cat([x.index_select(0, best), scores.index_select(0, best).unsqueeze(1)], dim=1)
    missing = own.new_zeros(k - len(own), own.shape[1])
    missing[:, -1] = -torch.inf
    return torch.cat([own, missing])


# A snapshot, or several stacked ones, as a model sees them from some of their nodes.


WAY = {"gcn": "in", "mean": "in", "diffusion-in": "in", "diffusion-out": "out", "attention": "in"}


class SnapshotView:
    """What a model may ask of snapshots (see :class:`dtdg_lab.models.base.Space`).

    Pulls of the snapshots' own features, and pulls of those, do not depend on parameters: where ``may_keep`` is given
    they are computed once and kept (ESDG section 5.5), and where a model asks for no others, the adjacency is let go.

    Args:
        operators: of the own rows of the snapshot, or of the stacked ones.
        snapshots: which snapshots of the sequence, S of them.
        inputs: features of the own rows, (S n, F).
        neighbours: where a pull finds others' rows.
        num_nodes: N, the nodes of a snapshot.
        all_inputs: features of all columns of ``in``, where they are here already.
        pulled: first-layer pulls that are kept, by their kinds in order; the space adds to it.
        may_keep: given the bytes of a first-layer aggregation, returns whether to cache it; None caches nothing.
    """

    def __init__(
        self,
        operators: Operators,
        snapshots: range,
        inputs: Tensor,
        neighbours: Neighbours,
        *,
        num_nodes: int,
        all_inputs: Tensor | None = None,
        pulled: dict[tuple[str, ...], Tensor] | None = None,
        may_keep: Callable[[int], bool] | None = None,
    ) -> None:
        self._operators, self.snapshots, self.inputs, self._neighbours = operators, snapshots, inputs, neighbours
        self._num_nodes, self._all_inputs = num_nodes, all_inputs
        self._pulled = {} if pulled is None else pulled
        self._may_keep = may_keep
        self._is_busy = False
        self._base: SnapshotView | None = None

    @property
    def num_rows(self) -> int:
        """Nodes whose rows are computed; stacked, those of all snapshots."""
        return len(self.inputs)

    def layer(self, number: int) -> SnapshotView:
        """The same rows; exchanges are counted for this layer."""
        neighbours = self._neighbours.layer(number)
        if neighbours is self._neighbours:
            return self
        seen = SnapshotView(
            self._operators,
            self.snapshots,
            self.inputs,
            neighbours,
            num_nodes=self._num_nodes,
            all_inputs=self._all_inputs,
            pulled=self._pulled,
            may_keep=self._may_keep,
        )
        seen._base = self  # so that a store that does not keep spaces finds it as long as it is in use
        return seen

    async def pull(self, x: Tensor, kind: str, scores: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """One hop of neighbours' rows combined, (n, F) -> (n, F).

        Raises:
            UnsupportedError: there is no such kind.
        """
        if kind == "attention":
            return await self._attend(x, scores)
        path = self._path(x) if self._may_keep is not None else None
        if path is not None:
            return await self._constant(x, (*path, kind))
        operator = self._operators.scaled(kind)
        self._is_busy = True
        return operator.apply(await self._neighbours.joined(x, WAY[kind]))

    def _path(self, x: Tensor) -> tuple[str, ...] | None:
        """The kinds of pulls that make x of the inputs; None where x may depend on parameters."""
        if x is self.inputs:
            return ()
        return next((path for path, result in self._pulled.items() if result is x), None)

    async def _constant(self, x: Tensor, path: tuple[str, ...]) -> Tensor:
        if path in self._pulled:
            return self._pulled[path]
        operator = self._operators.scaled(path[-1])
        known = x is self.inputs and self._all_inputs is not None and WAY[path[-1]] == "in"
        everything = self._all_inputs if known else await self._neighbours.joined(x, WAY[path[-1]])
        assert everything is not None and self._may_keep is not None
        with torch.no_grad():
            result = operator.apply_once(everything)
        if self._may_keep(everything.numel() * everything.element_size()):  # the same on all ranks, as gathers must be
            self._pulled[path] = result
        if not self._is_busy:
            self._operators.release()
        return result

    async def _attend(self, x: Tensor, scores: tuple[Tensor, Tensor] | None) -> Tensor:
        if scores is None:
            raise UnsupportedError("a pull of kind 'attention' needs scores=(from, to). Change the model.")
        self._is_busy = True
        scores_from, scores_to = scores
        if not isinstance(self._neighbours, AllHere):  # one exchange brings both
            joined = await self._neighbours.joined(torch.cat([x, scores_from], dim=1), "in")
            x, scores_from = joined.split([x.shape[1], scores_to.shape[1]], dim=1)
        return self._operators.attention().apply(x, scores_from, scores_to)

    async def top(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Rows of the k nodes with the largest scores, (min(k, N), F), and these scores; ties to the lower node.

        Raises:
            UnsupportedError: the space stands for several snapshots.
        """
        if len(self.snapshots) > 1:
            raise UnsupportedError("top of stacked snapshots: ask each snapshot for its own.")
        x, scores = self._neighbours.candidates(x, scores, k)
        best = torch.sort(scores, descending=True, stable=True).indices[: min(k, self._num_nodes)]
        return x.index_select(0, best), scores.index_select(0, best)


# Spaces that a sequence has made, kept while they fit; and how many snapshots one of them stands for.


# Rows of stacked snapshots, at most. Above, a product takes longer than the call, and stacking gains nothing.
STACKED_ROWS = {"cpu": 16_384, "cuda": 1_048_576}
# Features of stacked snapshots, at most: overlapping runs of snapshots have stacks, and copies of features, each.
STACKED_NUMBERS = {"cpu": 262_144, "cuda": 16_777_216}


def stack_ranges(snapshots: range, *, rows: int, features: int, device: str) -> list[range]:
    """Consecutive snapshots in runs that are computed together, of about equal length.

    Args:
        snapshots: T consecutive ones.
        rows: of one snapshot; where ranks exchange rows, the most that any of them has.
        features: F.
        device: where they are computed.
    """
    place = device.partition(":")[0]
    most = max(1, min(STACKED_ROWS[place] // rows, STACKED_NUMBERS[place] // (rows * features)))
    pieces = -(-len(snapshots) // most)
    bounds = [snapshots.start + len(snapshots) * piece // pieces for piece in range(pieces + 1)]
    return [range(*pair) for pair in pairwise(bounds)]


class ViewStore:
    """Spaces by their snapshots.

    They are kept while they fit; later ones are rebuilt at every request. For a pass over the sequence
    again and again this beats dropping the oldest.

    Args:
        make: makes the space of some snapshots.
        size: bytes of a space, by an estimate.
        spaces_bytes: most bytes of spaces kept.
        pulls_bytes: most bytes of first-layer pulls kept.
    """

    def __init__(
        self,
        make: Callable[[range], SnapshotView],
        size: Callable[[range], int],
        *,
        spaces_bytes: int,
        pulls_bytes: int,
    ) -> None:
        self._make, self._size = make, size
        self._spaces_left, self._pulls_left = spaces_bytes, pulls_bytes
        self._spaces: dict[range, SnapshotView] = {}
        self._alive: weakref.WeakValueDictionary[range, SnapshotView] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def get(self, snapshots: range) -> SnapshotView:
        """The space of these snapshots."""
        if snapshots in self._spaces:
            return self._spaces[snapshots]
        space = self._alive.get(snapshots)  # not kept, but somebody has it still
        if space is not None:
            return space
        space = self._make(snapshots)
        if self.keeps(snapshots):
            self._spaces_left -= self._size(snapshots)
            self._spaces[snapshots] = space
        else:
            self._alive[snapshots] = space
        return space

    def keeps(self, snapshots: range) -> bool:
        """Whether the space is kept, or will be when it is made."""
        return snapshots in self._spaces or self._size(snapshots) <= self._spaces_left

    def take_pull(self, size: int) -> bool:
        """Whether a first-layer pull of so many bytes may be kept; it is then counted."""
        with self._lock:  # snapshots are computed on several threads
            fits = size <= self._pulls_left
            self._pulls_left -= size if fits else 0
        return fits


# A graph's snapshots as spaces on the device that computes, moved there when first used.


# First-layer pulls that a sequence keeps, and what it keeps on the device beside them (features, operators).
PULLS_BYTES, SPACES_BYTES = 1 << 30, 4 << 30


class DeviceSequence:
    """Snapshots of a graph as :class:`SnapshotView`, for the nodes in ``rows`` (see ``parallel.sequence``).

    Args:
        graph: T labelled snapshots of N nodes.
        device: where tensors live.
        dtype: type of features and products.
        kernel: ``auto``, ``dgl`` or ``torch``.
        norm: ``in`` or ``in_out``, the scaling of graph convolutions.
        self_loops: whether they add every node to its own neighbours.
        rows: nodes computed here; all where None.
        gather: where rows are a share, gives all nodes' rows from every rank's; without gradient.
        pulls_bytes: most bytes of first-layer pulls kept.
        spaces_bytes: most bytes of spaces kept, by an estimate from their edges.
        feed: brings copies of snapshots; where None, those of the graph are used as they are.
    """

    def __init__(
        self,
        graph: DynamicGraph,
        *,
        device: str,
        dtype: torch.dtype,
        kernel: str,
        norm: str = "in",
        self_loops: bool = True,
        rows: range | None = None,
        gather: Gather | None = None,
        pulls_bytes: int = PULLS_BYTES,
        spaces_bytes: int = SPACES_BYTES,
        feed: SnapshotFeed | None = None,
    ) -> None:
        keep_freed_memory()
        self.graph, self.device, self.dtype = graph, device, dtype
        self.rows = range(graph.num_nodes) if rows is None else rows
        self.own = len(self.rows)
        self.vertices = None if rows is None else torch.arange(rows.start, rows.stop, device=device)
        self.collective = gather is not None
        self.settings = operator_settings(graph, device=device, dtype=dtype, kernel=kernel, norm=norm, loops=self_loops)
        self._neighbours = AllHere() if gather is None else Gathered(gather)
        self._store = ViewStore(self._make, self._estimated_bytes, spaces_bytes=spaces_bytes, pulls_bytes=pulls_bytes)
        self._pulled: dict[range, dict[tuple[str, ...], Tensor]] = {}
        self._static: Tensor | None = None
        self.feed = feed
        self._brought: dict[int, Snapshot | DeviceSnapshot] = {}

    @property
    def backend(self) -> str:
        """``dgl`` or ``torch``."""
        return self.settings.backend

    def view(self, t: int) -> SnapshotView:
        """Snapshot t on the device."""
        return self._store.get(range(t, t + 1))

    def stacks(self, snapshots: range, layer: int = 0) -> list[SnapshotView]:
        """Consecutive snapshots as spaces of one or, where they are small, several snapshots each; alike for layers."""
        if self.collective:
            return [self.view(t) for t in snapshots]
        nodes, features = self.graph.num_nodes, self.graph.num_features
        ranges = stack_ranges(snapshots, rows=nodes, features=features, device=self.device)
        return [self._store.get(some) for some in ranges]

    def fed(self, *, difference: bool) -> DeviceSequence:
        """The same snapshots, with only the transferred ones on the device: copies, in full or by delta."""
        feed = SnapshotFeed(self.graph, difference=difference, device=self.device)
        of = self.settings
        return DeviceSequence(
            self.graph,
            device=self.device,
            dtype=self.dtype,
            kernel=of.backend,
            norm=of.norm,
            self_loops=of.self_loops,
            spaces_bytes=0,
            feed=feed,
        )

    def bring(self, snapshots: range) -> None:
        """Release earlier copies and transfer these snapshots, if there is a feed."""
        if self.feed is not None:
            self._brought.clear()  # first, because both may not fit in memory
            self._brought.update(zip(snapshots, self.feed.bring(snapshots), strict=True))

    def stack(self, snapshots: range) -> SnapshotView:
        """Some consecutive snapshots as one space."""
        return self._store.get(snapshots)

    def any_rank(self, flag: bool) -> bool:
        """No other rank has a say: each computes by itself."""
        return flag

    def join(self, z: Tensor) -> Tensor:
        """All rows are here."""
        return z

    def has_turn(self, t: int) -> bool:
        """Always."""
        return True

    def _make(self, snapshots: range) -> SnapshotView:
        one = self._one(snapshots)
        rows = self.rows if len(snapshots) == 1 else range(one.num_nodes)
        features = self._features(snapshots)
        return SnapshotView(
            Operators(SnapshotSource(one, rows, self.settings), self.settings),
            snapshots,
            features if len(rows) == len(features) else features[rows.start : rows.stop],
            self._neighbours,
            num_nodes=self.graph.num_nodes,
            all_inputs=features,
            pulled=self._pulled.setdefault(snapshots, {}),
            may_keep=self._store.take_pull,
        )

    def _one(self, snapshots: range) -> Snapshot | DeviceSnapshot:
        """Some snapshots stacked as one, from the transferred copies or the graph itself."""
        if self.feed is None:
            return stacked([self.graph.snapshots[t] for t in snapshots])
        return stacked([self._brought[t] for t in snapshots])

    def _features(self, snapshots: range) -> Tensor:
        """Features of all nodes, (N, F), or (S N, F); static ones are moved once."""
        features = self.graph.features
        if features.strides[0] == 0 and len(snapshots) == 1:
            if self._static is None:
                self._static = torch.tensor(np.asarray(features[0]), device=self.device).to(self.dtype)
            return self._static
        part = np.asarray(features[snapshots.start : snapshots.stop])
        return torch.tensor(part, device=self.device).to(self.dtype).flatten(0, 1)

    def _estimated_bytes(self, snapshots: range) -> int:
        """Features, and one operator with its transpose: an index and a weight for each edge, either way."""
        graph, width = self.graph, torch.finfo(self.dtype).bits // 8
        edges = int(graph.num_edges[snapshots.start : snapshots.stop].sum()) + len(snapshots) * graph.num_nodes
        return edges * 2 * (4 + width) + len(snapshots) * graph.num_nodes * graph.num_features * width


def operator_settings(
    graph: DynamicGraph, *, device: str, dtype: torch.dtype, kernel: str, norm: str, loops: bool
) -> OperatorSettings:
    """How the operators of a sequence are made; ``kernel="auto"`` is decided by the graph's largest snapshot."""
    weighted, edges = graph.snapshots[0].weights is not None, int(max(graph.num_edges))
    backend = choose_backend(kernel, device=device, weighted=weighted, edges=edges, dtype=dtype)
    return OperatorSettings(backend, dtype, device, norm, loops)


# The smallest view: one node with a self-loop, to inspect a model.


class OneVertex:
    """A node without edges (see :class:`dtdg_lab.models.base.Space`); a pull gives back what was put in."""

    num_rows = 1

    def layer(self, number: int) -> GraphView:
        """All layers alike."""
        return self

    async def pull(self, x: Tensor, kind: str, scores: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """The rows given."""
        return x

    async def top(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The one row."""
        return x[:1], scores[:1]


# What lies between the spatial and the temporal part of a layer, found out on one node without edges.


@dataclass(frozen=True, slots=True)
class RedistributionWidth:
    """Of one layer: numbers in a row, C, and whether they depend on parameters."""

    width: int
    learned: bool


def seam_widths(model: DynamicModel) -> tuple[RedistributionWidth, ...]:
    """The seam of every layer, whatever this rank has of the graph."""
    found = []
    for layer in range(model.layers):
        x = model.zeros(1, model.width(layer)).requires_grad_(layer > 0)
        mixed = run_straight(model.spatial(layer, OneVertex(), x, model.initial_state(1)))
        found.append(RedistributionWidth(mixed.shape[1], mixed.requires_grad))
    return tuple(found)
