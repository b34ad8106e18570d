"""One schedule on one, two and four processes: the same losses and gradients, whoever computes which groups."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.engine.strategy import StepMarks
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.systems.snapshot_groups.schedulers import dygnex
from dtdg_lab.testing.training import Trained, train_in_memory
from dtdg_lab.training.build import build
from tests import factories
from tests.distributed.groups import in_groups
from tests.thinning import thinned

# 12 training snapshots, 9 groups of 4: two steps an epoch by sizes, the first with eight groups and the other with one
PARTS, GROUPS, STEPS = 4, 9, 4
SMALL = {**factories.SMALL, **factories.EXACT, "parts": PARTS}
SYSTEMS = ("psg", "blad", "dygnex-g", "dygnex-l")
CASES = [*((system, "tgcn") for system in SYSTEMS), ("blad", "evolvegcn-o"), ("dygnex-g", "evolvegcn-o")]
PROFILE, EPOCHS = 2, 4
FIRST = 4  # the first step of epoch 2, whose schedule is by times
CHANGE = {"scheduler": "longest_first", "groups_per_rank": 1}
STORIES: dict[str, dict[int, dict[str, Any]]] = {
    "untouched": {},
    "changed": {FIRST: {"set": CHANGE}},
    "no solver": {2: {"set": {"scheduler": "dygnex_ilp"}}},
}


@cache
def _graph() -> DynamicGraph:
    return load_for(RunConfig(**SMALL))


def _steps(system: str, model: str, group: Group) -> list[dict[str, Any]]:
    """The first steps of a run scheduled by sizes, which are the same everywhere."""
    config = RunConfig(system=system, model=model, group_times="size", ranks=group.size, **SMALL)
    built = build(config, _graph(), group)
    works = [*built.strategy.epoch(0), *built.strategy.epoch(1)][:STEPS]
    steps = []
    for work in works:
        built.gradients.zero()
        computed = built.strategy.compute(work, StepMarks())
        exchanged = built.gradients.exchange(version=0, loss_sum=computed.loss_sum, groups=computed.groups)
        loss_sum, groups = exchanged.sums()
        gradients = {name: p.grad.clone() for name, p in built.model.named_parameters() if p.grad is not None}
        built.optimizer.step()
        steps.append(
            {
                "loss": loss_sum / groups,
                "gradients": gradients,
                "computed": work.groups,
                "vertex_snapshots": computed.vertex_snapshots,
                "agreed": groups,
            }
        )
    assert built.strategy.scheduling is not None
    return [{**step, "assignment": built.strategy.scheduling.schedule.assignment} for step in steps]


def _train(group: Group, folder: Path, **how: Any) -> Trained:
    group.barrier()  # rank 0 may still be writing the checkpoint that another one reads
    changes = {"profile_epochs": PROFILE, "epochs": EPOCHS, **how.pop("settings", {})}
    config = RunConfig(system="dygnex-g", ranks=group.size, **SMALL, **changes)
    return train_in_memory(config, _graph(), folder / "last.pt", group=group, **how)


def _to_dict(done: Trained) -> dict[str, Any]:
    recorder = done.recorder
    return {
        "losses": done.losses,
        "parameters": done.parameters,
        "schedules": recorder.events("schedule"),
        "knobs": recorder.events("settings"),
        "refused": recorder.events("refused"),
        "groups": recorder.tables["groups"],
        "steps": recorder.tables["steps"],
    }


def _fails_on_rank_0(group: Group, folder: Path) -> str:
    """The scheduler raises where it is asked: on rank 0 alone."""

    def broken(*_: Any, **__: Any) -> Schedule:
        assert group.rank == 0, "only rank 0 schedules"
        raise ZeroDivisionError("by nothing")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dygnex, "schedule", broken)
        try:
            _train(group, folder)
        except PlanError as error:
            return str(error)
    return "began"


def _interrupted(group: Group, folder: Path) -> dict[str, Any]:
    """Stopped in the first epoch of the profiled schedule, and gone on with."""
    first = _train(group, folder, script={FIRST: {"stop": True}})
    second = _train(group, folder, first_step=FIRST + 1, resume=True)
    return {"before": _to_dict(first), "after": _to_dict(second)}


def everything(group: Group, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"steps": {case: _steps(*case, group) for case in CASES}}
    with pytest.MonkeyPatch.context() as patch:
        find = importlib.util.find_spec
        patch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "ortools" else find(name, *more))
        found |= {story: _to_dict(_train(group, folder, script=script)) for story, script in STORIES.items()}
    found["linear"] = _to_dict(_train(group, folder, settings={"group_times": "linear"}))
    found["interrupted"] = _interrupted(group, folder)
    found["fails"] = _fails_on_rank_0(group, folder)
    return found


@pytest.fixture(scope="module")
def solo() -> Iterator[dict[str, Any]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield {"steps": {case: _steps(*case, SoloGroup()) for case in CASES}}
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=thinned([1, 2, 4], [1]), ids=lambda ranks: f"{ranks} processes")
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of R gloo processes found."""
    _graph()
    folder = tmp_path_factory.mktemp("ranks")
    return in_groups(everything, request.param, folder)


@pytest.mark.parametrize(("system", "model"), CASES)
def test_one_schedule_gives_the_same_losses_and_gradients(
    solo: dict[str, Any], ranks: list[dict[str, Any]], system: str, model: str
) -> None:
    """float64, plain SGD: 1e-10 relative on every rank."""
    for number, wanted in enumerate(solo["steps"][system, model]):
        for found in ranks:
            step = found["steps"][system, model][number]
            assert step["assignment"] == wanted["assignment"]
            assert step["loss"] == pytest.approx(wanted["loss"], rel=1e-10)
            assert step["agreed"] == wanted["agreed"] == len(wanted["computed"])
            assert step["gradients"].keys() == wanted["gradients"].keys()
            for name, gradient in wanted["gradients"].items():
                scale = gradient.abs().max()
                assert scale > 0, name
                assert (step["gradients"][name] - gradient).abs().max() <= 1e-10 * scale, name


@pytest.mark.parametrize("system", SYSTEMS)
def test_ranks_compute_the_groups_of_their_parts_and_each_once(ranks: list[dict[str, Any]], system: str) -> None:
    share = PARTS // len(ranks)
    steps = [found["steps"][system, "tgcn"] for found in ranks]
    assignment = steps[0][0]["assignment"]
    assert max(len(part) for row in assignment for part in row) == (1 if system == "psg" else 2)
    for number, row in enumerate(assignment):
        for rank, own in enumerate(steps):
            parts = row[rank * share : (rank + 1) * share]
            assert own[number]["computed"] == tuple(group for part in parts for group in part)
            assert own[number]["vertex_snapshots"] == 24 * 4 * len(own[number]["computed"])
    once = [group for own in steps for step in own[: len(assignment)] for group in step["computed"]]
    assert sorted(once) == list(range(GROUPS))


def test_some_ranks_have_two_groups_some_one_and_some_none(ranks: list[dict[str, Any]]) -> None:
    """Else the division by the number of groups of a step would not be seen here."""
    counts = {len(step["computed"]) for found in ranks for steps in found["steps"].values() for step in steps}
    assert {1: {1, 4, 8}, 2: {0, 1, 2, 4}, 4: {0, 1, 2}}[len(ranks)] <= counts


def test_all_ranks_hold_the_same_schedule_after_a_profile(ranks: list[dict[str, Any]]) -> None:
    size = len(ranks)
    for story, source, epoch in (("untouched", "profile", PROFILE), ("linear", "linear", 2)):
        by_size, by_time = ranks[0][story]["schedules"]
        assert (by_size["data"]["source"], by_time["data"]["source"]) == ("size", source)
        assert (by_time["epoch"], by_time["data"]["ranks"], by_time["data"]["parts"]) == (epoch, size, PARTS)
        assert all(found[story]["schedules"] == [] for found in ranks[1:])
        for number in range(EPOCHS):
            data = (by_size if number < epoch else by_time)["data"]
            _assert_computed(ranks, story, number, data["assignment"])


def _assert_computed(ranks: list[dict[str, Any]], story: str, epoch: int, assignment: Any) -> None:
    share = PARTS // len(ranks)
    for rank, found in enumerate(ranks):
        rows = [row for row in found[story]["groups"] if row["epoch"] == epoch]
        first = min(row["step"] for row in found[story]["steps"] if row["epoch"] == epoch)
        wanted = [
            (first + number, group)
            for number, row in enumerate(assignment)
            for part in row[rank * share : (rank + 1) * share]
            for group in part
        ]
        assert [(row["step"], row["group"]) for row in rows] == wanted


def test_the_profile_is_what_the_ranks_have_measured_together(ranks: list[dict[str, Any]]) -> None:
    """With two cores, four ranks are timed by their processor seconds and two by the clock; the machine decides."""
    data = ranks[0]["untouched"]["schedules"][1]["data"]
    seconds = np.zeros((PROFILE, GROUPS))
    for found in ranks:
        for row in found["untouched"]["groups"]:
            if row["epoch"] < PROFILE:
                wall_s = (row["end_ns"] - row["start_ns"]) * 1e-9
                seconds[row["epoch"], row["group"]] += row["cpu_s"] if data["timed_by"] == "processor" else wall_s
    assert data["times_s"] == pytest.approx(np.median(seconds[1:], axis=0).tolist(), rel=1e-9)


@pytest.mark.parametrize("story", [*STORIES, "linear"])
def test_ranks_hold_the_same_bits(ranks: list[dict[str, Any]], story: str) -> None:
    for found in ranks[1:]:
        assert found[story]["losses"] == ranks[0][story]["losses"]
        for name, tensor in ranks[0][story]["parameters"].items():
            assert torch.equal(found[story]["parameters"][name], tensor), name


def test_a_change_is_scheduled_with_the_times_of_the_profile_on_every_rank(ranks: list[dict[str, Any]]) -> None:
    _, profiled, changed = (event["data"] for event in ranks[0]["changed"]["schedules"])
    assert changed["times_s"] == profiled["times_s"]
    assert (changed["scheduler"], changed["per_rank"], changed["source"]) == ("longest_first", 1, "profile")
    for found in ranks:
        (knob,) = found["changed"]["knobs"]
        assert knob["data"]["changes"] == CHANGE
    _assert_computed(ranks, "changed", EPOCHS - 1, changed["assignment"])


def test_a_missing_solver_is_refused_by_all_with_rank_0_s_reason(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert found["no solver"]["knobs"] == []
        assert len(found["no solver"]["losses"]) >= EPOCHS
    (refused,) = ranks[0]["no solver"]["refused"]
    assert "scheduler 'dygnex_ilp': " in refused["data"]["reason"]
    assert "OR-tools" in refused["data"]["reason"]
    assert [event["data"]["source"] for event in ranks[0]["no solver"]["schedules"]] == ["size", "profile"]


def test_a_scheduler_that_fails_ends_every_rank_with_the_same_words(ranks: list[dict[str, Any]]) -> None:
    assert {found["fails"] for found in ranks} == {"scheduler 'dygnex_greedy': ZeroDivisionError: by nothing"}


def test_a_resumed_run_goes_on_by_the_schedule_it_had(ranks: list[dict[str, Any]]) -> None:
    before, after = ranks[0]["interrupted"]["before"], ranks[0]["interrupted"]["after"]
    assert [event["data"]["source"] for event in before["schedules"]] == ["size", "profile"]
    (kept,) = after["schedules"]
    for name in ("assignment", "times_s", "source"):
        assert kept["data"][name] == before["schedules"][1]["data"][name]
    for found in ranks[1:]:
        assert found["interrupted"]["after"]["losses"] == after["losses"]
    both = [_joined(found["interrupted"]) for found in ranks]
    for epoch in (PROFILE, PROFILE + 1):
        _assert_computed([{"joined": described} for described in both], "joined", epoch, kept["data"]["assignment"])


def _joined(halves: dict[str, Any]) -> dict[str, Any]:
    return {table: halves["before"][table] + halves["after"][table] for table in ("groups", "steps")}
