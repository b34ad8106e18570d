"""Training in one process, the reference of all systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import UnsupportedError
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


class SingleFamily(SystemFamily):
    """Training in one process, the reference of all systems."""

    name = "single"

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raise unless there is one rank and one part."""
        if (settings["ranks"], settings["parts"]) != (1, 1):
            raise UnsupportedError(
                f"system={settings['system']!r} needs one rank and one part, but ranks={settings['ranks']}, "
                f"parts={settings['parts']}. Set ranks=1 and parts=1, or choose system='psg'."
            )

    def charts(self) -> Sequence[Chart]:
        """Return the charts of times of snapshots, shared products, memory and common edges."""
        from dtdg_lab.systems.single.charts import COMMON_EDGES, SHARING, SNAPSHOTS, STEP_MEMORY

        return SNAPSHOTS, SHARING, STEP_MEMORY, COMMON_EDGES

    def tiles(self, tables: RunTables) -> Sequence[Tile]:
        """Return the tiles: validation loss, step time, computing, memory, and energy or shared products."""
        from dtdg_lab.systems.single.page import single_tiles

        return single_tiles(tables)

    def suggestions(self, config: RunConfig) -> Sequence[Suggestion]:
        """Return suggestions of other settings."""
        from dtdg_lab.systems.single.page import single_suggestions

        return single_suggestions(config)

    def effect(self, system: str) -> Effect:
        """Return the step time."""
        from dtdg_lab.systems.single.page import STEP_TIME

        return STEP_TIME

    def sentence(self, system: str) -> str:
        """Return a sentence on the system."""
        if system == "single":
            return "One process computes everything; nothing is exchanged."
        if system == "pipad":
            return "One process computes everything; snapshots share the products of their common edges."
        return super().sentence(system)

    def pictures(self, system: System, graph: DynamicGraph) -> list[CaptionedFigure]:
        """Return the edges of the only batch."""
        from dtdg_lab.visualization.bar_charts import stacked_bars

        edges = [snapshot.num_edges for snapshot in graph.snapshots]
        return [
            stacked_bars(
                "Full batch: one step takes everything",
                ("snapshot", "edges"),
                {"edges": edges},
                caption=(
                    f"All {graph.num_snapshots} snapshots of {graph.num_nodes} nodes, {sum(edges):,} edges, in one "
                    "batch. The other systems use smaller batches, or distribute this one."
                ),
            )
        ]

    def workload(self, facts: Facts) -> EpochWork:
        """Return the work of one step of all snapshots on one rank."""
        import numpy as np

        from dtdg_lab.systems.workload import EXACT, plain_work

        snapshots = len(facts.train)
        edges = np.array([facts.edges.sum()], float)
        rows = np.array([snapshots * facts.graph.num_nodes], float)
        return plain_work(facts, steps=1, edges=edges, rows=rows, snapshots=float(snapshots), exact=frozenset(EXACT))

    def build(self, context: BuildContext) -> Strategy:
        """Return the strategy that trains a run on this rank."""
        from dtdg_lab.systems.single.strategy import build_shared, build_whole

        is_shared = catalogue.system(context.config.system).parts["parallel"] == "shared_edges"
        return build_shared(context) if is_shared else build_whole(context)


FAMILY = SingleFamily()
