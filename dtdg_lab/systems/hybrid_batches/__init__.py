"""DynaHB: hybrid batches of some nodes in some snapshots, and policies that choose their size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.systems.base import GRADIENTS, SystemFamily

if TYPE_CHECKING:
    import pandas as pd

    from dtdg_lab.core.catalogue import System
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.engine.strategy import BuildContext, Strategy
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.systems.base import StudyPreset
    from dtdg_lab.systems.workload import EpochWork, Facts
    from dtdg_lab.visualization.charts import Panel
    from dtdg_lab.visualization.run_view import RunView, SharedViews
    from dtdg_lab.visualization.run_window import RunWindow
    from dtdg_lab.widgets.run_page import PageContext, RunPage


class HybridBatchesFamily(SystemFamily):
    """DynaHB: hybrid batches of some nodes in some snapshots, and policies that choose their size."""

    name = "hybrid_batches"
    card_views = ("hybrid",)
    calibrated = MappingProxyType({"dbov": {}})
    curves_of = MappingProxyType(dict.fromkeys(("dbov", "dbos", "bvr"), (GRADIENTS,)))

    def summary(self, tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
        """The deviation that its last batches were measured to have: they are not the whole training split."""
        events = tables["events"]
        batches = events[events["kind"] == "hybrid"].sort_values(["attempt", "step"], kind="stable")["data"]
        if batches.empty or "deviation" not in batches.iloc[-1]:
            return {}
        return {"loss_deviation": batches.iloc[-1]["deviation"]}

    def workload(self, facts: Facts) -> EpochWork:
        """What each rank does in an epoch."""
        from dtdg_lab.systems.hybrid_batches.workload import hybrid_work

        return hybrid_work(facts)

    def memory_changes(self, config: RunConfig) -> Sequence[tuple[str, float]]:
        """Options that lower a rank's memory, with their factors."""
        return (("batch_nodes", 0.5), ("batch_snapshots", 0.5)) if config["batch_policy"] == "none" else ()

    def build(self, context: BuildContext) -> Strategy:
        """Its strategy; collective."""
        from dtdg_lab.systems.hybrid_batches.strategy import build

        return build(context)

    def views(self, config: RunConfig, shared: SharedViews) -> Sequence[RunView]:
        """Its charts, after those of every run."""
        from dtdg_lab.systems.hybrid_batches.view import HybridView

        return [HybridView(shared)]

    def event_texts(self) -> Mapping[str, Callable[[dict[str, Any]], str]]:
        """Captions of its events."""
        from dtdg_lab.systems.hybrid_batches.charts import hybrid_facts, hybrid_words
        from dtdg_lab.visualization.run_view import plan_ended

        def batches(data: dict[str, Any]) -> str:
            return "no hybrid batches from here on" if plan_ended(data) else hybrid_words(hybrid_facts(data))

        return {"hybrid": batches, "empty reservoir": lambda data: str(data.get("reason"))}

    def comparison(self, runs: Sequence[tuple[str, RunWindow]]) -> str:
        """Its verdict on labelled runs that are compared over wall time."""
        from dtdg_lab.systems.hybrid_batches.policy_charts import batch_policy_verdict

        return batch_policy_verdict(runs)

    def page(self, context: PageContext) -> RunPage:
        """The page of its batches."""
        from dtdg_lab.systems.hybrid_batches.page import BatchPage

        return BatchPage(context)

    def studies(self) -> Sequence[StudyPreset]:
        """Its shipped studies."""
        from dtdg_lab.systems.hybrid_batches.study import STUDIES

        return (*STUDIES,)

    def has_clock(self, config: RunConfig) -> bool:
        """Whether a controller chooses sizes by a time-based reward, or batches wait in a reservoir."""
        return config.flat.get("batch_policy", "none") != "none" or bool(config.flat.get("reservoir"))

    def pictures(self, system: System, graph: DynamicGraph) -> list[Panel]:
        """Pictures on the cards of its systems."""
        from dtdg_lab.systems.hybrid_batches.pictures import batch_pictures

        return batch_pictures(system, graph)


FAMILY = HybridBatchesFamily()
