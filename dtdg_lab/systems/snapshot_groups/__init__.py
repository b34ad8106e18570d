"""DyGNeX, PSG and BLAD: groups of snapshots, scheduled over ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.engine.strategy import BuildContext, Strategy
    from dtdg_lab.visualization.run_view import RunView, SharedViews
    from dtdg_lab.widgets.run_page import PageContext, RunPage


class SnapshotGroupsFamily(SystemFamily):
    """DyGNeX, PSG and BLAD: groups of snapshots, scheduled over ranks."""

    name = "snapshot_groups"

    def build(self, context: BuildContext) -> Strategy:
        """Its strategy; collective."""
        from dtdg_lab.systems.snapshot_groups.strategy import build

        return build(context)

    def views(self, config: RunConfig, shared: SharedViews) -> Sequence[RunView]:
        from dtdg_lab.systems.snapshot_groups.charts import ScheduleView

        return [ScheduleView(config.ranks)]

    def event_texts(self) -> Mapping[str, Callable[[dict[str, Any]], str]]:
        from dtdg_lab.systems.snapshot_groups.charts import is_end, schedule_facts, schedule_words

        def schedule(data: dict[str, Any]) -> str:
            return "no schedule from here on" if is_end(data) else schedule_words(schedule_facts(data))

        return {"schedule": schedule}

    def page(self, context: PageContext) -> RunPage:
        """The page of its schedule and group times."""
        from dtdg_lab.systems.snapshot_groups.page import SchedulePage

        return SchedulePage(context)


FAMILY = SnapshotGroupsFamily()
