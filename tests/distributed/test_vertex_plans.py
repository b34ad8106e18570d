"""Node plans of four parts on one, two and four processes: losses, gradients, work and bytes.

Exact layouts are compared with ``single``, which knows no parts; what cached_vertex approximates, with itself on one
process. Bytes that went over the links are compared with those that the plan predicts.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.training.build import build
from tests import factories
from tests.distributed.groups import assert_same_steps, in_groups, take_step
from tests.thinning import thinned, values_that_run

PARTS, STEPS, NODES, TRAINED = 4, 3, 23, 12
SMALL = {**factories.SMALL, **factories.EXACT, "generated_nodes": NODES, "hidden": 6, "learning_rate": 0.05}
LINK = {"task": "link", "link_share": 0.5, "ranking_negatives": 5}
CLASSES = {"task": "classification", "dataset": "sbm", "communities": 2, "generated_edges": 30}
APPROXIMATE = ("evolvegcn-h", "dcrnn")  # on cached_vertex


def _cases() -> list[dict[str, Any]]:
    """Every model on both layouts with two layers, one of each memory with one, and what else matters."""
    cases: list[dict[str, Any]] = [
        {"system": system, "model": model, "layers": layers}
        for system in ("adgnn-t", "pygt-dist")
        for model in catalogue.names("models")
        for layers in (1, 2)
        if layers == 2 or model in ("tgcn", "evolvegcn-o", "evolvegcn-h", "dcrnn", "gatlstm")
    ]
    halo, cached = {"system": "adgnn-t"}, {"system": "pygt-dist"}
    cases += [{**halo, "layers": 2, "partitioner": name} for name in ("hash", "round_robin", "load_aware")]
    cases += [
        {**halo, "model": "tgcn", "gc_layers": 2, "layers": 2},
        {**halo, "model": "wdgcn", "norm": "in_out", "self_loops": False, "layers": 2},
        {**halo, "layers": 2, "halo_reuse": True},
        {**halo, "model": "mpnn-lstm", "halo_reuse": True},
        {**cached, "layers": 2, "partitioner": "metis"},
        {**halo, **LINK, "layers": 2},
        {**halo, **LINK, "link_head": "dot", "model": "evolvegcn-o"},
        {**halo, **LINK, "model": "dcrnn"},
        {**halo, **CLASSES},
        {**cached, **CLASSES},
        {**halo, "layers": 2, "blocks": 4},
        {**halo, "model": "dcrnn", "blocks": 4},
        {**halo, "model": "evolvegcn-o", "blocks": 4},
        {**halo, "layers": 2, "blocks": 4, "halo_reuse": True},
    ]
    return cases


CASES = _cases()
ids = [" ".join(str(value) for value in case.values()) for case in CASES]
KEPT = (7, 9, 11, 12, 21, 27, 29, 32, 33, 34, 35, 39, 41, 44, 46)  # most models on one of both systems, the rest once
each_case = pytest.mark.parametrize("case", thinned(range(len(CASES)), KEPT), ids=ids)


@cache
def _graph(dataset: str) -> DynamicGraph:
    case = next(case for case in CASES if case.get("dataset", "growing") == dataset)
    return load_for(RunConfig(**{**SMALL, **case}))


def _steps(config: RunConfig, group: Group) -> dict[str, Any]:
    graph = _graph(config.dataset)
    built = build(config, graph, group)
    steps = []
    for _ in range(STEPS):
        (work,) = built.strategy.epoch(0)
        steps.append(take_step(built, group, work))
        assert steps[-1].groups == 1
    found: dict[str, Any] = {
        "steps": steps,
        "work": [step.work for step in steps],
        "links": [step.rows.get("links", []) for step in steps],
        "bytes": [step.sent for step in steps],
    }
    if built.partition is not None and group.rank == 0:
        found["told"] = {event.kind: event.write() for event in built.strategy.plan_events()}["partition"]
    return found


def everything(group: Group, cases: list[int]) -> dict[int, dict[str, Any]]:
    """Cases on one rank."""
    return {
        case: _steps(RunConfig(**{**SMALL, "parts": PARTS, **CASES[case]}, ranks=group.size), group) for case in cases
    }


@cache
def _alone(case: int) -> dict[str, Any]:
    return everything(SoloGroup(), [case])[case]


@pytest.fixture(scope="module", params=thinned([2, 4]), ids=lambda ranks: f"{ranks} processes")
def ranks(request: pytest.FixtureRequest) -> list[dict[int, dict[str, Any]]]:
    return in_groups(everything, request.param, [case for (case,) in values_that_run(request, "case")])


@cache
def _single(case: int) -> dict[str, Any]:
    layout_options = ("system", "partitioner", "halo_reuse", "blocks")
    plain = {name: value for name, value in CASES[case].items() if name not in layout_options}
    return _steps(RunConfig(**{**SMALL, **plain}, system="single"), SoloGroup())


def _is_exact(case: dict[str, Any]) -> bool:
    return not (case["system"] == "pygt-dist" and case.get("model") in APPROXIMATE)


@each_case
def test_parts_on_one_process(case: int) -> None:
    """Exact layouts give what ``single`` gives; approximations something near it, and not the same."""
    found, wanted = _alone(case), _single(case)
    if _is_exact(CASES[case]):
        assert_same_steps(found["steps"], wanted["steps"])
    else:
        assert found["steps"][0].loss == pytest.approx(wanted["steps"][0].loss, rel=0.2)
    assert found["work"] == [NODES * TRAINED] * STEPS
    assert found["links"] == [[]] * STEPS
    assert found["bytes"] == [0] * STEPS


@each_case
def test_the_same_plan_on_several_processes(ranks: list[dict[int, dict[str, Any]]], case: int) -> None:
    for found in ranks:
        assert_same_steps(found[case]["steps"], _alone(case)["steps"])


@each_case
def test_every_vertex_snapshot_is_trained_once(ranks: list[dict[int, dict[str, Any]]], case: int) -> None:
    counted = np.sum([found[case]["work"] for found in ranks], axis=0)
    assert counted.tolist() == [NODES * TRAINED] * STEPS
    assert all(min(found[case]["work"]) > 0 for found in ranks)


@each_case
def test_bytes_on_the_links_are_those_predicted(ranks: list[dict[int, dict[str, Any]]], case: int) -> None:
    described = ranks[0][case]["told"]
    for step in range(STEPS):
        for way in ("forward", "rerun", "backward"):
            predicted = described["predicted"].get(way, np.zeros_like(described["predicted"]["forward"]).tolist())
            counted = np.zeros_like(predicted)
            for sender, found in enumerate(ranks):
                for layer, link_way, to, rows, moved in found[case]["links"][step]:
                    assert rows > 0
                    counted[layer, sender, to] += moved if link_way == way else 0
            if step or not CASES[case].get("halo_reuse"):  # the first step fetches what is kept from then on
                assert counted.tolist() == predicted
            else:
                assert (counted >= predicted).all()
    assert (np.sum(described["predicted"]["forward"]) > 0) == (CASES[case]["system"] == "adgnn-t") or CASES[case].get(
        "halo_reuse"
    )


@each_case
def test_cached_parts_send_nothing_before_gradients(ranks: list[dict[int, dict[str, Any]]], case: int) -> None:
    for found in ranks:
        rows = [sum(link[-1] for link in step) for step in found[case]["links"]]
        if CASES[case]["system"] == "pygt-dist":
            assert found[case]["bytes"] == [0] * STEPS
        else:
            assert all(moved >= own for moved, own in zip(found[case]["bytes"], rows, strict=True))
            assert sum(rows) > 0
