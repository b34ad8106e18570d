"""ADGNN-T and PyGT-Dist: full batches over node partitions, with a halo exchange or with replicated neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dtdg_lab.config import catalogue
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.config.catalogue import System
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.engine.strategy import BuildContext, Strategy
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.systems.workload import EpochWork, Facts
    from dtdg_lab.visualization.chart import CaptionedFigure, Chart
    from dtdg_lab.visualization.tiles import Effect, Suggestion, Tile


class VertexPartsFamily(SystemFamily):
    """Full batches over node partitions: with a halo exchange (ADGNN-T), or with replicated neighbours (PyGT-Dist)."""

    name = "vertex_parts"

    def charts(self) -> Sequence[Chart]:
        """Return the charts: rows received, waiting, bytes between ranks, and the folded ones."""
        from dtdg_lab.systems.vertex_parts.charts import part_charts

        return part_charts()

    def tiles(self, tables: RunTables) -> Sequence[Tile]:
        """Return the common tiles, and waiting, cut edges and bytes sent."""
        from dtdg_lab.systems.vertex_parts.page import part_tiles

        return part_tiles(tables)

    def suggestions(self, config: RunConfig) -> Sequence[Suggestion]:
        """Return suggestions: other partitioners, more parts, a slow rank."""
        from dtdg_lab.systems.vertex_parts.page import part_suggestions

        return part_suggestions(config)

    def effect(self, system: str) -> Effect:
        """Return the effect on waiting."""
        from dtdg_lab.systems.vertex_parts.page import WAITING

        return WAITING

    def sentence(self, system: str) -> str:
        """Return a sentence on the access to rows of other parts."""
        copies = catalogue.system(system).parts["parallel"] == "cached_vertex"
        access = "keeps copies of the neighbours" if copies else "receives the rows of neighbours"
        return f"Each part owns some nodes in all snapshots and {access} it doesn't own."

    def build(self, context: BuildContext) -> Strategy:
        """Return the strategy that trains a run on this rank."""
        from dtdg_lab.systems.vertex_parts.strategy import build_halo, build_replicated

        copies = catalogue.system(context.config.system).parts["parallel"] == "cached_vertex"
        return build_replicated(context) if copies else build_halo(context)

    def pictures(self, system: System, graph: DynamicGraph) -> list[CaptionedFigure]:
        """Return the charts on the card of one of its systems."""
        from dtdg_lab.systems.vertex_parts.charts import vertex_pictures

        return vertex_pictures(system, graph)

    def workload(self, facts: Facts) -> EpochWork:
        """Return the work of each rank in an epoch."""
        from dtdg_lab.systems.vertex_parts.workload import cached_work, halo_work

        return cached_work(facts) if facts.layout == "cached_vertex" else halo_work(facts)


FAMILY = VertexPartsFamily()
