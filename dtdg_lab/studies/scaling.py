"""Shipped study of scaling: parallel efficiency of systems over numbers of ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtdg_lab.visualization.studies.scaling import Efficiency, efficiency_caption, efficiency_figure

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.studies.study import Study
    from dtdg_lab.visualization.chart import Figure


def refine_scaling(config: RunConfig, axes: dict[str, Any], quick: bool) -> tuple[dict[str, Any], str]:
    """Return numbers of ranks up to those of a config; combinations that a system refuses are skipped."""
    return axes if quick else {**axes, "ranks": tuple(sorted({1, 2, config.ranks}))}, "refused"


def efficiencies(study: Study) -> list[Efficiency]:
    """Return epoch seconds by ranks for each system, medians over seeds."""
    seconds_by_system: dict[str, dict[int, float]] = {}
    for combination in study.combinations:
        if combination.middle is not None:
            settings = combination.settings
            seconds_by_system.setdefault(str(settings["system"]), {})[int(settings["ranks"])] = combination.middle
    return [Efficiency(system, seconds) for system, seconds in seconds_by_system.items()]


def efficiency_card(study: Study) -> dict[str, tuple[Figure, str]]:
    """Return the figure and caption of parallel efficiency over ranks, by system."""
    systems = efficiencies(study)
    return {"scaling": (efficiency_figure(systems), efficiency_caption(systems))}
