"""Table 10 of DynaHB: how much the settings of its DQN matter."""

from __future__ import annotations

from typing import Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.studies.shipped.dynahb_table8 import hybrid_base
from dtdg_lab.studies.shipped.entry import Panel, Shipped
from dtdg_lab.studies.shipped.near_best import near_best_panel
from dtdg_lab.studies.study import Study
from dtdg_lab.studies.sweep import Sweep

NAME, AXIS = "dynahb-table10", "strategy"
PAPER = {"#1": 4.57, "#2": 4.52, "#3": 4.99, "#4": 4.46, "#5": 4.49, "#6": 4.18, "paper's": 3.21, "random": 5.82}
_AGENTS = {  # epsilon's decay and end, learning rate
    "#1": (0.999, 0.1, 0.005), "#2": (0.75, 0.1, 0.005), "#3": (0.95, 0.0, 0.005), "#4": (0.95, 0.5, 0.005),
    "#5": (0.95, 0.1, 0.1), "#6": (0.95, 0.1, 0.001), "paper's": (0.95, 0.1, 0.005),
}  # fmt: skip
_QUICK = ("#3", "paper's")


def sweep(base: RunConfig | None, quick: bool) -> Sweep:
    """Seven agents and chance."""
    cases: dict[str, dict[str, Any]] = {
        name: {"adjuster": "dqn", "epsilon_decay": decay, "epsilon_min": end, "agent_rate": rate}
        for name, (decay, end, rate) in _AGENTS.items()
        if not quick or name in _QUICK
    }
    cases["random"] = {"adjuster": "random"}
    return Sweep(hybrid_base(base, quick), {AXIS: cases}, (0, 1) if quick else (0, 1, 2), shipped=NAME)


def analysis(study: Study) -> dict[str, Panel]:
    """Seconds to a loss near the least of all, by strategy."""
    return {NAME: near_best_panel(study, AXIS, paper=PAPER, title="Settings of the DQN that sizes batches")}


TABLE10 = Shipped(
    name=NAME, sweep=sweep, analysis=analysis,
    question="How much do the settings of the DQN matter, and is it better than chance?",
    source="DynaHB section 7.5, Table 10",
)  # fmt: skip
