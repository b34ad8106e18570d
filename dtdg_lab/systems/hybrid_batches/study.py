"""The shipped studies of hybrid batches: Tables 8 and 10 of DynaHB, and the shape of batches."""

from __future__ import annotations

from typing import Any

from dtdg_lab.systems.base import QUICK_DATA, StudyPreset

_SHARED: dict[str, Any] = {
    "base": {"system": "dynahb", "model": "tgcn"},
    "full": {"epochs": 60},
    "quick": {**QUICK_DATA, "epochs": 8, "epoch_batches": 10, "reservoir": False},
    "needs": ("batch_policy", "has no hybrid batches"),
}
DQN = {"batch_policy": "dqn"}
_SIZES = {
    f"{100 * size:g} %": {"batch_policy": "none", "batch_nodes": size, "batch_snapshots": size}
    for size in (0.01, 0.05, 0.1, 0.2)
}
_AGENTS = {  # epsilon's decay and end, learning rate
    "#1": (0.999, 0.1, 0.005),
    "#2": (0.75, 0.1, 0.005),
    "#3": (0.95, 0.0, 0.005),
    "#4": (0.95, 0.5, 0.005),
    "#5": (0.95, 0.1, 0.1),
    "#6": (0.95, 0.1, 0.001),
    "paper's": (0.95, 0.1, 0.005),
}
_STRATEGIES = {
    **{
        name: {**DQN, "epsilon_decay": decay, "epsilon_min": end, "agent_rate": rate}
        for name, (decay, end, rate) in _AGENTS.items()
    },
    "random": {"batch_policy": "random"},
}

STUDIES = (
    # Four fixed sizes, equal for nodes and snapshots, and the DQN. Differs from the paper: it names its columns
    # fanouts, but its text calls them hybrid-batch sizes; we use sizes.
    StudyPreset(
        name="dynahb-table8",
        question="Which hybrid batch size converges fastest, and does a DQN controller beat every fixed size?",
        source="DynaHB section 7.5, Table 8 (its row Slashdot is quoted)",
        over={"size": {**_SIZES, "DQN": DQN}},
        quick_over={"size": {"5 %": _SIZES["5 %"], "20 %": _SIZES["20 %"], "DQN": DQN}},
        bars="Hybrid batch sizes, fixed and chosen by the DQN",
        paper={"1 %": 2.47, "5 %": 2.49, "10 %": 2.51, "20 %": 2.72, "DQN": 1.84},  # seconds, Slashdot
        **_SHARED,
    ),
    StudyPreset(
        name="dynahb-table10",
        question="How much do the settings of the DQN matter, and does it beat a random policy?",
        source="DynaHB section 7.5, Table 10",
        over={"strategy": _STRATEGIES},
        quick_over={"strategy": {name: _STRATEGIES[name] for name in ("#3", "paper's", "random")}},
        bars="Settings of the DQN batch-size controller",
        paper=dict(zip(_STRATEGIES, (4.57, 4.52, 4.99, 4.46, 4.49, 4.18, 3.21, 5.82), strict=True)),
        **_SHARED,
    ),
    # The nine actions of DynaHB's DQN as fixed sizes; a two-by-two grid in the short form.
    StudyPreset(
        name="batch-sizes",
        question="How many snapshots and how many nodes does a batch need to match the loss of a larger one?",
        source="DynaHB section 5.1 (its actions), as a map",
        over={"batch_snapshots": (0.1, 0.2, 0.3), "batch_nodes": (0.01, 0.05, 0.1)},
        quick_over={"batch_snapshots": (0.1, 0.3), "batch_nodes": (0.05, 0.2)},
        fixed={"batch_policy": "none"},
        maps={"batch-sizes": "", "seconds": "epoch_time_s", "memory": "peak_bytes"},
        **_SHARED,
    ),
)
