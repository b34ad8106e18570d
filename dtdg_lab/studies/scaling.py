"""The shipped study of scaling: the parallel efficiency of systems on different numbers of ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtdg_lab.visualization.studies.scaling import Efficiency, efficiency_caption, efficiency_figure

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.studies.study import Study
    from dtdg_lab.visualization.chart import Figure


def refine_scaling(config: RunConfig, axes: dict[str, Any], quick: bool) -> tuple[dict[str, Any], str]:
    """Return the numbers of ranks up to the config's; combinations that a system does not allow are skipped."""
    return axes if quick else {**axes, "ranks": tuple(sorted({1, 2, config.ranks}))}, "refused"


def efficiencies(study: Study) -> list[Efficiency]:
    """Return the epoch seconds of each system by number of ranks, as medians over seeds."""
    seconds_by_system: dict[str, dict[int, float]] = {}
    for combination in study.combinations:
        if combination.middle is not None:
            settings = combination.settings
            seconds_by_system.setdefault(str(settings["system"]), {})[int(settings["ranks"])] = combination.middle
    return [Efficiency(system, seconds) for system, seconds in seconds_by_system.items()]


def efficiency_card(study: Study) -> dict[str, tuple[Figure, str]]:
    """Return the figure of parallel efficiency over ranks by system, with its caption."""
    systems = efficiencies(study)
    return {"scaling": (efficiency_figure(systems), efficiency_caption(systems))}
