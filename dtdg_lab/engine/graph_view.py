"""Views of a graph that a model aggregates over: neighbours, self, and single nodes."""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.engine.record_rows import TransferRow
from dtdg_lab.graphs.delta import CSR32, Contents, Payload, decode, encode, operator_bytes
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot, give_up, repeats
from dtdg_lab.kernels.device_snapshot import DeviceSnapshot, unpack
from dtdg_lab.kernels.operators import Operators, OperatorSettings, SnapshotSource, keep_freed_memory
from dtdg_lab.kernels.spmm import choose_backend, stacked
from dtdg_lab.models.graph_view import DIRECTION_OF, GraphView

# Where a pull finds the rows of neighbours: here, gathered from all ranks, or exchanged by precomputed indices.


class NeighbourRows:
    """The rows of neighbours that a pull of n own rows needs; here all nodes are own rows.

    Attributes:
        all_here: whether :meth:`joined` gives back what it is given.
    """

    all_here: ClassVar[bool] = True

    def joined(self, x: Tensor, direction: str) -> Tensor:
        """The columns of the operators along a direction (``in`` or ``out``): (n, F) -> (M, F), differentiable.

        Other functions may compute until rows are here (:mod:`dtdg_lab.engine.turns`).
        """
        return x

    def candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Rows (c, F) and scores (c,) that hold the k best of the snapshot, in the order in which ties are broken."""
        return x, scores

    def layer(self, number: int) -> NeighbourRows:
        """The same, for one layer of a model."""
        return self


class Gathered(NeighbourRows):
    """Own rows are a share of consecutive nodes; all others' are gathered, without gradient.

    Args:
        gather: joins the ranks' rows in rank order, of all nodes, or ``each`` from every rank; collective.
    """

    all_here = False

    def __init__(self, gather: Callable[..., Tensor]) -> None:
        self._gather = gather

    def joined(self, x: Tensor, direction: str) -> Tensor:
        """The rows of all nodes, in order."""
        return self._gather(x)

    def candidates(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k best of every rank, in rank order; ranks with fewer nodes fill up with minus infinity."""
        joined = self._gather(best_filled(x, scores, k), each=k)
        return joined[:, :-1], joined[:, -1]


def best_filled(x: Tensor, scores: Tensor, k: int) -> Tensor:
    """The k best rows beside their scores, (k, F + 1), ties to the lower row; minus infinity where there are fewer."""
    best = torch.sort(scores, descending=True, stable=True).indices[:k]
    own = torch.cat([x.index_select(0, best), scores.index_select(0, best).unsqueeze(1)], dim=1)
    missing = own.new_zeros(k - len(own), own.shape[1])
    missing[:, -1] = -torch.inf
    return torch.cat([own, missing])


# A snapshot, or several stacked ones, as a model sees them from some of their nodes.


class SnapshotView(GraphView):
    """What a model may ask of snapshots (see :class:`dtdg_lab.models.base.GraphView`).

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
        neighbours: NeighbourRows,
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
        seen = copy.copy(self)
        seen._neighbours, seen._is_busy = neighbours, False
        seen._base = self  # so that a store that does not keep spaces finds it as long as it is in use
        return seen

    def pull(self, x: Tensor, kind: str, scores: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """One hop of neighbours' rows combined, (n, F) -> (n, F).

        Raises:
            UnsupportedError: there is no such kind.
        """
        if kind == "attention":
            return self._attend(x, scores)
        path = self._path(x) if self._may_keep is not None else None
        if path is not None:
            return self._constant(x, (*path, kind))
        operator = self._operators.scaled(kind)
        self._is_busy = True
        return operator.apply(self._neighbours.joined(x, DIRECTION_OF[kind]))

    def _path(self, x: Tensor) -> tuple[str, ...] | None:
        """The kinds of pulls that make x of the inputs; None where x may depend on parameters."""
        if x is self.inputs:
            return ()
        return next((path for path, result in self._pulled.items() if result is x), None)

    def _constant(self, x: Tensor, path: tuple[str, ...]) -> Tensor:
        if path in self._pulled:
            return self._pulled[path]
        operator = self._operators.scaled(path[-1])
        known = x is self.inputs and self._all_inputs is not None and DIRECTION_OF[path[-1]] == "in"
        everything = self._all_inputs if known else self._neighbours.joined(x, DIRECTION_OF[path[-1]])
        assert everything is not None and self._may_keep is not None
        with torch.no_grad():
            result = operator.apply_once(everything)
        if self._may_keep(everything.numel() * everything.element_size()):  # the same on all ranks, as gathers must be
            self._pulled[path] = result
        if not self._is_busy:
            self._operators.release()
        return result

    def _attend(self, x: Tensor, scores: tuple[Tensor, Tensor] | None) -> Tensor:
        if scores is None:
            raise UnsupportedError("a pull of kind 'attention' needs scores=(from, to). Change the model.")
        self._is_busy = True
        scores_from, scores_to = scores
        if not self._neighbours.all_here:  # one exchange brings both
            joined = self._neighbours.joined(torch.cat([x, scores_from], dim=1), "in")
            x, scores_from = joined.split([x.shape[1], scores_to.shape[1]], dim=1)
        return self._operators.attention().apply(x, scores_from, scores_to)

    def columns(self, x: Tensor, direction: str) -> Tensor:
        """Return the rows of everyone that own rows receive from: (n, F) -> (M, F), differentiable.

        Those of features are exchanged once, where pulls of features are kept.
        """
        self._is_busy = True
        path = self._path(x)
        if self._may_keep is None or path is None:
            return self._neighbours.joined(x, direction)
        if not path and self._all_inputs is not None and direction == "in":
            return self._all_inputs
        key = (*path, f"columns-{direction}")
        if key in self._pulled:
            return self._pulled[key]
        columns = self._neighbours.joined(x, direction)
        assert self._may_keep is not None
        if not self._neighbours.all_here and self._may_keep(columns.numel() * columns.element_size()):
            self._pulled[key] = columns
        return columns

    def edges(self, direction: str) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return of every edge the column it comes from, the row it goes to, (E,) each, and its weight, (E, 1)."""
        self._is_busy = True
        adjacency, weights = self._operators.adjacency(direction), self._operators.own_weights(direction)
        return adjacency.indices.long(), adjacency.edge_rows(), None if weights is None else weights.unsqueeze(1)

    def num_targets(self, x: Tensor, direction: str) -> int:
        """Return the rows of the operators: a layer may be fed more rows than it gives."""
        return self._operators.adjacency(direction).shape[0]

    def drawn_share(self, direction: str) -> Tensor | None:
        """Return the share of each row's neighbours that were drawn, (n,); None where all are here."""
        return self._operators.drawn_share(direction)

    def top(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Rows of the k nodes with the largest scores, (min(k, N), F), and these scores; ties to the lower node.

        Raises:
            UnsupportedError: the space stands for several snapshots.
        """
        if len(self.snapshots) > 1:
            raise UnsupportedError("top of stacked snapshots: ask each snapshot for its own.")
        x, scores = self._neighbours.candidates(x, scores, k)
        best = torch.sort(scores, descending=True, stable=True).indices[: min(k, self._num_nodes)]
        return x.index_select(0, best), scores.index_select(0, best)


# What the engine asks of a training sequence: some nodes' rows, and spaces in which they find their neighbours.


class SnapshotSequence:
    """Snapshots as spaces, for the nodes that this rank (or one part) trains.

    This base exchanges nothing: each rank computes by itself.

    Attributes:
        device: where tensors live.
        dtype: of features and products.
        own: n, the nodes whose loss is computed here. They are the first rows of every space.
        vertices: (n,) their numbers in the graph; None where they are all N, in order.
        collective: whether spaces exchange rows with other ranks while a model pulls, in forward and in backward. Then
            every rank must ask the same of its sequence in the same order, one thing after another.
        where: what holds some of the nodes alone, for a message; empty where all are here.
        instead: the system that serves losses of all nodes at once.
    """

    device: str
    dtype: torch.dtype
    own: int
    vertices: Tensor | None
    collective: bool = False
    where: ClassVar[str] = ""
    instead: ClassVar[str] = "system='adgnn-t' (halo_vertex)"

    def view(self, t: int) -> SnapshotView:
        """Snapshot t for all layers of the model."""
        raise NotImplementedError

    def stacks(self, snapshots: range, layer: int) -> Sequence[SnapshotView]:
        """Consecutive snapshots for one layer of the model, some stacked; every layer stacks the same ones.

        A layer's space may have fewer rows than the space of the layer before it: of the earlier layer's output the
        first rows of each snapshot are then its input. After the last layer the first ``own`` rows count.
        """
        raise NotImplementedError

    def any_rank(self, flag: bool) -> bool:
        """Whether the flag is set on any rank that takes part; collective where the sequence is."""
        return flag

    def join(self, z: Tensor) -> Tensor:
        """Rows of all N nodes of the graph, in order, from every rank's own: (S, n, F) -> (S, N, F); differentiable.

        Collective where the sequence is.

        Raises:
            UnsupportedError: other nodes' rows are not computed here, and no rows are exchanged.
        """
        if self.where:
            raise UnsupportedError(
                f"a loss that needs all nodes at once, on {self.where}. Choose {self.instead}, or another task."
            )
        return z

    def has_turn(self, t: int) -> bool:
        """Whether what needs all nodes of snapshot t at once is computed here; true on one rank."""
        return True


class NumberedSequence(SnapshotSequence):
    """Another sequence whose loss is taken over these nodes, in this order.

    Args:
        of: whose snapshots are computed.
        vertices: (n,) numbers of the nodes; None for the own nodes of the sequence, in order.
    """

    def __init__(self, of: SnapshotSequence, vertices: Tensor | None) -> None:
        self._of, self.vertices = of, vertices
        self.device, self.dtype, self.collective = of.device, of.dtype, of.collective
        self.own = of.own if vertices is None else len(vertices)

    def view(self, t: int) -> SnapshotView:
        """As in the other sequence."""
        return self._of.view(t)

    def stacks(self, snapshots: range, layer: int) -> Sequence[SnapshotView]:
        """As in the other sequence."""
        return self._of.stacks(snapshots, layer)

    def any_rank(self, flag: bool) -> bool:
        """As in the other sequence."""
        return self._of.any_rank(flag)

    def join(self, z: Tensor) -> Tensor:
        """As in the other sequence."""
        return self._of.join(z)

    def has_turn(self, t: int) -> bool:
        """As in the other sequence."""
        return self._of.has_turn(t)


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

    They are kept while they fit; later ones are rebuilt at every request. For a pass over the sequence again and again
    this beats dropping the oldest.

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
        self._spaces_bytes, self._spaces_left, self._pulls_left = spaces_bytes, spaces_bytes, pulls_bytes
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

    def make_room(self, most_bytes: int) -> None:
        """Keep spaces of that many bytes, if these are more than so far."""
        more = max(0, most_bytes - self._spaces_bytes)
        self._spaces_bytes, self._spaces_left = self._spaces_bytes + more, self._spaces_left + more

    def take_pull(self, size: int) -> bool:
        """Whether a first-layer pull of so many bytes may be kept; it is then counted."""
        with self._lock:  # snapshots are computed on several threads
            fits = size <= self._pulls_left
            self._pulls_left -= size if fits else 0
        return fits


# What brings a rank the graphs of a block: whole, or the first whole and the others by their differences.


Transferred = list[Snapshot] | list[DeviceSnapshot]


class SnapshotFeed:
    """Snapshots of a graph as copies in a rank's own memory.

    On the CPU they arrive as :class:`Snapshot`. On a CUDA device they arrive as :class:`DeviceSnapshot`: payloads are
    pinned, their copies queued, and what follows on the same stream waits for them there; the host does not.

    A payload is made once for a range of snapshots and kept on the host until a range is asked for that has some of
    the same snapshots and others: so no snapshot is in two of them. Whole snapshots for the CPU are copied from the
    graph itself.

    Args:
        graph: T snapshots.
        difference: whether snapshots that follow another one arrive as differences.
        device: where they arrive.

    References: ESDG section 3.2 (differences, pinned memory).
    """

    def __init__(self, graph: DynamicGraph, *, difference: bool, device: str) -> None:
        self.graph, self.difference, self.device = graph, difference, device
        self._tensors = _takes_tensors(device)
        self._payloads: dict[range, Payload] = {}
        self._pages: dict[range, tuple[Contents, Tensor, Tensor | None]] = {}
        self._snapshots = self._bytes = self._whole_bytes = 0

    def bring(self, snapshots: range) -> Transferred:
        """Transfer consecutive snapshots; the first is always transferred in full.

        Raises:
            DataError: the snapshots cannot be encoded.
        """
        if not len(snapshots):
            return []
        if self._tensors:
            return self._to_device(snapshots)
        if not self.difference:
            payload = self._encoded(snapshots)  # this is the copy
        else:
            kept = self._kept(snapshots)
            values = None if kept.values is None else give_up(kept.values.copy())
            payload = Payload(kept.contents, give_up(kept.numbers.copy()), values)
        self._count(payload.contents, payload.nbytes)
        return decode(payload)

    def drain(self) -> list[TransferRow]:
        """Return and forget what was transferred; empty if there was nothing."""
        row = TransferRow(self._snapshots, self._bytes, self._whole_bytes)
        self._snapshots = self._bytes = self._whole_bytes = 0
        return [row] if row.snapshots else []

    def _to_device(self, snapshots: range) -> list[DeviceSnapshot]:
        if snapshots not in self._pages:
            _forget_parts_of(snapshots, self._pages)
            made = self._encoded(snapshots)
            numbers = torch.tensor(made.numbers).pin_memory()
            values = None if made.values is None else torch.tensor(made.values).pin_memory()
            self._pages[snapshots] = (made.contents, numbers, values)
        contents, numbers, values = self._pages[snapshots]
        self._count(contents, numbers.nbytes + (0 if values is None else values.nbytes))
        there = None if values is None else values.to(self.device, non_blocking=True)
        return unpack(contents, numbers.to(self.device, non_blocking=True), there)

    def _kept(self, snapshots: range) -> Payload:
        if snapshots not in self._payloads:
            _forget_parts_of(snapshots, self._payloads)
            self._payloads[snapshots] = self._encoded(snapshots)
        return self._payloads[snapshots]

    def _encoded(self, snapshots: range) -> Payload:
        return encode([self.graph.snapshots[t] for t in snapshots], CSR32, difference=self.difference)

    def _count(self, contents: Contents, sent: int) -> None:
        self._snapshots += len(contents.parts)
        self._bytes += sent
        for part in contents.parts:
            numbers = CSR32.whole_numbers(contents.nodes, part.edges)
            self._whole_bytes += numbers * CSR32.index_bytes + CSR32.value_bytes(part.edges, contents.weighted)


def _takes_tensors(device: str) -> bool:
    """Whether snapshots arrive there as tensors, by pinned memory."""
    return torch.device(device).type == "cuda"


def _forget_parts_of(snapshots: range, kept: dict[range, Any]) -> None:
    """Let go of payloads that have some of these snapshots: the blocks are cut otherwise by now."""
    for other in [other for other in kept if other.start < snapshots.stop and snapshots.start < other.stop]:
        kept.pop(other)


# A graph's snapshots as spaces on the device that computes, moved there when first used.


# First-layer pulls that a sequence keeps, and what it keeps on the device beside them (features, operators).
PULLS_BYTES, SPACES_BYTES = 1 << 30, 4 << 30


class StoredSequence(SnapshotSequence):
    """Snapshots of a graph, or of what a part holds of it, whose spaces are kept in a store."""

    _store: ViewStore
    _static: Tensor | None = None

    def view(self, t: int) -> SnapshotView:
        """Snapshot t for all layers of the model."""
        return self._store.get(range(t, t + 1))

    def stack(self, snapshots: range) -> SnapshotView:
        """Some consecutive snapshots as one space."""
        return self._store.get(snapshots)

    def _features_of(self, features: NDArray[np.float32], snapshots: range, rows: Any = slice(None)) -> Tensor:
        """Features over time, (T, N, F), of some nodes in some snapshots, (S n, F); static ones are moved once."""
        if repeats(features) and len(snapshots) == 1:
            if self._static is None:
                self._static = self._moved(features[0][rows])
            return self._static
        return self._moved(features[snapshots.start : snapshots.stop][:, rows]).flatten(0, 1)

    def _moved(self, features: NDArray[np.float32]) -> Tensor:
        return torch.tensor(np.asarray(features), device=self.device).to(self.dtype)


class DeviceSequence(StoredSequence):
    """Snapshots of a graph as :class:`SnapshotView`, for the nodes in ``rows`` (see :class:`SnapshotSequence`).

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
        gather: Callable[..., Tensor] | None = None,
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
        self._neighbours = NeighbourRows() if gather is None else Gathered(gather)
        self._store = ViewStore(self._make, self.estimated_bytes, spaces_bytes=spaces_bytes, pulls_bytes=pulls_bytes)
        self._pulled: dict[range, dict[tuple[str, ...], Tensor]] = {}
        self.feed = feed
        self._brought: dict[int, Snapshot | DeviceSnapshot] = {}

    @property
    def backend(self) -> str:
        """``dgl`` or ``torch``."""
        return self.settings.backend

    def stacks(self, snapshots: range, layer: int = 0) -> list[SnapshotView]:
        """Consecutive snapshots as spaces of one or, where they are small, several snapshots each; alike for layers."""
        if self.collective:
            return [self.view(t) for t in snapshots]
        nodes, features = self.graph.num_nodes, self.graph.num_features
        ranges = stack_ranges(snapshots, rows=nodes, features=features, device=self.device)
        return [self._store.get(some) for some in ranges]

    def keep_spaces(self, most_bytes: int) -> None:
        """Keep spaces of that many bytes, if these are more than so far."""
        self._store.make_room(most_bytes)

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

    def _make(self, snapshots: range) -> SnapshotView:
        rows = self.rows if len(snapshots) == 1 else range(len(snapshots) * self.graph.num_nodes)
        features = self._features_of(self.graph.features, snapshots)
        return SnapshotView(
            self._operators(snapshots, rows),
            snapshots,
            features if len(rows) == len(features) else features[rows.start : rows.stop],
            self._neighbours,
            num_nodes=self.graph.num_nodes,
            all_inputs=features,
            pulled=self._pulled.setdefault(snapshots, {}),
            may_keep=self._store.take_pull,
        )

    def estimated_bytes(self, snapshots: range) -> int:
        """Features of some snapshots, and one operator of each with its transpose."""
        return operator_bytes(self.graph, snapshots, torch.finfo(self.dtype).bits // 8)

    def _operators(self, snapshots: range, rows: range) -> Operators:
        """The operators of some rows of snapshots, stacked where they are several."""
        held: Any = self.graph.snapshots if self.feed is None else self._brought
        one = stacked([held[t] for t in snapshots])
        return Operators(SnapshotSource(one, rows, self.settings), self.settings)


def operator_settings(
    graph: DynamicGraph, *, device: str, dtype: torch.dtype, kernel: str, norm: str, loops: bool
) -> OperatorSettings:
    """How the operators of a sequence are made; ``kernel="auto"`` is decided by the graph's largest snapshot."""
    weighted, edges = graph.snapshots[0].weights is not None, int(max(graph.num_edges))
    backend = choose_backend(kernel, device=device, weighted=weighted, edges=edges, dtype=dtype)
    return OperatorSettings(backend, dtype, device, norm, loops)


# The smallest view: one node with a self-loop, to inspect a model.


class OneVertex(GraphView):
    """A node without edges (see :class:`dtdg_lab.models.base.GraphView`); a pull gives back what was put in."""

    num_rows = 1

    def layer(self, number: int) -> GraphView:
        """All layers alike."""
        return self

    def pull(self, x: Tensor, kind: str, scores: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """The rows given."""
        return x

    def top(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The one row."""
        return x[:1], scores[:1]
