"""FlareDTDG and DynaGraph: windows of full and decayed or sampled snapshots over node partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import ABSENT, entry
from dtdg_lab.config.model_facts import memory
from dtdg_lab.core.errors import ConfigError, UnsupportedError
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


class DecayedWindowsFamily(SystemFamily):
    """FlareDTDG and DynaGraph: windows of full and decayed or sampled snapshots over node partitions."""

    name = "decayed_windows"

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raise if decayed snapshots cannot affect the loss, or if the loss is undefined."""
        if "alpha" not in settings:
            return
        if settings["full_snapshots"] > settings["window"]:
            raise ConfigError(
                f"full_snapshots={settings['full_snapshots']} exceeds window={settings['window']}. "
                "Set fewer full snapshots, or a longer window."
            )
        if settings["full_snapshots"] == settings["window"]:
            return
        system = f"system={settings['system']!r} with"
        carried = _memory_of(settings)
        if settings["loss_at"] == "last" and carried in ("weights", "none"):
            carries = "no state" if carried == "none" else "only weights, which evolve independently of the snapshots"
            raise UnsupportedError(
                f"{system} model={settings['model']!r} and loss_at='last': the model carries {carries}, so decayed "
                "snapshots cannot affect the loss at the last snapshot, and alpha and full_snapshots would have no "
                "effect. Set loss_at='all', which takes the loss at all snapshots of the window, or choose another "
                "model."
            )
        if settings["loss_at"] == "all" and not entry("tasks", settings["task"]).per_vertex:
            raise UnsupportedError(
                f"{system} task={settings['task']!r} and loss_at='all': its loss needs all nodes at once, but decayed "
                "snapshots lack some. Set loss_at='last', make all snapshots full (full_snapshots=window), or choose "
                "system='full-history'."
            )

    def charts(self) -> Sequence[Chart]:
        """Return the charts of a run: windows, rows, communication, sampling and tuning."""
        from dtdg_lab.systems.decayed_windows import step_charts, step_windows, tuner_charts, window_picture
        from dtdg_lab.visualization.runs.waiting import communication_chart

        return (
            window_picture.WINDOW,
            step_charts.ROWS,
            communication_chart(applies=step_windows.has_halo),
            step_charts.SAMPLING,
            step_charts.PHASES_BY_STEP,
            step_charts.CUTTING,
            step_charts.TASK_TIMES,
            tuner_charts.DECISIONS,
            tuner_charts.PATH,
        )

    def tiles(self, tables: RunTables) -> Sequence[Tile]:
        """Return loss, step time, rows, memory, and communication or sampled edges."""
        from dtdg_lab.systems.decayed_windows.tiles import window_tiles
        from dtdg_lab.visualization.runs.overview import common_tiles

        return (*common_tiles(tables), *window_tiles(tables))

    def suggestions(self, config: RunConfig) -> Sequence[Suggestion]:
        """Return suggestions to change the window, or to add a slow rank."""
        from dtdg_lab.systems.decayed_windows.tiles import window_suggestions

        return window_suggestions(config)

    def effect(self, system: str) -> Effect | None:
        """Return the effect of the system on the rows per step."""
        from dtdg_lab.systems.decayed_windows.tiles import rows_effect

        return rows_effect()

    def sentence(self, system: str) -> str:
        """Return a sentence on the data that a system trains on."""
        from dtdg_lab.systems.decayed_windows.tiles import SENTENCES

        return SENTENCES.get(system, super().sentence(system))

    def has_clock(self, config: RunConfig) -> bool:
        """Return True if K and alpha are tuned by measured costs."""
        return bool(config.flat.get("tune"))

    def build(self, context: BuildContext) -> Strategy:
        """Return the strategy that trains a run on this rank."""
        from dtdg_lab.systems.decayed_windows import sampled, strategy

        is_sampled = catalogue.system(context.config.system).parts["parallel"] == "sampled_window"
        return sampled.build(context) if is_sampled else strategy.build(context)

    def pictures(self, system: System, graph: DynamicGraph) -> list[CaptionedFigure]:
        """Return the charts on the card of one of its systems."""
        from dtdg_lab.systems.decayed_windows.card_pictures import sampled_pictures, window_pictures

        is_sampled = system.parts["parallel"] == "sampled_window"
        return sampled_pictures(system, graph) if is_sampled else window_pictures(system, graph)

    def workload(self, facts: Facts) -> EpochWork:
        """Return what each rank does in an epoch."""
        from dtdg_lab.systems.decayed_windows.workload import sampled_window_work, window_work

        return sampled_window_work(facts) if facts.layout == "sampled_window" else window_work(facts)


def _memory_of(settings: Mapping[str, Any]) -> str:
    """Return the memory of the model; empty if the model's code is absent here (a run read from its folder)."""
    if ("models", settings["model"]) in ABSENT:
        return ""
    names = ("hidden", *entry("models", settings["model"]).options)
    return memory(settings["model"], **{name: settings[name] for name in names if name in settings})


FAMILY = DecayedWindowsFamily()
