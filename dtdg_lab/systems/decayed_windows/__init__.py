"""FlareDTDG and DynaGraph: windows of full and decayed or sampled snapshots over node partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.catalogue import entry, system
from dtdg_lab.core.errors import ConfigError, UnsupportedError
from dtdg_lab.systems.base import GRADIENTS, SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.core.catalogue import System
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.engine.strategy import BuildContext, Strategy
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.systems.base import StudyPreset
    from dtdg_lab.systems.workload import EpochWork, Facts
    from dtdg_lab.visualization.charts import Panel
    from dtdg_lab.visualization.run_view import RunView, SharedViews
    from dtdg_lab.widgets.run_page import PageContext, RunPage


class DecayedWindowsFamily(SystemFamily):
    """FlareDTDG and DynaGraph: windows of full and decayed or sampled snapshots over node partitions."""

    name = "decayed_windows"
    card_views = ("trapezoid",)
    calibrated = MappingProxyType({"flaredtdg": {}})
    setting_rows = (("window", "full_snapshots"), ("alpha", "decay"), ("chunks", "chunker"), ("tune",))
    predicted = MappingProxyType({"flaredtdg": False})
    curves_of = MappingProxyType({"dynagraph": (GRADIENTS,)})

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Refuse windows whose decayed snapshots do not affect the loss, or in which the loss is undefined."""
        if "alpha" not in settings:
            return
        if settings["full_snapshots"] > settings["window"]:
            raise ConfigError(
                f"full_snapshots={settings['full_snapshots']} exceeds window={settings['window']}. "
                "Set fewer full snapshots, or a longer window."
            )
        if settings["full_snapshots"] == settings["window"]:
            return
        named = f"system={settings['system']!r} with"
        memory = entry("models", settings["model"]).memory
        if settings["loss_at"] == "last" and memory in ("weights", "none"):
            carries = "no state" if memory == "none" else "only weights, which evolve independently of the snapshots"
            raise UnsupportedError(
                f"{named} model={settings['model']!r} and loss_at='last': the model carries {carries}, so decayed "
                "snapshots cannot affect the loss at the last snapshot, and alpha and full_snapshots would have no "
                "effect. Set loss_at='all', which takes the loss at all snapshots of the window, or choose another "
                "model."
            )
        if settings["loss_at"] == "all" and settings["task"] == "link":
            raise UnsupportedError(
                f"{named} task='link' and loss_at='all': node pairs are drawn from all nodes, but decayed "
                "snapshots lack some. Set loss_at='last', make all snapshots full (full_snapshots=window), or choose "
                "system='full-history'."
            )

    def workload(self, facts: Facts) -> EpochWork:
        """What each rank does in an epoch."""
        from dtdg_lab.systems.decayed_windows.workload import sampled_window_work, window_work

        return (window_work if facts.layout == "halo_window" else sampled_window_work)(facts)

    def memory_changes(self, config: RunConfig) -> Sequence[tuple[str, float]]:
        """Options that lower a rank's memory, with their factors."""
        return (("window", 0.5), *((("fanout", 0.5),) if "fanout" in config.flat else ()))

    def build(self, context: BuildContext) -> Strategy:
        """Its strategy; collective."""
        from dtdg_lab.systems.decayed_windows import sampled, strategy

        builds = {"halo_window": strategy.build, "sampled_window": sampled.build}
        return builds[system(context.config.system).parts["parallel"]](context)

    def views(self, config: RunConfig, shared: SharedViews) -> Sequence[RunView]:
        """Its charts, after those of every run."""
        from dtdg_lab.systems.decayed_windows.view import TrapezoidView

        return [TrapezoidView(config.ranks, shared.marks, config.flat.get("overlap", True))]

    def event_texts(self) -> Mapping[str, Callable[[dict[str, Any]], str]]:
        """Captions of its events."""
        from dtdg_lab.systems.decayed_windows import charts
        from dtdg_lab.visualization.run_view import plan_ended

        def windows(data: dict[str, Any]) -> str:
            if plan_ended(data):
                return "no windows from here on"
            return charts.trapezoid_words(charts.trapezoid_facts(data))

        def chunks(data: dict[str, Any]) -> str:
            return "no chunks from here on" if plan_ended(data) else charts.chunks_words(data)

        return {"trapezoid": windows, "chunks": chunks}

    def page(self, context: PageContext) -> RunPage:
        """The page of its windows."""
        from dtdg_lab.systems.decayed_windows.page import DecayedWindowPage

        return DecayedWindowPage(context)

    def studies(self) -> Sequence[StudyPreset]:
        """Its shipped studies."""
        from dtdg_lab.systems.decayed_windows.study import FIGURE8

        return (FIGURE8,)

    def has_clock(self, config: RunConfig) -> bool:
        """Whether K and alpha are tuned by measured costs."""
        return bool(config.flat.get("tune"))

    def pictures(self, system: System, graph: DynamicGraph) -> list[Panel]:
        """Pictures on the cards of its systems."""
        from dtdg_lab.systems.decayed_windows import pictures

        sampled = system.parts["parallel"] == "sampled_window"
        return (pictures.sampled_pictures if sampled else pictures.window_pictures)(system, graph)


FAMILY = DecayedWindowsFamily()
