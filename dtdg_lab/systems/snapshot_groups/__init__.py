"""DyGNeX, PSG and BLAD: groups of snapshots, scheduled over ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.systems.base import GRADIENTS, SystemFamily

if TYPE_CHECKING:
    import pandas as pd

    from dtdg_lab.advisor.rates import Rates
    from dtdg_lab.core.catalogue import System
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.engine.strategy import BuildContext, Strategy
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.runs.run import StoredRun
    from dtdg_lab.systems.workload import EpochWork, Facts, Row
    from dtdg_lab.visualization.charts import Panel
    from dtdg_lab.visualization.run_view import RunView, SharedViews
    from dtdg_lab.widgets.run_page import PageContext, RunPage


class SnapshotGroupsFamily(SystemFamily):
    """DyGNeX, PSG and BLAD: groups of snapshots, scheduled over ranks."""

    name = "snapshot_groups"
    card_views = ("schedule",)
    calibrated = MappingProxyType({"psg": {}, "blad": {}})
    curves_of = MappingProxyType(
        {"dygnex-g": ("dygnex_greedy", GRADIENTS), **dict.fromkeys(("psg", "blad", "dygnex-l"), (GRADIENTS,))}
    )

    setting_rows = (("groups_per_rank", "group_times"), ("pipelined",))
    summary_meanings = MappingProxyType(
        {
            "scheduler": "scheduler of the last schedule of the snapshot groups, if there is one",
            "groups": "snapshot groups of that schedule",
            "iterations": "updates of the model in an epoch of that schedule",
            "schedule_s": "seconds to compute that schedule",
            "predicted_epoch_s": "seconds of an epoch's groups and exchanges by that schedule, if it knew seconds",
            "over_bound": "the predicted epoch over the lower bound for any schedule of the same times and exchanges; "
            "1 is the best possible",
        }
    )

    def summary(self, tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
        """Facts of the run's last schedule."""
        from dtdg_lab.systems.snapshot_groups.charts import schedule_facts
        from dtdg_lab.visualization.run_view import plan_ended

        events = tables["events"]
        described = [data for data in events.loc[events["kind"] == "schedule", "data"] if isinstance(data, dict)]
        if not described or plan_ended(described[-1]):
            return dict.fromkeys(self.summary_meanings)
        facts = schedule_facts(described[-1])
        return {
            "scheduler": facts.scheduler,
            "groups": facts.groups,
            "iterations": facts.iterations,
            "schedule_s": facts.solve_s,
            "predicted_epoch_s": facts.makespan_s if facts.in_seconds else None,
            "over_bound": None if facts.excess is None else 1 + facts.excess,
        }

    def workload(self, facts: Facts) -> EpochWork:
        """What each rank does in an epoch."""
        from dtdg_lab.systems.snapshot_groups.workload import group_work

        return group_work(facts)

    def memory_changes(self, config: RunConfig) -> Sequence[tuple[str, float]]:
        """Options that lower a rank's memory, with their factors."""
        return (("group_window", 0.5),)

    def curves(self, facts: Facts, ranks: Sequence[int], rates: Rates, *, quick: bool) -> list[Row]:
        """Further curves of ``lab.estimate.scaling_forecast``."""
        from dtdg_lab.systems.snapshot_groups.forecast import schedule_curves

        return schedule_curves(facts, ranks, rates, quick=quick)

    def build(self, context: BuildContext) -> Strategy:
        """Its strategy; collective."""
        from dtdg_lab.systems.snapshot_groups.strategy import build

        return build(context)

    def views(self, config: RunConfig, shared: SharedViews) -> Sequence[RunView]:
        """Its charts, after those of every run."""
        from dtdg_lab.systems.snapshot_groups.charts import ScheduleView

        return [ScheduleView(config.ranks)]

    def event_texts(self) -> Mapping[str, Callable[[dict[str, Any]], str]]:
        """Captions of its events."""
        from dtdg_lab.systems.snapshot_groups.charts import schedule_facts, schedule_words
        from dtdg_lab.visualization.run_view import plan_ended

        def schedule(data: dict[str, Any]) -> str:
            return "no schedule from here on" if plan_ended(data) else schedule_words(schedule_facts(data))

        return {"schedule": schedule}

    def page(self, context: PageContext) -> RunPage:
        """The page of its schedule and group times."""
        from dtdg_lab.systems.snapshot_groups.page import SchedulePage

        return SchedulePage(context)

    def has_clock(self, config: RunConfig) -> bool:
        """Whether schedules follow measured times, or their search may stop at its time limit."""
        scheduler = config.flat.get("scheduler")
        if scheduler in (None, "round_robin", "consecutive"):  # they use no group times
            return False
        return scheduler in ("dygnex_ilp", "dygnex_auto", "best_of") or config.flat.get("group_times") != "size"

    def epoch_bounds(self, run: StoredRun, newest: int) -> pd.Series[float] | None:
        """Of complete epochs; None where the times of two groups overlap."""
        import pandas as pd

        from dtdg_lab.systems.snapshot_groups.schedulers.base import lower_bound_s

        facts = run.live.view("schedule").facts
        if facts is None or run.config.flat.get("pipelined"):
            return None
        table = run.table("groups")
        seconds = (table["end_ns"] - table["start_ns"]) * 1e-9
        per_rank = max(1, facts.per_rank * facts.parts // facts.ranks)
        found = {
            epoch: lower_bound_s(times.to_numpy(float), facts.ranks, per_rank=per_rank)
            for epoch, times in list(seconds.groupby(table["epoch"]))[-newest:]
            if len(times) == facts.groups
        }
        return pd.Series(found, dtype=float)

    def pictures(self, system: System, graph: DynamicGraph) -> list[Panel]:
        """Pictures on the cards of its systems."""
        from dtdg_lab.systems.snapshot_groups.pictures import schedule_pictures

        return schedule_pictures(system, graph)


FAMILY = SnapshotGroupsFamily()
