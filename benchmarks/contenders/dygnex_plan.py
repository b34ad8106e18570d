"""Graphs and sizes of benchmarks/dygnex.py: what all of it measures, and what --quick does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from contenders import dygnex_paper as paper
from contenders.schedule_tables import CURVES

MODELS = ("tgcn", "wdgcn", "evolvegcn-o", "gatlstm")


@dataclass(frozen=True, slots=True)
class Workload:
    """A graph: its data set and options.

    Attributes:
        name: what rows call it.
        dataset: of the catalogue.
        options: of the data set.
        seeds: runs of part accuracy on it; 0 where they would take too long.
    """

    name: str
    dataset: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 0


WORKLOADS = (
    Workload("mathoverflow", "mathoverflow", {"cut": 100}),
    Workload("email-eu", "email-eu", seeds=3),
    Workload("cora-t", "cora-t", {"generated_snapshots": 101, "growth": 30.0}, seeds=1),
    # a static graph whose edges were deleted along a curve (nothing is renewed), with many edges a node: in the three
    # above all snapshots have the same nodes and few edges, so that groups take nearly the same time
    Workload(
        "grown", "growing",
        {"generated_nodes": 2_000, "generated_edges": 600_000, "generated_snapshots": 101, "growth": 30.0,
         "churn": 0.0},
        seeds=3,
    ),
)  # fmt: skip
QUICK = (
    Workload(
        "grown", "growing",
        {"generated_nodes": 500, "generated_edges": 50_000, "generated_snapshots": 65, "growth": 30.0, "churn": 0.0},
        seeds=1,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes:
        workloads: graphs; part profiling takes the last.
        models: parts profiling and accuracy take the first.
        ranks: of part epochs; part profiling takes the first.
        turns: epochs timed.
        profile_epochs: of part epochs.
        profiles: numbers of profiled epochs compared.
        profile_runs: of each of these.
        greedy_groups: K of Table 5.
        ilp_groups: K of Table 6.
        gaps: of Table 6.
        limit_s: seconds that the integer programme has.
        curves: of growth, for solving.
        snapshots: of the simulated graph.
        simulated: numbers of ranks.
        epochs: trained for accuracy.
    """

    workloads: tuple[Workload, ...]
    models: tuple[str, ...]
    ranks: tuple[int, ...]
    turns: int
    profile_epochs: int
    profiles: tuple[int, ...]
    profile_runs: int
    greedy_groups: tuple[int, ...]
    ilp_groups: tuple[int, ...]
    gaps: tuple[float, ...]
    limit_s: float
    curves: tuple[str, ...]
    snapshots: int
    simulated: tuple[int, ...]
    epochs: int


FULL_PLAN = Plan(
    WORKLOADS, MODELS, (2, 4), 5, 5, (1, 2, 3, 4, 5, 7), 3, tuple(paper.GREEDY_S), paper.ILP_GROUPS,
    tuple(paper.ILP_S), paper.ILP_LIMIT_S, CURVES, 10_000, (4, 8, 16, 32, 64, 128, 256, 512, 1024), 100,
)  # fmt: skip
QUICK_PLAN = Plan(
    QUICK, ("tgcn",), (2, 4), 3, 2, (1, 3), 1, (10, 100, 1000), (10, 30, 100), (0.02, 0.10), 1.0, ("exponential",),
    2_000, (4, 64, 512), 4,
)  # fmt: skip
