"""DyGNeX, PSG and BLAD: groups of snapshots, scheduled over ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.systems.base import GRADIENTS, SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.advisor.rates import Rates
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.engine.strategy import BuildContext, Strategy
    from dtdg_lab.systems.workload import EpochWork, Facts, Row
    from dtdg_lab.visualization.run_view import RunView, SharedViews
    from dtdg_lab.widgets.run_page import PageContext, RunPage


class SnapshotGroupsFamily(SystemFamily):
    """DyGNeX, PSG and BLAD: groups of snapshots, scheduled over ranks."""

    name = "snapshot_groups"
    calibrated = MappingProxyType({"psg": {}, "blad": {}})
    curves_of = MappingProxyType(
        {"dygnex-g": ("dygnex_greedy", GRADIENTS), **dict.fromkeys(("psg", "blad", "dygnex-l"), (GRADIENTS,))}
    )

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
        from dtdg_lab.systems.snapshot_groups.charts import is_end, schedule_facts, schedule_words

        def schedule(data: dict[str, Any]) -> str:
            return "no schedule from here on" if is_end(data) else schedule_words(schedule_facts(data))

        return {"schedule": schedule}

    def page(self, context: PageContext) -> RunPage:
        """The page of its schedule and group times."""
        from dtdg_lab.systems.snapshot_groups.page import SchedulePage

        return SchedulePage(context)


FAMILY = SnapshotGroupsFamily()
