"""Rows that redistributions and halos send on two and four processes, against those that were told before.

Snapshots, nodes and blocks that do not share evenly are in every case: 11 snapshots of 23 nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.config.model_facts import PASSES as WAYS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.training.build import RunComponents, build
from dtdg_lab.training.partition import blocks_event
from dtdg_lab.training.plan_reports import plan_events
from tests.distributed.groups import in_groups, take_step
from tests.thinning import thinned, values_that_run

NODES, TRAINED = 23, 11
SMALL = {
    "dataset": "growing",
    "generated_nodes": NODES,
    "generated_edges": 60,
    "generated_snapshots": 37,
    "hidden": 6,
    "layers": 2,
    "learning_rate": 0.05,
    "device": "cpu",
    "dtype": "float64",
    "optimizer": "sgd",
}
LINK = {"task": "link", "link_share": 0.5, "ranking_negatives": 5}
ESDG, HYBRID, HYPERGRAPH = {"system": "esdg"}, {"system": "esdg-hybrid"}, {"system": "hypergraph-vertex"}
CASES: list[dict[str, Any]] = [
    *({**ESDG, "model": model, "blocks": 3} for model in catalogue.names("models") if model != "dcrnn"),
    *({**ESDG, "model": model, "blocks": 1} for model in ("cdgcn", "mpnn-lstm", "evolvegcn-h")),
    {**ESDG, "model": "tgcn", "gc_layers": 2, "blocks": 2},
    {**ESDG, "model": "cdgcn", "blocks": 2, "overlap": False},
    {**ESDG, "model": "cdgcn", "blocks": 5},  # four ranks share two or three snapshots of a block
    {**ESDG, "model": "cdgcn", "blocks": 3, "layers": 1},
    {**ESDG, "model": "cdgcn", "blocks": 3, "halo_reuse": True},
    {**ESDG, "model": "gatlstm", "blocks": 3, "halo_reuse": True},
    {**ESDG, **LINK, "model": "cdgcn", "blocks": 1},
    {**ESDG, **LINK, "model": "tmgcn", "blocks": 3},
    {**ESDG, **LINK, "link_head": "dot", "model": "evolvegcn-o", "blocks": 2},
    *({**HYBRID, "model": model, "blocks": 3} for model in ("cdgcn", "gatlstm", "mpnn-lstm")),
    *({**HYBRID, "model": model, "blocks": 2} for model in ("evolvegcn-o", "evolvegcn-h", "graphsage")),
    {**HYBRID, "model": "tmgcn", "blocks": 1},
    {**HYBRID, **LINK, "model": "cdgcn", "blocks": 2},
    {**HYBRID, "model": "cdgcn", "blocks": 2, "halo_reuse": True},
    *({**HYPERGRAPH, "model": model, "blocks": 3} for model in ("cdgcn", "mpnn-lstm", "evolvegcn-o", "evolvegcn-h")),
    {**HYPERGRAPH, "model": "tmgcn", "blocks": 1},
    {**HYPERGRAPH, "model": "dcrnn", "blocks": 3},
    {**HYPERGRAPH, **LINK, "model": "cdgcn", "blocks": 2},
    {**HYPERGRAPH, "model": "cdgcn", "blocks": 2, "halo_reuse": True},
]
ids = [" ".join(str(value) for value in case.values()) for case in CASES]
LEGS = ("to_vertices", "to_snapshots", "summaries")  # a hybrid has its halo beside them
PLACED = [(ranks, case) for ranks in (2, 4) for case in range(len(CASES))]
KEPT = {
    2: (2, 5, 6, 7, 12, 13, 16, 17, 19, 28, 31, 35, 37),
    4: (14, 23, 29),
}  # columns of a hybrid exchange on four alone
SHORT = [place for place, (ranks, case) in enumerate(PLACED) if case in KEPT[ranks]]
each_case = pytest.mark.parametrize(
    ("ranks", "case"), thinned(PLACED, SHORT), ids=[f"{ids[case]} on {ranks}" for ranks, case in PLACED]
)
OnRanks = Callable[[int], list[dict[int, dict[str, Any]]]]


def _config(case: dict[str, Any], ranks: int) -> RunConfig:
    return (
        RunConfig(**{**SMALL, **case}, parts=4, ranks=ranks)
        if "hypergraph" in case["system"]
        else RunConfig(**{**SMALL, **case}, ranks=ranks)
    )


def _steps_of(config: RunConfig) -> int:
    return 2 if config["halo_reuse"] else 1  # the first sends what is kept from then on


@cache
def _graph() -> DynamicGraph:
    return load_for(RunConfig(**SMALL))


def _steps(config: RunConfig, group: Group) -> dict[str, Any]:
    graph = _graph()
    built = build(config, graph, group)
    steps = [take_step(built, group, *built.strategy.epoch(0)) for _ in range(_steps_of(config))]
    found: dict[str, Any] = {table: [step.rows.get(table, []) for step in steps] for table in ("links", "exchanges")}
    found["bytes"] = [step.sent for step in steps]
    if group.rank == 0:
        found["told"] = _to_dict(built, graph)
        found["events"] = dict(plan_events(built, group))
    return found


def _to_dict(built: RunComponents, graph: DynamicGraph) -> dict[str, Any]:
    """Bytes of one step by way, and legs, as told before."""
    assert built.strategy.plan is not None
    return blocks_event(built.config, graph, built.strategy.plan, built.task, partition=built.partition).write()


def _on_rank(group: Group, cases: list[int]) -> dict[int, dict[str, Any]]:
    return {case: _steps(_config(CASES[case], group.size), group) for case in cases}


@pytest.fixture(scope="module")
def on(request: pytest.FixtureRequest) -> OnRanks:
    """What each of some ranks found, by case."""
    placed = values_that_run(request, "ranks", "case")
    return cache(lambda ranks: in_groups(_on_rank, ranks, [case for of, case in placed if of == ranks]))


def _counted(by_rank: Any, case: int, step: int, described: dict[str, Any]) -> dict[str, Any]:
    """Bytes that ranks noted in a step, in the form of what is told."""
    counted = {way: np.zeros_like(sent) for way, sent in described.items()}
    for sender, found in enumerate(by_rank):
        for layer, way, to, rows, moved in found[case]["links"][step]:
            assert rows > 0 and to != sender
            counted[way][layer, sender, to] += moved
    return counted


@each_case
def test_bytes_on_the_links_are_those_told(on: OnRanks, ranks: int, case: int) -> None:
    by_rank = on(ranks)
    described = {way: np.array(sent) for way, sent in by_rank[0][case]["told"]["predicted"].items()}
    assert tuple(described) == WAYS
    steps = len(by_rank[0][case]["links"])
    for step in range(steps):
        counted = _counted(by_rank, case, step, described)
        for way in WAYS:
            if step == steps - 1:
                assert counted[way].tolist() == described[way].tolist(), (step, way)
            else:
                assert (counted[way] >= described[way]).all()
                kept = CASES[case]["model"] != "gatlstm"  # which learns what it pulls, in the first layer too
                assert (counted["forward"] > described["forward"]).any() == kept


@each_case
def test_what_is_sent_and_what_is_not(on: OnRanks, ranks: int, case: int) -> None:
    settings = CASES[case]
    described = {way: np.array(sent) for way, sent in on(ranks)[0][case]["told"]["predicted"].items()}
    quiet = settings["model"] in ("evolvegcn-o", "graphsage")
    assert described["forward"].any() != (quiet and settings["system"] == "esdg")
    assert described["rerun"].any() == (settings["blocks"] > 1 and not quiet)
    for found in on(ranks):  # rows are counted in the group's bytes, with what goes in front of them
        for moved, links in zip(found[case]["bytes"], found[case]["links"], strict=True):
            assert moved >= sum(link[-1] for link in links)


@each_case
def test_legs_are_those_told(on: OnRanks, ranks: int, case: int) -> None:
    described = on(ranks)[0][case]["told"]["collectives"]
    if CASES[case]["system"] == "hypergraph-vertex":
        assert not described
        return
    alone = CASES[case]["system"] == "esdg-hybrid" and ranks == 2  # a column of one rank exchanges nothing
    wanted = {(layer, way, leg) for layer, way, leg, _ in described if not alone}
    for found in on(ranks):
        assert {(layer, way, leg) for layer, way, leg, *_ in found[case]["exchanges"][-1] if leg in LEGS} == wanted


@each_case
def test_events_tell_the_blocks(on: OnRanks, ranks: int, case: int) -> None:
    events, settings = on(ranks)[0][case]["events"], CASES[case]
    if settings["system"] == "hypergraph-vertex":
        assert "partition" in events and ("blocks" in events) == (settings["blocks"] > 1)
        assert not events.get("blocks", {"own": ()})["own"]
        return
    described = events["blocks"]
    assert (described["layout"], described["ranks"], described["blocks"]) == (
        "snapshot",
        ranks,
        settings["blocks"],
    )
    assert described["bounds"][-1] - described["bounds"][0] == TRAINED
    assert described["row_ranks"] == (2 if settings["system"] == "esdg-hybrid" else 1)


def test_one_process_sends_nothing() -> None:
    for case in (CASES[3], CASES[-1]):
        found = _steps(_config(case, 1), SoloGroup())
        assert not any(found["links"]) and not any(found["bytes"])
        assert not np.any(found["told"]["predicted"]["forward"])
