"""An epoch of windows as this lab runs it: a step for each snapshot. FlareDTDG's windows decay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contenders.case import HIDDEN, RATE, Case, Epoch
from contenders.lab import as_graph
from contenders.workload import Workload
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.engine.strategy import StepMarks

if TYPE_CHECKING:
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph


def load(workload: Workload) -> DynamicGraph:
    return as_graph(workload)


def prepare(case: Case, graph: DynamicGraph, system: str = "flaredtdg", *, device: str = "cpu") -> Epoch:
    """All snapshots but the last are trained on, so that there is one step less than they are."""
    from dtdg_lab.training.build import build

    config = RunConfig(
        dataset="powerlaw", system=system, model=case.model, hidden=HIDDEN, layers=case.layers, ranks=1,
        device=device, learning_rate=RATE, protocol="esdg-2021", task="regression",
    )  # fmt: skip
    built, number = build(config, graph, SoloGroup(), device=device), -1

    def epoch() -> float:
        nonlocal number
        number += 1
        works, lost = built.strategy.epoch(number), 0.0
        for work in works:
            built.gradients.zero()
            computed = built.strategy.compute(work, StepMarks())
            built.gradients.exchange(version=0, loss_sum=computed.loss_sum, groups=computed.groups)
            built.optimizer.step()
            lost += float(computed.loss_sum)
        built.strategy.rows()  # nobody records what was taken down
        return lost / len(works)

    return epoch
