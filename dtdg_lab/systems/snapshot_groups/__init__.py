"""DyGNeX, PSG and BLAD: groups of snapshots, scheduled over ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtdg_lab.config.catalogue import ABSENT
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    import pandas as pd

    from dtdg_lab.config.catalogue import System
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.engine.strategy import BuildContext, Strategy
    from dtdg_lab.forecast.rates import Rates
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.runs.stored_run import StoredRun
    from dtdg_lab.systems.workload import EpochWork, Facts, Row
    from dtdg_lab.visualization.chart import CaptionedFigure, Chart
    from dtdg_lab.visualization.tiles import Effect, Suggestion, Tile


class SnapshotGroupsFamily(SystemFamily):
    """DyGNeX, PSG and BLAD: groups of snapshots, scheduled over ranks."""

    name = "snapshot_groups"

    def summary(self, tables: Mapping[str, pd.DataFrame], everything: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
        """Return facts on the run's last schedule."""
        from dtdg_lab.systems.snapshot_groups.events import ScheduleFacts

        events = tables["events"]
        schedules = [data for data in events.loc[events["kind"] == "schedule", "data"] if isinstance(data, dict)]
        facts = ScheduleFacts.read_plan(schedules[-1]) if schedules else None
        if facts is None:
            return dict.fromkeys(self.summary_meanings)
        return {
            "scheduler": facts.scheduler,
            "groups": facts.groups,
            "iterations": facts.iterations,
            "schedule_s": facts.solve_s,
            "predicted_epoch_s": facts.makespan_s if facts.in_seconds else None,
            "over_bound": None if facts.excess is None else 1 + facts.excess,
        }

    def charts(self) -> Sequence[Chart]:
        """Return the charts: the schedule, its balance, and other schedules."""
        from dtdg_lab.systems.snapshot_groups.charts import GROUP_TIMES, IMBALANCE, OWN_WORK
        from dtdg_lab.systems.snapshot_groups.comparison import OTHER_RANKS, OTHER_SCHEDULERS
        from dtdg_lab.systems.snapshot_groups.schedule_chart import SCHEDULE

        return SCHEDULE, IMBALANCE, GROUP_TIMES, OWN_WORK, OTHER_SCHEDULERS, OTHER_RANKS

    def tiles(self, tables: RunTables) -> Sequence[Tile]:
        """Return the tiles: validation loss, epoch time, distance from the bound, waiting and imbalance."""
        from dtdg_lab.systems.snapshot_groups.page import schedule_tiles

        return schedule_tiles(tables)

    def suggestions(self, config: RunConfig) -> Sequence[Suggestion]:
        """Return suggestions to change the schedule, or to add a slow rank."""
        from dtdg_lab.systems.snapshot_groups.page import schedule_suggestions

        return schedule_suggestions(config)

    def effect(self, system: str) -> Effect:
        """Return the epoch time."""
        from dtdg_lab.systems.snapshot_groups.page import EPOCH_TIME

        return EPOCH_TIME

    def has_clock(self, config: RunConfig) -> bool:
        """Return True if schedules depend on measured times, or if their search may stop at its time limit.

        A scheduler whose code is absent is assumed to use times.
        """
        from dtdg_lab.systems.snapshot_groups.schedulers.base import facts_of

        if "scheduler" not in config.flat:
            return False
        if ("scheduling", config["scheduler"]) in ABSENT:
            return True
        facts = facts_of(config["scheduler"])
        return facts.searches or (facts.uses_times and config["group_times"] != "size")

    def epoch_bounds(self, run: StoredRun, newest: int) -> pd.Series[float] | None:
        """Return lower bounds of complete epochs; None if the times of two groups overlap."""
        import pandas as pd

        from dtdg_lab.systems.snapshot_groups.events import ScheduleFacts
        from dtdg_lab.systems.snapshot_groups.schedulers.base import lower_bound_s

        facts = run.live.event(ScheduleFacts)
        if facts is None or run.config.flat.get("pipelined"):
            return None
        table = run.table("groups")
        seconds = (table["end_ns"] - table["start_ns"]) * 1e-9
        bounds_s = {
            epoch: lower_bound_s(times.to_numpy(float), facts.ranks, per_rank=facts.rank_groups)
            for epoch, times in list(seconds.groupby(table["epoch"]))[-newest:]
            if len(times) == facts.groups
        }
        return pd.Series(bounds_s, dtype=float)

    def build(self, context: BuildContext) -> Strategy:
        """Return the strategy that trains a run on this rank."""
        from dtdg_lab.systems.snapshot_groups.strategy import build

        return build(context)

    def pictures(self, system: System, graph: DynamicGraph) -> list[CaptionedFigure]:
        """Return the charts on the card of one of its systems."""
        from dtdg_lab.systems.snapshot_groups.card_charts import schedule_pictures

        return schedule_pictures(system, graph)

    def workload(self, facts: Facts) -> EpochWork:
        """Return the work of each rank in an epoch."""
        from dtdg_lab.systems.snapshot_groups.forecast import group_work

        return group_work(facts)

    def curves(self, facts: Facts, ranks: Sequence[int], rates: Rates, *, quick: bool) -> list[Row]:
        """Return curves over the number of ranks."""
        from dtdg_lab.systems.snapshot_groups.forecast import schedule_curves

        return schedule_curves(facts, ranks, rates, quick=quick)


FAMILY = SnapshotGroupsFamily()
