"""Computation blocks of a batch: all rows and edges that each layer needs."""

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

_MOST_ROWS = 2**31 - 1  # rows of all snapshots: indices are int32


@dataclass(frozen=True, slots=True)
class BlockShape:
    """Requirements of a model on the blocks of a batch.

    Attributes:
        layers: number of layers, L.
        layer_hops: hops of each layer, h.
        memory: the model's memory. With ``per_vertex`` and ``neighbourhood`` all snapshots of the batch have the same
            nodes: those within L h hops of a target by edges of any snapshot. Others have nodes per snapshot.
        directions: edge directions along which the model pulls.
        inputs_once: whether the first layer pulls only features, in one hop. The farthest nodes then need only
            features, in the snapshots where an edge leads to them.
        out_degrees: whether rows are scaled by out-degrees too.
        places: whether blocks have the rows' indices among the part's nodes; all snapshots must share their nodes.
        neighbours: whether blocks have the number of in-neighbours of each row before sampling; messages need it.
        weighted: whether edges of the graph carry weights; else the blocks' weights come from sampling alone.

    Raises:
        PlanError: no layer or hop, or ``inputs_once`` with several hops or directions.
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
        """Hops of all layers, L h."""
        return self.layers * self.layer_hops

    @property
    def shared(self) -> bool:
        """Whether all snapshots have the same nodes."""
        return self.memory in STATIC_MEMORIES

    @property
    def truncated(self) -> bool:
        """Whether the farthest nodes keep their edges to nodes inside."""
        return self.memory == "neighbourhood"


def block_shape(facts: ModelFacts, *, norm: str = "in") -> BlockShape:
    """Return the block shape of a model.

    Args:
        facts: facts of the model.
        norm: normalisation of graph convolutions, ``in`` or ``in_out``.
    """
    first = [pull for pull in facts.along_edges if pull.layer == 0]
    directions = facts.directions
    return BlockShape(
        len(facts.layer_hops),
        facts.hops_per_layer,
        facts.memory,
        directions,
        inputs_once=len(first) == 1 and first[0].of_features and directions == ("in",) and facts.hops_per_layer == 1,
        out_degrees=norm == "in_out" or "out" in directions,
    )


@dataclass(frozen=True, slots=True, eq=False)
class TargetBlocks:
    """Blocks of a batch, as read-only arrays.

    Each of the S snapshots has R_l rows in layer l, targets first: row s R_l + i is row i of snapshot s. The rows of a
    layer are the first rows of each snapshot in the layer before. With ``inputs_once`` the first layer has further
    columns, of features alone, after its S R_0 rows, snapshot by snapshot.

    Attributes:
        shape: requirements of the model.
        batch: the batch.
        heights: (L,) R_l.
        arrays: the arrays, by name. Names of the last five end with a direction and a layer.

            - ``vertices`` (V,): the targets' numbers in the graph.
            - ``places`` (K,): the rows' indices among the part's nodes, if the shape asks for them; a layer has the
              first R_l.
            - ``features`` (K, F), and for static features ``feature_of`` (C,): the row of ``features`` that each
              column of the first layer reads.
            - ``further`` (S,): number of further columns of each snapshot.
            - ``indptr_in_0`` (S R_l + 1,), ``indices_in_0`` (E,), and ``weights_in_0`` (E,) if there are weights.
            - ``degrees_in_0`` (C_l,): degrees in the whole graph; ``degrees_out_0`` if the shape asks for them.
            - ``neighbours_in_0`` (S R_l,): in-neighbours before sampling, if the shape asks for them.
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
        """Input rows of all snapshots: rows and further columns of the first layer."""
        return len(self.batch.snapshots) * self.heights[0] + int(self.arrays["further"].sum())

    @property
    def edges(self) -> int:
        """Edges of all layers and snapshots."""
        return sum(len(array) for name, array in self.arrays.items() if name.startswith("indices"))

    def features_of(self, snapshots: range) -> tuple[NDArray[np.float32], NDArray[np.int32] | None]:
        """Return the features of the first layer's columns in some snapshots, (C, F), and None.

        Static features come as (K, F), with the index of each column's features, (C,).
        """
        first, last = self.places(snapshots)
        features, feature_of = self.arrays["features"], self.arrays.get("feature_of")
        if feature_of is None:
            return self.columns_of(features, first, last, 0), None
        return features, self.columns_of(feature_of, first, last, 0)

    @property
    def further_at(self) -> NDArray[np.int64]:
        """Offsets of each snapshot's further columns among them all, (S + 1,)."""
        return np.concatenate([[0], np.cumsum(self.arrays["further"])])

    def columns_of(self, values: NDArray[Any], first: int, last: int, layer: int) -> NDArray[Any]:
        """Select the columns of snapshots ``first`` to ``last`` - 1 from the values of all columns of a layer."""
        height, count = self.heights[layer], len(self.batch.snapshots)
        if last - first == count:
            return values
        rows, further_at = values[first * height : last * height], self.further_at + count * height
        return rows if layer else np.concatenate([rows, values[further_at[first] : further_at[last]]])

    def places(self, snapshots: range) -> tuple[int, int]:
        """Return the range of the snapshots' indices in the batch, (first, stop).

        Raises:
            PlanError: a snapshot is not in the batch.
        """
        batch_snapshots = self.batch.snapshots
        if not snapshots or snapshots.start < batch_snapshots.start or snapshots.stop > batch_snapshots.stop:
            raise PlanError(f"snapshots {snapshots} of a batch of {batch_snapshots}.")
        return snapshots.start - batch_snapshots.start, snapshots.stop - batch_snapshots.start


def target_blocks(
    part: BlockSource, batch: TargetBatch, shape: BlockShape, growth: TargetGrowth | None = None
) -> TargetBlocks:
    """Build the blocks of a batch: all nodes within the layers' hops of a target, and all edges that layers pull along.

    A truncated part cuts off everything beyond the hops of the *targets*.

    Args:
        part: source of nodes and edges.
        batch: the targets.
        shape: requirements of the model.
        growth: expansion that samples neighbours; by default no neighbour is left out.

    Raises:
        PlanError: the part lacks nodes or edges, a target is not one of its own nodes, or the rows exceed int32.
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
                f"blocks of {len(batch.snapshots)} snapshots with {height} rows each exceed the limit of {_MOST_ROWS} "
                "rows. Choose smaller batch_snapshots or batch_nodes."
            )
        if shape.truncated:
            if layer:
                continue  # one view serves all layers
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
    """Writes entries into arrays where each snapshot is padded to the same number of rows."""

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
        """Write the degrees of a layer's columns, and the features of the first layer's."""
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
            distinct, number = np.unique(places, return_inverse=True)
        else:
            vertices, begins = part.joined("vertices", snapshots)
            distinct, number = np.unique(vertices[begins[snapshot] + places], return_inverse=True)
            distinct = np.searchsorted(feature_vertices, distinct)
        arrays["features"], arrays["feature_of"] = features[distinct], spread(number.astype(np.int32))


def _check(part: BlockSource, batch: TargetBatch, shape: BlockShape) -> None:
    reach = part.reach
    if reach.hops < shape.hops or not {*shape.directions} <= {*reach.directions} or (shape.shared and not reach.static):
        raise PlanError(f"blocks of {shape} need more than {reach}: cache what the model's layers reach.")
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
    """A batch with its blocks, for a step or a reservoir.

    Attributes:
        blocks: blocks of the targets.
        built_s: wall-clock seconds of building the blocks.
    """

    blocks: TargetBlocks
    built_s: float

    @property
    def batch(self) -> TargetBatch:
        """The targets and snapshots."""
        return self.blocks.batch

    @property
    def nbytes(self) -> int:
        """Bytes of blocks and targets."""
        return self.blocks.nbytes + self.blocks.batch.targets.nbytes


def built_batch(part: CachedPart, batch: TargetBatch, shape: BlockShape) -> BuiltBatch:
    """Build a batch's blocks, and measure the time.

    Args:
        part: the part that holds the targets.
        batch: the targets and snapshots.
        shape: requirements of the model.
    """
    start = time.perf_counter()
    blocks = target_blocks(part, batch, shape)
    return BuiltBatch(blocks, time.perf_counter() - start)
