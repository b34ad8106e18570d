"""Snapshot plans and blocks of time on one, two and four processes: losses, gradients and work are ``single``'s.

Twelve snapshots and 23 nodes: shares are uneven, and in fine blocks some ranks have no snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.systems.snapshot_blocks import redistribution
from dtdg_lab.training.build import build
from tests import factories
from tests.distributed.groups import TakenStep, assert_same_steps, in_groups, take_step
from tests.thinning import thinned, values_that_run

STEPS, NODES, TRAINED = 2, 23, 12
SMALL = {
    **factories.SMALL,
    **factories.EXACT,
    "generated_nodes": NODES,
    "hidden": 6,
    "learning_rate": 0.05,
    "layers": 2,
}
LINK = {"task": "link", "link_share": 0.5, "ranking_negatives": 5}
CLASSES = {"task": "classification", "dataset": "sbm", "communities": 2, "generated_edges": 30}
CUT = ("system", "blocks", "overlap", "delta_transfer", "row_ranks", "partitioner", "halo_reuse", "graph_storage")
MODELS = [model for model in catalogue.names("models") if model != "dcrnn"]


def _cases() -> list[dict[str, Any]]:
    """Every model with and without blocks, and what else matters; those of an even number of ranks come last."""
    esdg, hybrid, halo = ({"system": name} for name in ("esdg", "esdg-hybrid", "hypergraph-vertex"))
    esdg, hybrid = ({**of, "overlap": True} for of in (esdg, hybrid))
    cases: list[dict[str, Any]] = [{**esdg, "model": model, "blocks": blocks} for model in MODELS for blocks in (1, 5)]
    cases += [{**esdg, "model": model, "overlap": False} for model in ("tgcn", "gatlstm", "tmgcn")]
    streamed = {**esdg, "graph_storage": "streamed"}
    cases += [{**streamed, "model": model, "blocks": 12} for model in ("tgcn", "evolvegcn-h", "evolvegcn-o")]
    cases += [
        {**streamed, "model": "tgcn", "gc_layers": 2, "blocks": 3, "delta_transfer": False},
        {**esdg, "model": "cdgcn", "blocks": 2, "halo_reuse": True},
        {**streamed, "model": "wdgcn", "layers": 1, "blocks": 2},
        {**streamed, **LINK, "model": "cdgcn", "blocks": 2},
        {**esdg, **LINK, "model": "evolvegcn-h"},
        {**esdg, **LINK, "model": "gatlstm", "link_head": "dot", "overlap": False},
        {**esdg, **CLASSES, "blocks": 2},
        {**halo, "model": "tmgcn", "blocks": 3},
        {**halo, "model": "dcrnn", "blocks": 3, "partitioner": "hash"},
        {**halo, "model": "evolvegcn-h", "blocks": 2, "partitioner": "hash"},
        {**halo, **LINK, "blocks": 2, "partitioner": "hash"},
    ]
    cases += [{**hybrid, "model": model, "blocks": blocks} for model in MODELS for blocks in (1, 3)]
    cases += [{**hybrid, **LINK, "model": "cdgcn", "blocks": 2}, {**hybrid, **LINK, "model": "evolvegcn-h"}]
    # work on two threads must not exchange rows from both
    cases += [{**of, "model": "cdgcn", "blocks": 2, "threads": 2} for of in (esdg, hybrid)]
    return cases


CASES = _cases()
ids = [" ".join(f"{name}={value}" for name, value in case.items()) for case in CASES]


ALONE = [place for place, case in enumerate(CASES) if case["system"] != "esdg-hybrid"]
KEPT = (0, 3, 5, 9, 11, 13, 18, 22, 24, 25, 27, 30, 32, 34, 40, 53, 55)  # each model, system and option once
KEPT_ON_FOUR = (6, 42, 53)  # rows of ranks are split and exchanged on four alone
PLACED = [(2, place) for place in range(len(CASES))]
PLACED += [(4, place) for place in range(len(CASES)) if place in (*ALONE[::3], *KEPT_ON_FOUR) or place not in ALONE]
SHORT = [place for place, (ranks, case) in enumerate(PLACED) if case in (KEPT if ranks == 2 else KEPT_ON_FOUR)]
OnRanks = Callable[[int], list[dict[int, list[TakenStep]]]]


@cache
def _graph(dataset: str) -> DynamicGraph:
    case = next(case for case in CASES if case.get("dataset", "growing") == dataset)
    return load_for(RunConfig(**{**SMALL, **_data_of(case)}))


def _data_of(case: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in case.items() if name not in CUT}


def _steps(config: RunConfig, group: Group) -> list[TakenStep]:
    torch.set_num_threads(max(config.threads, 1))
    built = build(config, _graph(config.dataset), group)
    found = []
    for _ in range(STEPS):
        (work,) = built.strategy.epoch(0)
        found.append(take_step(built, group, work))
        assert found[-1].groups == 1
    return found


def _on_rank(group: Group, cases: list[int]) -> dict[int, list[TakenStep]]:
    redistribution.LEAST_ROWS = 1  # in this process, and so that these few rows travel in pieces
    return {case: _steps(RunConfig(**{**SMALL, **CASES[case]}, ranks=group.size), group) for case in cases}


@pytest.fixture(scope="module")
def on(request: pytest.FixtureRequest) -> OnRanks:
    """What each of some ranks found, by case."""
    placed = values_that_run(request, "ranks", "case")
    overlapped = [place for (model,) in values_that_run(request, "model") for place in _with_and_without_overlap(model)]

    @cache
    def found(ranks: int) -> list[dict[int, list[TakenStep]]]:
        cases = {case for of, case in placed if of == ranks} | set(overlapped if ranks == 2 else ())
        return in_groups(_on_rank, ranks, sorted(cases))

    return found


@cache
def _single(case: int) -> list[TakenStep]:
    return _steps(RunConfig(**{**SMALL, **_data_of(CASES[case])}, system="single"), SoloGroup())


@pytest.mark.parametrize("case", thinned(ALONE, 6))
def test_one_process_gives_what_single_gives(case: int) -> None:
    found = _steps(RunConfig(**{**SMALL, **CASES[case]}), SoloGroup())
    assert_same_steps(found, _single(case))
    assert sum(step.work for step in found) == STEPS * NODES * TRAINED
    assert not any(step.rows["links"] for step in found)


@pytest.mark.parametrize(
    ("ranks", "case"), thinned(PLACED, SHORT), ids=[f"{ids[case]} on {ranks}" for ranks, case in PLACED]
)
def test_several_processes_give_what_single_gives(on: OnRanks, ranks: int, case: int) -> None:
    found = [rank[case] for rank in on(ranks)]
    for rank in found:
        assert_same_steps(rank, _single(case))
    assert sum(step.work for rank in found for step in rank) == STEPS * NODES * TRAINED
    if CASES[case]["system"] == "esdg" and CASES[case].get("model") in ("evolvegcn-o", "graphsage"):
        assert not any(step.rows["links"] for rank in found for step in rank), "weights alone move no row"


def _with_and_without_overlap(model: str) -> tuple[int, ...]:
    ways = {"blocks": 1, "overlap": True}, {"overlap": False}
    return tuple(CASES.index({"system": "esdg", "model": model, **how}) for how in ways)


@pytest.mark.parametrize("model", thinned(["tgcn", "gatlstm", "tmgcn"]))
def test_overlap_changes_no_bit(on: OnRanks, model: str) -> None:
    for rank in on(2):
        with_overlap, without = (rank[place] for place in _with_and_without_overlap(model))
        for one, other in zip(with_overlap, without, strict=True):
            assert one.loss == other.loss and np.array_equal(one.gradient, other.gradient)
        legs = [{row[:3]: row[3] for row in steps[0].rows["exchanges"]} for steps in (with_overlap, without)]
        assert legs[0].keys() == legs[1].keys()
        assert all(count == 1 for count in legs[1].values())
        assert any(count > 1 for count in legs[0].values())


def test_dcrnn_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"dcrnn.*depends on neighbours.*snapshot"):
        RunConfig(system="esdg", model="dcrnn")
