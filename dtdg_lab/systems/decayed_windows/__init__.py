"""FlareDTDG and DynaGraph: windows of full and decayed or sampled snapshots over node partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.catalogue import ABSENT, entry
from dtdg_lab.core.errors import ConfigError, UnsupportedError
from dtdg_lab.core.model_facts import memory
from dtdg_lab.systems.base import SystemFamily

if TYPE_CHECKING:
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.visualization.run_view import RunView, SharedViews


class DecayedWindowsFamily(SystemFamily):
    """FlareDTDG and DynaGraph: windows of full and decayed or sampled snapshots over node partitions."""

    name = "decayed_windows"

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

    def views(self, config: RunConfig, shared: SharedViews) -> Sequence[RunView]:
        """Its charts, after those of every run."""
        from dtdg_lab.systems.decayed_windows.view import TrapezoidView

        return [TrapezoidView(config.ranks, shared.marks, config.flat.get("overlap") != "off")]

    def has_clock(self, config: RunConfig) -> bool:
        """Whether K and alpha are tuned by measured costs."""
        return bool(config.flat.get("tune"))


def _memory_of(settings: Mapping[str, Any]) -> str:
    """Return what the model carries; empty where only a run's folder describes it, for there it was checked."""
    if ("models", settings["model"]) in ABSENT:
        return ""
    names = ("hidden", *entry("models", settings["model"]).options)
    return memory(settings["model"], **{name: settings[name] for name in names if name in settings})


FAMILY = DecayedWindowsFamily()
