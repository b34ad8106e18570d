"""ESDG: snapshots over ranks in blocks of time, redistributed to nodes for the recurrent layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.config.catalogue import System
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.engine.strategy import BuildContext, Strategy
    from dtdg_lab.forecast.rates import Rates
    from dtdg_lab.graphs.delta import SequenceChanges
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.runs.stored_run import StoredRun
    from dtdg_lab.systems.step_time import MeasuredStep, StepForecast
    from dtdg_lab.systems.workload import EpochWork, Facts, Row
    from dtdg_lab.visualization.chart import CaptionedFigure, Chart
    from dtdg_lab.visualization.tiles import Effect, Suggestion, Tile


class SnapshotBlocksFamily(SystemFamily):
    """ESDG: snapshots over ranks in blocks of time, redistributed to nodes for the recurrent layer."""

    name = "snapshot_blocks"

    def charts(self) -> Sequence[Chart]:
        """Return the charts: owners of rows, communication, bytes between ranks, and the folded ones."""
        from dtdg_lab.systems.snapshot_blocks.charts import esdg_charts

        return esdg_charts()

    def tiles(self, tables: RunTables) -> Sequence[Tile]:
        """Return the common tiles, and peak memory, bytes sent and hidden communication."""
        from dtdg_lab.systems.snapshot_blocks.page import esdg_tiles

        return esdg_tiles(tables)

    def suggestions(self, config: RunConfig) -> Sequence[Suggestion]:
        """Return suggestions: other numbers of blocks, no overlap, a slow rank."""
        from dtdg_lab.systems.snapshot_blocks.page import esdg_suggestions

        return esdg_suggestions(config)

    def effect(self, system: str) -> Effect:
        """Return the peak memory of a step."""
        from dtdg_lab.systems.snapshot_blocks.page import PEAK_MEMORY

        return PEAK_MEMORY

    def build(self, context: BuildContext) -> Strategy:
        """Return the strategy that trains a run on this rank."""
        from dtdg_lab.systems.snapshot_blocks.strategy import build

        return build(context)

    def pictures(self, system: System, graph: DynamicGraph) -> list[CaptionedFigure]:
        """Return the charts on the card of one of its systems."""
        from dtdg_lab.systems.snapshot_blocks.card_charts import snapshot_pictures

        return snapshot_pictures(system, graph)

    def workload(self, facts: Facts) -> EpochWork:
        """Return the work of each rank in an epoch."""
        from dtdg_lab.systems.snapshot_blocks.workload import snapshot_work

        return snapshot_work(facts)

    def curves(self, facts: Facts, ranks: Sequence[int], rates: Rates, *, quick: bool) -> list[Row]:
        """Return curves over the number of ranks."""
        from dtdg_lab.systems.snapshot_blocks.workload import snapshot_rows

        return snapshot_rows(facts, ranks)

    def measured_step(
        self, run: StoredRun, graph: DynamicGraph | None = None, *, cores: int | None = None
    ) -> tuple[MeasuredStep, StepForecast, SequenceChanges]:
        """Return the median step of a run, what it computes, and its graph."""
        from dtdg_lab.systems.snapshot_blocks.workload import measured_step

        return measured_step(run, graph, cores=cores)


FAMILY = SnapshotBlocksFamily()
