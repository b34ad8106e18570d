"""Summaries of a block's snapshots, gathered from the ranks that made them."""

from __future__ import annotations

from torch import Tensor

from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.parallel.exchange import Exchanger


class SnapshotSummaries:
    """Joins own snapshots' summaries with those of the column (see :class:`dtdg_lab.parallel.summarised.Gather`).

    Args:
        plan: who has which snapshots.
        ranks: of the column, in order: so that their snapshots follow one another.
        exchanger: of the column.
    """

    def __init__(self, plan: SnapshotBlocks, ranks: list[int], exchanger: Exchanger) -> None:
        self._plan, self._ranks, self._exchanger = plan, ranks, exchanger

    def __call__(self, own: Tensor, block: int, layer: int, way: str) -> Tensor:
        """All S summaries of the block in order of time, (S, numbers); gradients are summed where they were made."""
        self._exchanger.forward_way = way
        counts = [len(self._plan.own(block, rank)) for rank in self._ranks]
        return self._exchanger.gather(own, counts, layer)
