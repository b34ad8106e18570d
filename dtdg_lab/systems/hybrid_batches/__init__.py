"""DynaHB: hybrid batches of some nodes in some snapshots, and policies that choose their size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    import pandas as pd

    from dtdg_lab.config.catalogue import System
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.engine.strategy import BuildContext, Strategy
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.systems.workload import EpochWork, Facts
    from dtdg_lab.visualization.chart import CaptionedFigure, Chart
    from dtdg_lab.visualization.studies.comparison import ComparedRun
    from dtdg_lab.visualization.tiles import Effect, Suggestion, Tile


SENTENCES: Mapping[str, str] = MappingProxyType(
    {
        "dbov": "DBoV trains a few nodes of every part in all snapshots.",
        "dbos": "DBoS trains all nodes of every part in a few snapshots.",
        "bvr": "BVR trains a few nodes of every part in all snapshots, in batches that are built ahead.",
    }
)


class HybridBatchesFamily(SystemFamily):
    """DynaHB: hybrid batches of some nodes in some snapshots, and policies that choose their size."""

    name = "hybrid_batches"

    def summary(self, tables: Mapping[str, pd.DataFrame], everything: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
        """Return the measured deviation of the last batches' loss: they are not the whole training split."""
        events = tables["events"]
        batches = events[events["kind"] == "hybrid"].sort_values(["attempt", "step"], kind="stable")["data"]
        if batches.empty or "deviation" not in batches.iloc[-1]:
            return {}
        return {"loss_deviation": batches.iloc[-1]["deviation"]}

    def memory_changes(self, config: RunConfig) -> Sequence[tuple[str, float]]:
        """Return options that lower a rank's memory, with their factors."""
        return super().memory_changes(config) if config["batch_policy"] == "none" else ()

    def charts(self) -> Sequence[Chart]:
        """Return the picture, batch sizes and staleness, and the folded charts of reservoir and controller."""
        from dtdg_lab.systems.hybrid_batches.batch_picture import PICTURE
        from dtdg_lab.systems.hybrid_batches.controller_charts import REGRET, REWARDS, VALUES
        from dtdg_lab.systems.hybrid_batches.reservoir_charts import RESERVOIR, SOURCES
        from dtdg_lab.systems.hybrid_batches.size_charts import SIZES
        from dtdg_lab.systems.hybrid_batches.staleness_chart import STALENESS

        return [PICTURE, SIZES, STALENESS, SOURCES, RESERVOIR, VALUES, REWARDS, REGRET]

    def tiles(self, tables: RunTables) -> Sequence[Tile]:
        """Return loss, batch size, steps a second, the reservoir and staleness."""
        from dtdg_lab.systems.hybrid_batches import tiles
        from dtdg_lab.visualization.runs.overview import common_tiles

        loss, step_time = common_tiles(tables)
        rate = tiles.rate_tile(tables) if tables.own_steps else step_time
        return [loss, tiles.size_tile(tables), rate, tiles.reservoir_tile(tables), tiles.staleness_tile(tables)]

    def suggestions(self, config: RunConfig) -> Sequence[Suggestion]:
        """Return suggestions: another size or controller, less frequent averages, a slow rank."""
        from dtdg_lab.systems.hybrid_batches.tiles import suggest

        return suggest(config)

    def effect(self, system: str) -> Effect | None:
        """Return the effect on steps per second."""
        from dtdg_lab.systems.hybrid_batches.tiles import STEPS_PER_SECOND

        return STEPS_PER_SECOND

    def sentence(self, system: str) -> str:
        """Return a sentence on what a system trains."""
        return SENTENCES.get(system, self.idea)

    def has_clock(self, config: RunConfig) -> bool:
        """Return True if a controller chooses sizes by a time-based reward, or batches wait in a reservoir."""
        return config.flat.get("batch_policy", "none") != "none" or bool(config.flat.get("reservoir"))

    def build(self, context: BuildContext) -> Strategy:
        """Return the strategy that trains a run on this rank."""
        from dtdg_lab.systems.hybrid_batches.strategy import build

        return build(context)

    def pictures(self, system: System, graph: DynamicGraph) -> list[CaptionedFigure]:
        """Return the charts on the card of one of its systems."""
        from dtdg_lab.systems.hybrid_batches.card_pictures import batch_pictures

        return batch_pictures(system, graph)

    def workload(self, facts: Facts) -> EpochWork:
        """Return the work of each rank in an epoch."""
        from dtdg_lab.systems.hybrid_batches.workload import hybrid_work

        return hybrid_work(facts)

    def comparison(self, runs: Sequence[ComparedRun], target: float) -> str:
        """Return a sentence on whether a controller reached the target before the best fixed size."""
        from dtdg_lab.systems.hybrid_batches.verdict import controller_verdict

        return controller_verdict(runs, target)


FAMILY = HybridBatchesFamily()
