"""ESDG: snapshots over ranks in blocks of time, redistributed to nodes for the recurrent layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.advisor.rates import Rates
    from dtdg_lab.core.catalogue import System
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.engine.strategy import BuildContext, Strategy
    from dtdg_lab.graphs.delta import SequenceChanges
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.runs.run import StoredRun
    from dtdg_lab.systems.step_time import MeasuredStep, StepForecast
    from dtdg_lab.systems.workload import EpochWork, Facts, Row
    from dtdg_lab.visualization.charts import Panel
    from dtdg_lab.visualization.run_view import RunView, SharedViews
    from dtdg_lab.widgets.run_page import PageContext, RunPage


class SnapshotBlocksFamily(SystemFamily):
    """ESDG: snapshots over ranks in blocks of time, redistributed to nodes for the recurrent layer."""

    name = "snapshot_blocks"
    card_views = ("blocks",)
    setting_rows = (("blocks", "memory_gib"), ("row_ranks",))
    predicted = MappingProxyType({"esdg": True})
    curves_of = MappingProxyType({"esdg": ("rows by snapshots (esdg)",)})
    full_batch = ("snapshot",)

    def workload(self, facts: Facts) -> EpochWork:
        """What each rank does in an epoch."""
        from dtdg_lab.systems.snapshot_blocks.workload import snapshot_work

        return snapshot_work(facts)

    def memory_changes(self, config: RunConfig) -> Sequence[tuple[str, float]]:
        """Options that lower a rank's memory, with their factors."""
        return (("blocks", 2.0),)

    def curves(self, facts: Facts, ranks: Sequence[int], rates: Rates, *, quick: bool) -> list[Row]:
        """Further curves of ``lab.estimate.scaling_forecast``."""
        from dtdg_lab.systems.snapshot_blocks.forecast import snapshot_rows

        return snapshot_rows(facts, ranks)

    def measured_step(
        self, run: StoredRun, graph: DynamicGraph | None = None, *, cores: int | None = None
    ) -> tuple[MeasuredStep, StepForecast, SequenceChanges]:
        """The median step of a run, what it computes, and its graph."""
        from dtdg_lab.systems.snapshot_blocks.forecast import measured_step

        return measured_step(run, graph, cores=cores)

    def build(self, context: BuildContext) -> Strategy:
        """Its strategy; collective."""
        from dtdg_lab.systems.snapshot_blocks.strategy import build

        return build(context)

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
            return charts.blocks_words(charts.block_facts(data))

        def memory(data: dict[str, Any]) -> str:
            facts = charts.memory_facts(data)
            return charts.memory_words(facts, blocks=facts.count)

        return {"blocks": blocks, "memory_trace": memory}

    def page(self, context: PageContext) -> RunPage:
        """The page of its blocks of time."""
        from dtdg_lab.systems.snapshot_blocks.page import BlockPage

        return BlockPage(context)

    def pictures(self, system: System, graph: DynamicGraph) -> list[Panel]:
        """Pictures on the cards of its systems."""
        from dtdg_lab.systems.snapshot_blocks.pictures import snapshot_pictures

        return snapshot_pictures(system, graph)


FAMILY = SnapshotBlocksFamily()
