"""Systems over numbers of ranks: what an epoch takes, and what of the ranks is used."""

from __future__ import annotations

from typing import Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.studies.shipped.entry import Panel, Shipped
from dtdg_lab.studies.shipped.sizes import QUICK
from dtdg_lab.studies.study import Study
from dtdg_lab.studies.sweep import Sweep
from dtdg_lab.views.efficiency import Efficiency, efficiency_figure, efficiency_words

NAME, RANKS, SYSTEM = "scaling", "ranks", "system"
SYSTEMS = ("psg", "dygnex-g", "esdg", "pygt-dist", "adgnn-t", "dynahb", "flaredtdg")


def sweep(base: RunConfig | None, quick: bool) -> Sweep:
    """System x ranks x seeds, one part for each rank: sessions of two engines or more are needed for all of it."""
    config = base or RunConfig(model="tgcn", **({**QUICK, "epochs": 4} if quick else {"epochs": 20, "threads": 1}))
    systems = ("psg", "esdg") if quick else SYSTEMS
    ranks = (1, 2) if quick or base is None else tuple(sorted({1, 2, base.ranks}))
    over: dict[str, Any] = {RANKS: ranks, SYSTEM: systems}
    return Sweep(config.replace(ranks=1, parts=1), over, (0,) if quick else (0, 1, 2), skip="refused",
                 objective="epoch_time_s", shipped=NAME)  # fmt: skip


def efficiencies(study: Study) -> list[Efficiency]:
    """For each system, the seconds of its epochs by ranks; medians over seeds."""
    found: dict[str, dict[int, float]] = {}
    for each in study.combinations:
        if each.middle is not None:
            found.setdefault(str(each.settings[SYSTEM]), {})[int(each.settings[RANKS])] = each.middle
    return [Efficiency(system, seconds) for system, seconds in found.items()]


def analysis(study: Study) -> dict[str, Panel]:
    """Efficiency over ranks; maps of seconds and of imbalance."""
    known = efficiencies(study)
    return {
        NAME: (efficiency_figure(known), efficiency_words(known)),
        "seconds": study.map_panel(RANKS, SYSTEM),
        "imbalance": study.map_panel(RANKS, SYSTEM, "imbalance"),
    }


SCALING = Shipped(
    name=NAME, sweep=sweep, analysis=analysis,
    question="What does a further rank bring each system, and where does it go instead?",
    source="ours; DyGNeX Figure 5 and ESDG Figure 5 on their machines",
)  # fmt: skip
