"""Computation blocks of a batch: the rows and edges that each layer needs, none left out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.model_facts import ModelFacts
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import TargetBatch
from dtdg_lab.engine.minibatch.block_growth import BlockSource, Entries, GatheredTargets, TargetGrowth
from dtdg_lab.engine.views.replicated_part import STATIC_MEMORIES, CachedPart

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
        features, feature_of = self.arrays["features"], self.arrays.get("feature_of")
        if feature_of is None:
            return self.columns_of(features, first, last, 0), None
        return features, self.columns_of(feature_of, first, last, 0)

    @property
    def further_at(self) -> NDArray[np.int64]:
        """(S + 1,) where each snapshot's further columns begin among them all."""
        return np.concatenate([[0], np.cumsum(self.arrays["further"])])

    def columns_of(self, values: NDArray[Any], first: int, last: int, layer: int) -> NDArray[Any]:
        """Return the values of some snapshots' columns of a layer, of those of all columns."""
        height, count = self.heights[layer], len(self.batch.snapshots)
        if last - first == count:
            return values
        rows, further_at = values[first * height : last * height], self.further_at + count * height
        return rows if layer else np.concatenate([rows, values[further_at[first] : further_at[last]]])

    def places(self, snapshots: range) -> tuple[int, int]:
        """Return the indices in the batch of the first snapshot and of the one after the last.

        Raises:
            PlanError: one is not in the batch.
        """
        batch_snapshots = self.batch.snapshots
        if not snapshots or snapshots.start < batch_snapshots.start or snapshots.stop > batch_snapshots.stop:
            raise PlanError(f"snapshots {snapshots} of a batch of {batch_snapshots}.")
        return snapshots.start - batch_snapshots.start, snapshots.stop - batch_snapshots.start


def target_blocks(
    part: BlockSource, batch: TargetBatch, shape: BlockShape, growth: TargetGrowth | None = None
) -> TargetBlocks:
    """Build the blocks of a batch: all nodes within the layers' hops of a target, and all edges that layers pull along.

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
        for direction, edges in zip(shape.directions, gathered, strict=True):
            if once:
                columns, further = growth.further(edges, height)
            else:
                columns = growth.columns(edges, height)
            writer.edges(f"{direction}_{layer}", rows, edges, columns, height)
        writer.columns(layer, growth.entries, further, height)
    if shape.places:
        arrays["places"] = growth.places
    return TargetBlocks(shape, batch, tuple(heights), _frozen(arrays))


class _Writer:
    """Puts rows of entries where every snapshot has as many rows."""

    def __init__(self, part: BlockSource, snapshots: range, arrays: dict[str, NDArray[Any]], shape: BlockShape) -> None:
        self._part, self._snapshots, self._arrays, self._shape = part, snapshots, arrays, shape

    def edges(self, name: str, rows: Entries, edges: GatheredTargets, columns: NDArray[np.int32], height: int) -> None:
        """Write a layer's edges."""
        lengths = np.zeros(len(self._snapshots) * height + 1, np.int64)
        lengths[rows.spread(height) + 1] = edges.lengths
        self._arrays[f"indptr_{name}"] = np.cumsum(lengths)
        self._arrays[f"indices_{name}"] = columns
        if edges.weights is not None:
            self._arrays[f"weights_{name}"] = edges.weights
        if self._shape.neighbours:
            neighbour_counts, begins = self._part.joined("neighbours_in", self._snapshots)
            counts = np.zeros(len(self._snapshots) * height, np.int32)
            counts[rows.spread(height)] = neighbour_counts.take(begins.take(rows.snapshot) + rows.place)
            self._arrays[f"neighbours_{name}"] = counts

    def columns(self, layer: int, rows: Entries, further: Entries | None, height: int) -> None:
        """Degrees of a layer's columns, and features of the first one's."""
        part, snapshots, arrays = self._part, self._snapshots, self._arrays
        total_rows = len(snapshots) * height
        size = total_rows + (0 if further is None else len(further.place))
        row_index = np.concatenate([rows.spread(height), np.arange(total_rows, size)])
        snapshot, places = rows.snapshot, rows.place
        if further is not None:
            snapshot, places = np.concatenate([snapshot, further.snapshot]), np.concatenate([places, further.place])
            arrays["further"] = further.counts

        def spread(values: NDArray[Any]) -> NDArray[Any]:
            if len(values) == size:
                return values
            out = np.zeros((size, *values.shape[1:]), values.dtype)
            out[row_index] = values
            return out

        for direction in ("in", "out") if self._shape.out_degrees else ("in",):
            degrees, begins = part.joined(f"degrees_{direction}", snapshots)
            arrays[f"degrees_{direction}_{layer}"] = spread(degrees.take(begins.take(snapshot) + places))
        if layer:
            return
        constant = part.constant_features
        if constant is None:
            features, begins = part.joined("features", snapshots)
            arrays["features"] = spread(features.take(begins.take(snapshot) + places, axis=0))
            return
        features, feature_vertices = constant
        if part.reach.static:
            met, number = np.unique(places, return_inverse=True)
        else:
            vertices, begins = part.joined("vertices", snapshots)
            met, number = np.unique(vertices[begins[snapshot] + places], return_inverse=True)
            met = np.searchsorted(feature_vertices, met)
        arrays["features"], arrays["feature_of"] = features[met], spread(number.astype(np.int32))


def _check(part: BlockSource, batch: TargetBatch, shape: BlockShape) -> None:
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
