"""The shipped study of scaling: epoch time and parallel efficiency of systems over numbers of ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtdg_lab.systems.base import QUICK_DATA, StudyPreset
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


def _refine(config: RunConfig, over: dict[str, Any], quick: bool) -> tuple[dict[str, Any], str]:
    return over if quick else {**over, RANKS: tuple(sorted({1, 2, config.ranks}))}, "refused"


def _efficiency_panel(study: Study) -> dict[str, tuple[Figure, str]]:
    known = efficiencies(study)
    return {SCALING.name: (efficiency_figure(known), efficiency_words(known))}


SCALING = StudyPreset(  # one partition for each rank; needs a session of two engines or more for all of it
    name="scaling",
    question="How much does each system gain from more ranks, and what limits it?",
    source="ours; DyGNeX Figure 5 and ESDG Figure 5 on their machines",
    base={"model": "tgcn"},
    full={"epochs": 20, "threads": 1},
    quick={**QUICK_DATA, "epochs": 4},
    over={RANKS: (1, 2), SYSTEM: ("psg", "dygnex-g", "esdg", "pygt-dist", "adgnn-t", "dynahb", "flaredtdg")},
    quick_over={RANKS: (1, 2), SYSTEM: ("psg", "esdg")},
    quick_seeds=(0,),
    fixed={"ranks": 1, "parts": 1},
    objective="epoch_time_s",
    refine=_refine,
    maps={"seconds": "", "imbalance": "imbalance"},
    analysis=_efficiency_panel,
)
