"""ESDG: snapshots over ranks in blocks of time, redistributed to nodes for the recurrent layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

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

    def event_texts(self) -> Mapping[str, Callable[[dict[str, Any]], str]]:
        """Captions of its events."""
        from dtdg_lab.systems.snapshot_blocks import charts
        from dtdg_lab.visualization.run_view import plan_ended

        def blocks(data: dict[str, Any]) -> str:
            if plan_ended(data):
                return "no blocks of time from here on"
            return charts.blocks_words(charts.BlockFacts.read(data))

        def memory(data: dict[str, Any]) -> str:
            facts = charts.memory_facts(data)
            return charts.memory_words(facts, blocks=facts.count)

        return {"blocks": blocks, "memory_trace": memory}


FAMILY = SnapshotBlocksFamily()
