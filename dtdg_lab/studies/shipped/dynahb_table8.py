"""Table 8 of DynaHB: fixed sizes of hybrid batches against the DQN that sizes them."""

from __future__ import annotations

from typing import Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.studies.shipped.entry import Panel, Shipped
from dtdg_lab.studies.shipped.near_best import near_best_panel
from dtdg_lab.studies.shipped.sizes import QUICK
from dtdg_lab.studies.study import Study
from dtdg_lab.studies.sweep import Sweep

NAME, AXIS = "dynahb-table8", "size"
PAPER = {"1 %": 2.47, "5 %": 2.49, "10 %": 2.51, "20 %": 2.72, "DQN": 1.84}  # seconds, Slashdot


def hybrid_base(base: RunConfig | None, quick: bool) -> RunConfig:
    """Settings of a study of hybrid batches.

    Raises:
        ConfigError: the base's system has no adjuster of batches.
    """
    if base is not None:
        if "adjuster" not in base.flat:
            raise ConfigError(f"system={base.system!r} has no hybrid batches: study config.replace(system='dynahb').")
        return base
    if quick:
        return RunConfig(system="dynahb", model="tgcn", epochs=8, epoch_batches=10, reservoir=False, **QUICK)
    return RunConfig(system="dynahb", model="tgcn", epochs=60)


def sweep(base: RunConfig | None, quick: bool) -> Sweep:
    """Four fixed sizes, of vertices and of snapshots alike, and the DQN.

    Differs from the paper: it names its columns fanouts and its text sizes of hybrid batches; we read sizes.
    """
    sizes = (0.05, 0.2) if quick else (0.01, 0.05, 0.1, 0.2)
    cases: dict[str, dict[str, Any]] = {
        f"{100 * size:g} %": {"adjuster": "none", "batch_vertices": size, "batch_snapshots": size} for size in sizes
    }
    cases["DQN"] = {"adjuster": "dqn"}
    return Sweep(hybrid_base(base, quick), {AXIS: cases}, (0, 1) if quick else (0, 1, 2), shipped=NAME)


def analysis(study: Study) -> dict[str, Panel]:
    """Seconds to a loss near the least of all, by size."""
    return {NAME: near_best_panel(study, AXIS, paper=PAPER, title="Sizes of hybrid batches, fixed and chosen")}


TABLE8 = Shipped(
    name=NAME, sweep=sweep, analysis=analysis,
    question="Which size of hybrid batches learns soonest, and is a DQN that chooses it quicker than all of them?",
    source="DynaHB section 7.5, Table 8 (its row Slashdot is quoted)",
)  # fmt: skip
