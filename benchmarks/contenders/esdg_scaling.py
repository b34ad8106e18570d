"""Steps that the scaling model is fitted to and judged by, as parts strong and weak of benchmarks/esdg.py measure them.

Sizes are those of the graph of weak scaling on one rank, times a factor. Rates are fitted to half and twice as large
graphs and to a denser one, on one rank and on two, and to the graph itself on four; held out are the graph itself on
one and two ranks, and on four twice (strong) and four times (weak) the graph. Compute and transfer are by processors
throughout, so that one and four ranks can be compared; exchanges by the wall clock, where ranks have cores of their
own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from contenders.esdg_plan import DENSITY, HIDDEN, LAYERS, Plan, Scaling, Workload, config, generated
from contenders.esdg_steps import Contender, in_turn, medians
from contenders.transfers import SMOOTHING
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.datasets.names import load_for
from dtdg_lab.forecast.step_scaling import StepScaling, continued
from dtdg_lab.graphs.delta import SequenceChanges, scaled, sequence_changes
from dtdg_lab.graphs.split import split
from dtdg_lab.systems.snapshot_blocks.volume_study import LINK_OUTPUTS
from dtdg_lab.systems.snapshot_blocks.workload import StepSettings
from dtdg_lab.systems.step_time import MeasuredStep
from dtdg_lab.testing.processes import run_ranks

TIMEOUT_S = 3600.0
BLOCKS = 2  # so that graphs are brought, and 256 snapshots serve 128 ranks


@dataclass(frozen=True, slots=True)
class Case:
    """A graph and ranks.

    Attributes:
        ranks: R.
        times: the size of the graph.
        fitted: whether rates are fitted to it.
        denser: its edges a node over the others'.
    """

    ranks: int
    times: float
    fitted: bool
    denser: int = 1


CASES = (
    *(Case(ranks, times, fitted=True) for ranks in (1, 2) for times in (0.5, 2)),
    *(Case(ranks, 1, fitted=True, denser=2) for ranks in (1, 2)),
    *(Case(ranks, 1, fitted=False) for ranks in (1, 2)),
    *(Case(4, times, fitted=times == 1) for times in (1, 2, 4)),
)


def workload(scaling: Scaling, case: Case, model: str) -> Workload:
    """The graph of a case, with as many base intervals as leave T snapshots to train on."""
    nodes = round(scaling.nodes * case.times)
    intervals = scaling.snapshots + 1 + SMOOTHING[model].get("edge_life", 1)  # the last is tested; one holds a label
    return generated(f"{nodes}", scaling.dataset, nodes, DENSITY * case.denser * nodes, intervals)


def changes_of(scaling: Scaling, case: Case, model: str) -> tuple[SequenceChanges, StepSettings]:
    """How the snapshots of a case change, and what a step computes."""
    chosen = config(workload(scaling, case, model), model, ranks=1, blocks=BLOCKS, graph_storage="streamed")
    graph = load_for(chosen)
    train = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[chosen.protocol]).train
    settings = StepSettings(model, graph.num_features, HIDDEN, LAYERS, pairs=LINK_OUTPUTS, blocks=BLOCKS)
    return sequence_changes(graph.snapshots[train.start : train.stop]), settings


def measured(
    scaling: Scaling, models: Sequence[str], ranks: Sequence[int], turns: int, cores: tuple[int, ...]
) -> dict[str, list[tuple[Case, MeasuredStep]]]:
    """Steps of all cases, by model; all of one number of ranks take turns in the same processes."""
    found: dict[str, list[tuple[Case, MeasuredStep]]] = {model: [] for model in models}
    for count in ranks:
        cases = [(model, case) for model in models for case in CASES if case.ranks == count]
        contenders = tuple(
            Contender(
                model,
                config(workload(scaling, case, model), model, ranks=count, blocks=BLOCKS, graph_storage="streamed"),
            )
            for model, case in cases
        )
        if not contenders:
            continue
        by_rank = run_ranks(in_turn, count, contenders, turns, cores, timeout_s=TIMEOUT_S)
        for place, (model, case) in enumerate(cases):
            own = [rank[place] for rank in by_rank]
            found[model].append((case, step_of(scaling, case, model, own, alone=count <= len(cores))))
    return found


def step_of(
    scaling: Scaling, case: Case, model: str, by_rank: Sequence[Sequence[dict[str, Any]]], *, alone: bool
) -> MeasuredStep:
    """The median step of a case.

    Args:
        scaling: sizes.
        case: which.
        model: which.
        by_rank: the timed steps of each rank.
        alone: whether every rank had a core of its own.
    """
    changes, settings = changes_of(scaling, case, model)
    compute, transfer, exchanged = np.array([medians(own, "cpu") for own in by_rank]).T
    whole = max(median(step["seconds"] for step in own) for own in by_rank) if alone else None
    name = f"{changes.nodes} nodes{', dense' if case.denser > 1 else ''}"
    exchanged_s = float(exchanged.max()) if case.ranks > 1 else 0.0  # alone nothing moves
    return MeasuredStep(
        name, settings.work(changes, case.ranks), compute, transfer, exchanged_s if alone else None, whole
    )


def study(
    plan: Plan, scaling: Scaling, model: str, steps: Sequence[tuple[Case, MeasuredStep]], *, weak: bool,
    nodes: int | None = None,
) -> StepScaling:  # fmt: skip
    """Continue what was measured to many ranks.

    Args:
        plan: says which.
        scaling: sizes.
        model: which.
        steps: measured.
        weak: whether the graph grows with the ranks.
        nodes: nodes of the graph predicted for, on one rank; those measured where None.
    """
    changes, settings = changes_of(scaling, Case(1, 1 if weak else 2, fitted=False), model)
    changes = changes if nodes is None else scaled(changes, nodes / changes.nodes)
    kind = "Weak" if weak else "Strong"
    described = f"{kind} scaling of {model}: {changes.nodes:,} nodes on one rank, {len(changes.edges)} snapshots"
    return continued(
        [step for case, step in steps if case.fitted], [step for case, step in steps if not case.fitted], settings,
        changes, ranks=plan.predicted, weak=weak, described=described,
    )  # fmt: skip
