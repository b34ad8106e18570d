"""The edges of a hybrid batch's blocks in the form that operators need."""

from __future__ import annotations

import numpy as np

from dtdg_lab.core.errors import PlanError
from dtdg_lab.engine.halo_exchange import PartEdges
from dtdg_lab.engine.minibatch_blocks import TargetBlocks


def target_edges(blocks: TargetBlocks, snapshots: range, layer: int, direction: str) -> PartEdges:
    """The edges along which a layer aggregates in some consecutive snapshots of a batch, stacked.

    Args:
        blocks: of the batch.
        snapshots: consecutive ones of the batch.
        layer: index of the model's layer, from 0.
        direction: edge direction, ``in`` or ``out``.

    Raises:
        PlanError: a snapshot or the layer is not in the batch, or no layer aggregates in this direction.
    """
    arrays = blocks.arrays
    if f"indptr_{direction}_{layer}" not in arrays:
        raise PlanError(f"no edges of layer {layer} in direction {direction!r}: the blocks have shape {blocks.shape}.")
    first, last = blocks.places(snapshots)
    height, count, at = blocks.heights[layer], len(blocks.batch.snapshots), blocks.further_at
    if layer:
        at = np.zeros_like(at)
    indptr, indices = arrays[f"indptr_{direction}_{layer}"], arrays[f"indices_{direction}_{layer}"]
    weights = arrays.get(f"weights_{direction}_{layer}")
    if last - first < count:
        begin, end = int(indptr[first * height]), int(indptr[last * height])
        indptr = indptr[first * height : last * height + 1] - begin
        indices, weights = indices[begin:end], None if weights is None else weights[begin:end]
        of_far = count * height + int(at[first]) - (last - first) * height
        indices = indices - np.where(indices >= count * height, of_far, first * height).astype(np.int32)
    columns = (last - first) * height + int(at[last] - at[first])
    unasked = np.broadcast_to(np.float64(np.nan), columns)
    here, other = (
        unasked if of is None else blocks.columns_of(of, first, last, layer).astype(np.float64)
        for of in (
            arrays.get(f"degrees_{towards}_{layer}") for towards in (direction, "out" if direction == "in" else "in")
        )
    )
    return PartEdges(indptr, indices, weights, columns, here, other)
