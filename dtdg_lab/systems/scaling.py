"""The analysis of the shipped study of scaling: parallel efficiency of systems over numbers of ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.scaling import Efficiency, efficiency_figure, efficiency_words

if TYPE_CHECKING:
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.studies.study import Study


RANKS, SYSTEM = "ranks", "system"


def efficiencies(study: Study) -> list[Efficiency]:
    """For each system, epoch seconds by ranks; medians over seeds."""
    found: dict[str, dict[int, float]] = {}
    for each in study.combinations:
        if each.middle is not None:
            found.setdefault(str(each.settings[SYSTEM]), {})[int(each.settings[RANKS])] = each.middle
    return [Efficiency(system, seconds) for system, seconds in found.items()]


def refine_scaling(config: RunConfig, over: dict[str, Any], quick: bool) -> tuple[dict[str, Any], str]:
    """Up to the ranks of a config, without what a system refuses."""
    return over if quick else {**over, RANKS: tuple(sorted({1, 2, config.ranks}))}, "refused"


def efficiency_panel(study: Study) -> dict[str, tuple[Figure, str]]:
    """Parallel efficiency over ranks, by system."""
    known = efficiencies(study)
    return {"scaling": (efficiency_figure(known), efficiency_words(known))}
