"""A batch of targets with its computation blocks, and how long they took to build."""

from __future__ import annotations

import time
from dataclasses import dataclass

from dtdg_lab.core.target_batches import TargetBatch
from dtdg_lab.parallel.cached_part import CachedPart
from dtdg_lab.parallel.target_blocks import BlockShape, TargetBlocks, target_blocks


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
