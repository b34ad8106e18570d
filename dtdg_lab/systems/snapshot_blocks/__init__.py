"""ESDG: snapshots over ranks in blocks of time, redistributed to nodes for the recurrent layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.visualization.run_view import RunView, SharedViews


class SnapshotBlocksFamily(SystemFamily):
    """ESDG: snapshots over ranks in blocks of time, redistributed to nodes for the recurrent layer."""

    name = "snapshot_blocks"

    def views(self, config: RunConfig, shared: SharedViews) -> Sequence[RunView]:
        """Its charts, after those of every run."""
        from dtdg_lab.systems.snapshot_blocks.charts import BlocksView

        return [BlocksView(shared.links, shared.marks, config.flat.get("memory_gib"))]


FAMILY = SnapshotBlocksFamily()
