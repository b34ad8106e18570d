"""Computation blocks of hybrid batches: the rows and edges that each layer needs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.model_facts import ModelFacts
from dtdg_lab.core.errors import DataError, PlanError
from dtdg_lab.core.plans import TargetBatch
from dtdg_lab.engine.replicated_part import STATIC_MEMORIES, CachedPart

if TYPE_CHECKING:
    from dtdg_lab.engine.sampled_blocks import WholeGraph

Held: TypeAlias = "CachedPart | WholeGraph"  # what blocks are built from

# How the blocks of a batch grow: from its targets hop by hop, in all of its snapshots at once.


_SCRATCH = 1 << 22  # nodes of snapshots looked at together: few enough to be cheap to touch anywhere

Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Rows of S snapshots, one snapshot after another, each nearest first.

    Attributes:
        snapshot: (K,) which of the S a row is of.
        place: (K,) its place among the nodes that the part holds in the snapshot.
        counts: (S,) rows of each snapshot.
    """

    snapshot: Whole
    place: Whole
    counts: Whole

    def spread(self, height: int) -> Whole:
        """(K,) numbers of the rows where each snapshot has the same number of them."""
        if (self.counts == height).all():
            return np.arange(len(self.place))
        first = np.cumsum(self.counts) - self.counts
        return np.arange(len(self.place)) + (np.arange(len(self.counts)) * height - first)[self.snapshot]


@dataclass(frozen=True, slots=True, eq=False)
class GatheredTargets:
    """The edges along which rows pull.

    Attributes:
        lengths: (K,) how many edges each row has.
        place: (E,) the places of those they come from.
        per_snapshot: (S,) edges of each snapshot.
        weights: (E,) float32, or None.
    """

    lengths: Whole
    place: NDArray[np.int32]
    per_snapshot: Whole
    weights: NDArray[np.float32] | None

    def kept(self, which: NDArray[np.bool_], rows: Whole) -> GatheredTargets:
        """Some of the edges alone; ``rows`` (E,) says which row each is of."""
        ends = np.cumsum(self.per_snapshot)
        counted = np.concatenate([[0], np.cumsum(which)])
        weights = None if self.weights is None else self.weights[which]
        return GatheredTargets(
            np.bincount(rows[which], minlength=len(self.lengths)),
            self.place[which],
            counted[ends] - counted[ends - self.per_snapshot],
            weights,
        )


class TargetGrowth:
    """Nodes within ever more hops of the targets.

    Args:
        part: what a part holds.
        snapshots: S of the cached ones.
        targets: (V,) places among the part's own nodes, ascending.
        shared: whether the nodes are the same in all snapshots: those that edges of any of the S lead to. Needs a
            part that holds the same ones in all.

    Attributes:
        entries: the rows within the hops grown so far.
    """

    def __init__(self, part: Held, snapshots: range, targets: NDArray[np.integer], *, shared: bool) -> None:
        self._part, self._snapshots, self._shared = part, snapshots, shared
        self._count = len(snapshots)
        every = (part.prefix(t, part.reach.hops) for t in snapshots)
        self._heights = np.fromiter(every, np.int64, self._count)
        self._wide_at = np.cumsum(self._heights) - self._heights  # of each snapshot, where its keys begin
        self._key_at = np.zeros(self._count, np.int64) if shared else self._wide_at
        size = int(self._heights[0] if shared else self._heights.sum())
        self._known = np.zeros(size, bool)  # by key: is it within the hops so far
        self._row = np.empty(size, np.int32)  # by key, where known: its row in the snapshot
        self._nearest: Whole = np.empty(0, np.int64)  # places, where shared
        self.entries = Entries(*(np.empty(0, np.int64),) * 2, np.zeros(self._count, np.int64))
        own = np.asarray(targets, np.int64)
        if shared:
            self._add(None, own)
        else:
            self._add(np.repeat(np.arange(self._count), len(own)), np.tile(own, self._count))

    def gather(self, direction: str, layer: int) -> GatheredTargets:
        """The edges along which the rows grown so far pull; of whatever layer."""
        part, snapshots, of = self._part, self._snapshots, self.entries
        indptr, rows_at = part.joined(f"indptr_{direction}", snapshots)
        indices, edges_at = part.joined(f"indices_{direction}", snapshots)
        at = rows_at.take(of.snapshot) + of.place
        begin = indptr.take(at).astype(np.int64)
        lengths = indptr.take(at + 1) - begin
        ends = np.cumsum(lengths)
        edge = np.arange(ends[-1]) + np.repeat(begin + edges_at.take(of.snapshot) - (ends - lengths), lengths)
        weights = part.joined(f"weights_{direction}", snapshots)[0].take(edge) if part.weighted else None
        last = np.concatenate([[0], ends])[np.cumsum(of.counts)]
        return GatheredTargets(lengths, indices.take(edge), np.diff(last, prepend=0), weights)

    @property
    def places(self) -> Whole:
        """(K,) the places of the rows of every snapshot; where these are the same in all."""
        return self._nearest

    def grow(self, gathered: list[GatheredTargets]) -> None:
        """Add everything that the edges come from: one hop more."""
        keys = np.concatenate([self._keys(of) for of in gathered])
        fresh = keys[~self._known[keys]]
        new = _distinct(fresh, self._row)
        if self._shared:
            self._add(None, new)
        else:
            snapshot = np.searchsorted(self._wide_at, new, side="right") - 1
            self._add(snapshot, new - self._wide_at[snapshot])

    def inside(self, gathered: GatheredTargets) -> GatheredTargets:
        """Those of the edges that come from what is known."""
        known = self._known[self._keys(gathered)]
        if known.all():
            return gathered
        return gathered.kept(known, np.repeat(np.arange(len(gathered.lengths)), gathered.lengths))

    def columns(self, gathered: GatheredTargets, height: int) -> NDArray[np.int32]:
        """(E,) the source rows of the edges; every snapshot has the same number of rows."""
        rows = self._row[self._keys(gathered)]
        if self._count > 1:
            rows = rows + np.repeat((np.arange(self._count) * height).astype(np.int32), gathered.per_snapshot)
        return rows

    def further(self, gathered: GatheredTargets, height: int) -> tuple[NDArray[np.int32], Entries]:
        """The same, with what is not known as further columns after all rows; and these, each snapshot its own."""
        columns = self.columns(gathered, height)
        outside = np.flatnonzero(~self._known.take(self._keys(gathered)))
        snapshot = np.repeat(np.arange(self._count), gathered.per_snapshot)[outside]
        wide = gathered.place[outside] + self._wide_at.take(snapshot)
        found, last = [], self._count * height
        for first, stop in self._chunks():
            here = slice(*np.searchsorted(snapshot, [first, stop]))
            keys = wide[here] - self._wide_at[first]
            new = _distinct(keys, self._scratch)
            self._scratch[new] = np.arange(last, last + len(new), dtype=np.int32)
            columns[outside[here]] = self._scratch.take(keys)
            found.append(new + self._wide_at[first])
            last += len(new)
        new = np.concatenate(found)
        of = np.searchsorted(self._wide_at, new, side="right") - 1
        return columns, Entries(of, new - self._wide_at[of], np.bincount(of, minlength=self._count))

    def _chunks(self) -> list[tuple[int, int]]:
        """Runs of the S snapshots whose nodes scratch memory has room for, one after another."""
        most = max(1, _SCRATCH // max(int(self._heights.max()), 1))
        return [(first, min(first + most, self._count)) for first in range(0, self._count, most)]

    @cached_property
    def _scratch(self) -> NDArray[np.int32]:
        return np.empty(max(int(self._heights[first:stop].sum()) for first, stop in self._chunks()), np.int32)

    def _keys(self, gathered: GatheredTargets) -> NDArray[Any]:
        if self._shared:
            return gathered.place
        return gathered.place + np.repeat(self._key_at, gathered.per_snapshot)

    def _add(self, snapshot: Whole | None, place: Whole) -> None:
        """Append rows, ascending; those of some snapshots, or the same to all."""
        if snapshot is None:
            self._row[place] = np.arange(len(self._nearest), len(self._nearest) + len(place), dtype=np.int32)
            self._known[place] = True
            self._nearest = np.concatenate([self._nearest, place])
            k = len(self._nearest)
            self.entries = Entries(
                np.repeat(np.arange(self._count), k), np.tile(self._nearest, self._count), np.full(self._count, k)
            )
            return
        before, held = self.entries, np.bincount(snapshot, minlength=self._count)
        keys = place + self._wide_at[snapshot]
        first = np.cumsum(held) - held
        self._row[keys] = np.arange(len(place)) + (before.counts - first)[snapshot]
        self._known[keys] = True
        both = np.concatenate([before.snapshot, snapshot])
        order = np.argsort(both, kind="stable")
        self.entries = Entries(both[order], np.concatenate([before.place, place])[order], before.counts + held)


def _distinct(keys: NDArray[Any], scratch: NDArray[np.int32]) -> Whole:
    """Each key once, ascending; what scratch has at the keys is overwritten."""
    number = np.arange(len(keys), dtype=np.int32)
    scratch[keys] = number
    once = keys[scratch[keys] == number].astype(np.int64)
    once.sort()
    return once


# The exact computation blocks of a hybrid batch: what its targets' layers need in each snapshot, none left out.


_ALIGNED = 64  # bytes: where arrays begin in a message
_MOST_ROWS = 2**31 - 1  # of all snapshots, in 32 bits


@dataclass(frozen=True, slots=True)
class BlockShape:
    """What a model needs of the snapshots of a batch.

    Attributes:
        layers: L.
        layer_hops: h of each layer.
        memory: the model's. ``per_vertex`` and ``neighbourhood`` have the same nodes in all snapshots of the batch:
            those within L h hops of a target by edges of any of them. Others have each snapshot's own.
        directions: along which edges the model pulls.
        inputs_once: whether all that the first layer pulls are the features, in one hop, so that of the farthest
            nodes nothing but the features is needed, in the snapshots where an edge leads to them.
        out_degrees: whether rows are scaled by out-degrees too.
        places: whether blocks say which of the part's nodes their rows are; needs the same ones in all snapshots.
        neighbours: whether blocks of sampled neighbours say how many in-neighbours each row has; messages need it.
        weighted: whether edges of the graph carry weights; else those of blocks are of the drawing alone.

    Raises:
        PlanError: no layer or hop, or ``inputs_once`` of layers with several hops or ways.
    """

    layers: int
    layer_hops: int
    memory: str
    directions: tuple[str, ...] = ("in",)
    inputs_once: bool = False
    out_degrees: bool = False
    places: bool = False
    neighbours: bool = False
    weighted: bool = True

    def __post_init__(self) -> None:
        if self.layers < 1 or self.layer_hops < 1:
            raise PlanError(f"blocks of {self.layers} layers of {self.layer_hops} hops: both must be at least 1.")
        if self.inputs_once and (self.layer_hops > 1 or self.directions != ("in",) or self.truncated):
            raise PlanError(
                f"inputs_once for layers of {self.layer_hops} hops along {', '.join(self.directions)}, memory "
                f"{self.memory}: it needs layers of one hop along 'in' whose state no node pulls."
            )

    @property
    def hops(self) -> int:
        """L h."""
        return self.layers * self.layer_hops

    @property
    def shared(self) -> bool:
        """Whether all snapshots have the same nodes."""
        return self.memory in STATIC_MEMORIES

    @property
    def truncated(self) -> bool:
        """Whether the farthest nodes too keep those of their edges that stay inside."""
        return self.memory == "neighbourhood"


def block_shape(facts: ModelFacts, *, norm: str = "in") -> BlockShape:
    """Return the shape for a model.

    Args:
        facts: of the model.
        norm: ``in`` or ``in_out``, the scaling of convolutions.
    """
    first = [pull for pull in facts.along_edges if pull.layer == 0]
    along = facts.directions
    return BlockShape(
        len(facts.layer_hops),
        facts.hops_per_layer,
        facts.memory,
        along,
        inputs_once=len(first) == 1 and first[0].of_features and along == ("in",) and facts.hops_per_layer == 1,
        out_degrees=norm == "in_out" or "out" in along,
    )


@dataclass(frozen=True, slots=True, eq=False)
class TargetBlocks:
    """Everything that a batch needs, in arrays that are only read.

    Every snapshot has R_l rows in layer l, targets first: row s R_l + i is row i of the s-th of
    the S snapshots. Rows of a layer are the first ones of each snapshot in the layer before. With ``inputs_once`` the
    first layer has further columns, of features alone, after its S R_0 rows: those of the first snapshot, the second..

    Attributes:
        shape: of what model.
        batch: whose they are.
        heights: (L,) R_l.
        arrays: ``vertices`` (V,) the targets' numbers in the graph; ``places`` (K,), where the shape asks for them, the
            rows' places among the part's nodes (a layer has the first R_l); ``features`` (K, F) and, where they never
            change, ``feature_of`` (C,) which of them each column of the first layer has; ``further`` (S,) how
            many further columns each snapshot has; of layer l and a direction ``indptr_in_0`` (S R_l + 1,),
            ``indices_in_0`` (E,), ``weights_in_0`` (E,) where there are any; ``degrees_in_0`` (C_l,) in the whole
            graph, and ``degrees_out_0`` and ``neighbours_in_0`` (S R_l,) where they are asked for.
    """

    shape: BlockShape
    batch: TargetBatch
    heights: tuple[int, ...]
    arrays: Mapping[str, NDArray[Any]]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def rows(self) -> int:
        """Nodes fed, in all snapshots: rows and further columns of the first layer."""
        return len(self.batch.snapshots) * self.heights[0] + int(self.arrays["further"].sum())

    @property
    def edges(self) -> int:
        """Edges of all layers and snapshots."""
        return sum(len(array) for name, array in self.arrays.items() if name.startswith("indices"))

    def features_of(self, snapshots: range) -> tuple[NDArray[np.float32], NDArray[np.int32] | None]:
        """Features of the first layer's columns in some snapshots, (C, F); or some, and which of them each has."""
        first, last = self.places(snapshots)
        features, of = self.arrays["features"], self.arrays.get("feature_of")
        if of is None:
            return self.columns_of(features, first, last, 0), None
        return features, self.columns_of(of, first, last, 0)

    @property
    def further_at(self) -> NDArray[np.int64]:
        """(S + 1,) where each snapshot's further columns begin among them all."""
        return np.concatenate([[0], np.cumsum(self.arrays["further"])])

    def columns_of(self, of: NDArray[Any], first: int, last: int, layer: int) -> NDArray[Any]:
        """What some snapshots' columns of a layer have, of what all of them have."""
        height, count = self.heights[layer], len(self.batch.snapshots)
        if last - first == count:
            return of
        rows, at = of[first * height : last * height], self.further_at + count * height
        return rows if layer else np.concatenate([rows, of[at[first] : at[last]]])

    def places(self, snapshots: range) -> tuple[int, int]:
        """The place in the batch of the first snapshot asked for, and the place after the last.

        Raises:
            PlanError: one is not in the batch.
        """
        whole = self.batch.snapshots
        if not snapshots or snapshots.start < whole.start or snapshots.stop > whole.stop:
            raise PlanError(f"snapshots {snapshots} of a batch of {whole}.")
        return snapshots.start - whole.start, snapshots.stop - whole.start

    def to_bytes(self) -> bytes:
        """All of it as one message, from which :func:`from_bytes` makes it without copying."""
        batch, described, at = self.batch, {}, 0
        arrays = {"targets": batch.targets, **self.arrays}
        for name, array in arrays.items():
            described[name] = (array.dtype.str, array.shape, at)
            at += -(-array.nbytes // _ALIGNED) * _ALIGNED
        head = json.dumps(
            {
                "shape": asdict(self.shape),
                "heights": self.heights,
                "arrays": described,
                "batch": (batch.part, batch.action, batch.index, batch.snapshots.start, batch.snapshots.stop),
            }
        ).encode()
        begin = -(-(8 + len(head)) // _ALIGNED) * _ALIGNED
        message = bytearray(begin + at)
        message[: 8 + len(head)] = len(head).to_bytes(8, "little") + head
        for name, array in arrays.items():
            start = begin + described[name][2]
            message[start : start + array.nbytes] = np.ascontiguousarray(array).data.cast("B") if array.size else b""
        return bytes(message)

    @staticmethod
    def from_bytes(message: bytes | bytearray | memoryview) -> TargetBlocks:
        """The blocks of a message; their arrays are the message's memory.

        Raises:
            DataError: the message is cut short.
        """
        size = int.from_bytes(message[:8], "little")
        begin = -(-(8 + size) // _ALIGNED) * _ALIGNED
        if len(message) < begin:
            raise DataError(f"blocks in {len(message)} bytes, where their head alone takes {begin}: a cut message.")
        described = json.loads(bytes(message[8 : 8 + size]))
        arrays = {}
        for name, (kind, shape, at) in described["arrays"].items():
            length = int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize
            if begin + at + length > len(message):
                raise DataError(f"blocks in {len(message)} bytes lack those of {name}: a cut message.")
            arrays[name] = np.frombuffer(message, kind, length // np.dtype(kind).itemsize, begin + at).reshape(shape)
        part, action, index, start, stop = described["batch"]
        batch = TargetBatch(part, action, index, range(start, stop), arrays.pop("targets"))
        shape = described["shape"]
        return TargetBlocks(
            BlockShape(**{**shape, "directions": tuple(shape["directions"])}),
            batch,
            tuple(described["heights"]),
            _frozen(arrays),
        )


def target_blocks(
    part: Held, batch: TargetBatch, shape: BlockShape, growth: TargetGrowth | None = None
) -> TargetBlocks:
    """The blocks of a batch: all nodes within the layers' hops of a target, and all edges that layers pull along.

    No neighbour is left out. Where the part is truncated, what is beyond the hops of the *targets* is cut off.

    Args:
        part: what the targets' part holds.
        batch: its targets.
        shape: what the model needs.
        growth: of the batch's targets, where it leaves out some neighbours.

    Raises:
        PlanError: the part does not hold what the blocks need, a target is none of its own nodes, or there are more
            rows than can be numbered.
    """
    _check(part, batch, shape)
    growth = growth or TargetGrowth(part, batch.snapshots, batch.targets, shared=shape.shared)
    arrays: dict[str, NDArray[Any]] = {
        "vertices": part.vertices(batch.snapshots[0])[batch.targets].astype(np.int64),
        "further": np.zeros(len(batch.snapshots), np.int64),
    }
    writer = _Writer(part, batch.snapshots, arrays, shape)
    heights = [0] * shape.layers
    for hop in range(1, shape.hops + 1):
        rows, layer = growth.entries, shape.layers - 1 - (hop - 1) // shape.layer_hops
        gathered = [growth.gather(direction, layer) for direction in shape.directions]
        once = shape.inputs_once and hop == shape.hops
        if not once:
            growth.grow(gathered)
        if hop % shape.layer_hops:
            continue
        heights[layer] = height = int(growth.entries.counts.max())
        if len(batch.snapshots) * height > _MOST_ROWS:
            raise PlanError(
                f"blocks of {len(batch.snapshots)} snapshots with {height} rows each: at most {_MOST_ROWS} rows can be "
                "numbered. Choose smaller batch_snapshots or batch_nodes."
            )
        if shape.truncated:
            if layer:
                continue  # one space serves all layers
            rows, gathered = (
                growth.entries,
                [growth.inside(growth.gather(direction, layer)) for direction in shape.directions],
            )
        further = None
        for direction, of in zip(shape.directions, gathered, strict=True):
            if once:
                columns, further = growth.further(of, height)
            else:
                columns = growth.columns(of, height)
            writer.edges(f"{direction}_{layer}", rows, of, columns, height)
        writer.columns(layer, growth.entries, further, height)
    if shape.places:
        arrays["places"] = growth.places
    return TargetBlocks(shape, batch, tuple(heights), _frozen(arrays))


class _Writer:
    """Puts rows of entries where every snapshot has as many rows."""

    def __init__(self, part: Held, snapshots: range, arrays: dict[str, NDArray[Any]], shape: BlockShape) -> None:
        self._part, self._snapshots, self._arrays, self._shape = part, snapshots, arrays, shape

    def edges(self, name: str, rows: Entries, of: GatheredTargets, columns: NDArray[np.int32], height: int) -> None:
        """A layer's edges."""
        lengths = np.zeros(len(self._snapshots) * height + 1, np.int64)
        lengths[rows.spread(height) + 1] = of.lengths
        self._arrays[f"indptr_{name}"] = np.cumsum(lengths)
        self._arrays[f"indices_{name}"] = columns
        if of.weights is not None:
            self._arrays[f"weights_{name}"] = of.weights
        if self._shape.neighbours:
            found, begins = self._part.joined("neighbours_in", self._snapshots)
            counts = np.zeros(len(self._snapshots) * height, np.int32)
            counts[rows.spread(height)] = found.take(begins.take(rows.snapshot) + rows.place)
            self._arrays[f"neighbours_{name}"] = counts

    def columns(self, layer: int, rows: Entries, further: Entries | None, height: int) -> None:
        """Degrees of a layer's columns, and features of the first one's."""
        part, snapshots, arrays = self._part, self._snapshots, self._arrays
        whole = len(snapshots) * height
        size = whole + (0 if further is None else len(further.place))
        at = np.concatenate([rows.spread(height), np.arange(whole, size)])
        snapshot, place = rows.snapshot, rows.place
        if further is not None:
            snapshot, place = np.concatenate([snapshot, further.snapshot]), np.concatenate([place, further.place])
            arrays["further"] = further.counts

        def spread(values: NDArray[Any]) -> NDArray[Any]:
            if len(values) == size:
                return values
            out = np.zeros((size, *values.shape[1:]), values.dtype)
            out[at] = values
            return out

        for direction in ("in", "out") if self._shape.out_degrees else ("in",):
            degrees, begins = part.joined(f"degrees_{direction}", snapshots)
            arrays[f"degrees_{direction}_{layer}"] = spread(degrees.take(begins.take(snapshot) + place))
        if layer:
            return
        constant = part.constant_features
        if constant is None:
            features, begins = part.joined("features", snapshots)
            arrays["features"] = spread(features.take(begins.take(snapshot) + place, axis=0))
            return
        features, known = constant
        if part.reach.static:
            met, number = np.unique(place, return_inverse=True)
        else:
            vertices, begins = part.joined("vertices", snapshots)
            met, number = np.unique(vertices[begins[snapshot] + place], return_inverse=True)
            met = np.searchsorted(known, met)
        arrays["features"], arrays["feature_of"] = features[met], spread(number.astype(np.int32))


def _check(part: Held, batch: TargetBatch, shape: BlockShape) -> None:
    reach = part.reach
    if reach.hops < shape.hops or not {*shape.directions} <= {*reach.directions} or (shape.shared and not reach.static):
        raise PlanError(f"blocks of {shape} from a part that holds {reach}: cache what the model's layers reach.")
    if shape.truncated and not reach.truncated:
        raise PlanError(f"blocks of {shape} from a part whose farthest nodes have no edges: set truncated=True.")
    if batch.targets[-1] >= part.own:
        raise PlanError(f"target {batch.targets[-1]} of a part with {part.own} own nodes, 0 to {part.own - 1}.")


def _frozen(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    for array in arrays.values():
        array.setflags(write=False)
    return arrays


# A batch of targets with its computation blocks, and how long they took to build.


@dataclass(frozen=True, slots=True, eq=False)
class BuiltBatch:
    """What a step trains on, and what reservoirs hold.

    Attributes:
        blocks: all that the targets' outputs are computed from.
        built_s: seconds that building the blocks took, by the clock on the wall.
    """

    blocks: TargetBlocks
    built_s: float

    @property
    def batch(self) -> TargetBatch:
        """Which targets in which snapshots."""
        return self.blocks.batch

    @property
    def nbytes(self) -> int:
        """Bytes that holding it takes."""
        return self.blocks.nbytes + self.blocks.batch.targets.nbytes


def built_batch(part: CachedPart, batch: TargetBatch, shape: BlockShape) -> BuiltBatch:
    """Build a batch's blocks and time it.

    Args:
        part: that of the batch.
        batch: which targets in which snapshots.
        shape: what the model needs of the blocks.
    """
    start = time.perf_counter()
    blocks = target_blocks(part, batch, shape)
    return BuiltBatch(blocks, time.perf_counter() - start)
