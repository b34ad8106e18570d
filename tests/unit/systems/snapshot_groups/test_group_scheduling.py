"""Schedules of snapshot groups in a run: made by sizes, made again from times, kept, changed, refused; one process."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.plans import Schedule, SnapshotGroups
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import SoloGroup, hash_of_host
from dtdg_lab.engine.backprop import reference
from dtdg_lab.engine.backprop.reference import GroupClock
from dtdg_lab.engine.segment import SequenceSegment
from dtdg_lab.engine.strategy import Step, StepMarks
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.systems.snapshot_groups import group_scheduling
from dtdg_lab.systems.snapshot_groups.group_scheduling import GroupScheduling, shares_cores
from dtdg_lab.systems.snapshot_groups.schedulers import dygnex, heuristics, longest_first
from dtdg_lab.systems.snapshot_groups.schedulers.base import lower_bound_s
from dtdg_lab.systems.snapshot_groups.strategy import snapshot_groups
from dtdg_lab.testing.training import Trained, train_in_memory
from dtdg_lab.training.build import RunComponents, build
from dtdg_lab.training.memory import peak_bytes
from tests import factories
from tests.thinning import thinned

pytestmark = pytest.mark.usefixtures("one_thread")
# 12 training snapshots: groups of 4 start at 9 of them
SMALL = {
    **factories.SMALL,
}
NODES, GROUPS, WINDOW, TRAIN = 24, 9, 4, 12
PROFILE, EPOCHS = 2, 4
WINDOWS = {name for name in catalogue.names("systems") if "batching" in catalogue.system(name).parts}
BY_GROUPS = ("psg", "blad", "dygnex-g", "dygnex-l")
ONE_OF_EACH_MEMORY = ("tgcn", "evolvegcn-o", "evolvegcn-h", "dcrnn", "graphsage")


def config_of(**changes: Any) -> RunConfig:
    return RunConfig(
        **{"system": "dygnex-g", "parts": 2, "epochs": EPOCHS, "profile_epochs": PROFILE, **SMALL, **changes}
    )


@cache
def graph_of(snapshots: int = 40) -> DynamicGraph:
    return load_for(config_of(generated_snapshots=snapshots))


def train(path: Path, config: RunConfig, **how: Any) -> Trained:
    return train_in_memory(config, graph_of(config["generated_snapshots"]), path / "last.pt", **how)


def seconds_of(group: int) -> float:
    """Pretended seconds of a group, unlike its size."""
    return 1e-3 * (1 + 5 * group % 7)


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every group takes the same time whenever it is computed, and exchanges none: two runs have one profile."""
    drain, observe = GroupClock.drain, GroupScheduling.observe

    def drained(clock: GroupClock) -> list[tuple[int, int, int, float]]:
        rows = drain(clock)()
        return [
            (group, start, start + round(seconds_of(group) * 1e9), seconds_of(group)) for group, start, _, _ in rows
        ]

    monkeypatch.setattr(GroupClock, "drain", drained)
    monkeypatch.setattr(GroupScheduling, "observe", lambda self, rows, exchange_s=0.0: observe(self, rows))


def described(done: Trained) -> list[dict[str, Any]]:
    return [event["data"] for event in done.recorder.events("schedule")]


def seconds_by_epoch(done: Trained, column: str = "wall") -> np.ndarray:
    """(epochs, K) seconds of each group from table ``groups``."""
    rows = done.recorder.tables["groups"]
    actual = np.zeros((1 + max(row["epoch"] for row in rows), 1 + max(row["group"] for row in rows)))
    for row in rows:
        wall_s = (row["end_ns"] - row["start_ns"]) * 1e-9
        actual[row["epoch"], row["group"]] += wall_s if column == "wall" else row[column]
    return actual


def computed_groups(done: Trained, epoch: int) -> list[list[int]]:
    """The groups of each step of an epoch, sorted, as table ``groups`` has them."""
    steps: dict[int, list[int]] = {}
    for row in done.recorder.tables["groups"]:
        if row["epoch"] == epoch:
            steps.setdefault(row["step"], []).append(row["group"])
    return [sorted(steps[step]) for step in sorted(steps)]


def wanted_groups(assignment: Sequence[Sequence[Sequence[int]]]) -> list[list[int]]:
    return [sorted(group for part in row for group in part) for row in assignment]


# a profile


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(tmp_path_factory.mktemp("profiled"), config_of(epochs=6, profile_epochs=4))


def test_the_schedule_changes_when_the_profile_is_complete_and_never_again(profiled: Trained) -> None:
    by_size, by_profile = profiled.recorder.events("schedule")
    assert (by_size["step"], by_size["data"]["source"]) == (0, "size")
    assert (by_profile["epoch"], by_profile["data"]["source"]) == (4, "profile")
    assert by_profile["step"] == 4 * by_size["data"]["iterations"]
    for epoch in range(6):
        now = (by_size if epoch < 4 else by_profile)["data"]
        assert computed_groups(profiled, epoch) == wanted_groups(now["assignment"])


def test_times_are_the_medians_of_the_table_without_the_first_epoch(profiled: Trained) -> None:
    seconds = seconds_by_epoch(profiled)
    assert seconds.shape == (6, GROUPS)
    assert described(profiled)[1]["times_s"] == pytest.approx(np.median(seconds[1:4], axis=0).tolist(), rel=1e-9)
    assert described(profiled)[0]["times_s"] == pytest.approx(_sizes().tolist())


def _sizes() -> np.ndarray:
    edges = np.asarray(graph_of().num_edges)
    return np.array([edges[start : start + WINDOW].sum() + WINDOW * NODES for start in range(GROUPS)], float)


def test_rows_of_groups_lie_in_their_step_one_after_another(profiled: Trained) -> None:
    steps = {row["step"]: row for row in profiled.recorder.tables["steps"]}
    ended_ns = 0
    for row in profiled.recorder.tables["groups"]:
        step = steps[row["step"]]
        assert row["epoch"] == step["epoch"]
        assert max(ended_ns, step["time_ns"] - step["time_s"] * 1e9 - 1e6) <= row["start_ns"] < row["end_ns"]
        assert row["end_ns"] <= step["time_ns"]
        assert row["cpu_s"] > 0
        ended_ns = row["end_ns"]


def test_the_event_tells_all_that_the_views_draw(profiled: Trained) -> None:
    for data in described(profiled):
        times = np.array(data["times_s"])
        schedule = Schedule(data["assignment"], GROUPS)
        assert (data["scheduler"], data["ranks"], data["parts"], data["per_rank"]) == ("dygnex_greedy", 1, 2, 2)
        assert data["iterations"] == len(data["assignment"])
        assert data["makespan_s"] == pytest.approx(schedule.makespan_s(times))
        assert data["bound_s"] == pytest.approx(lower_bound_s(times, 2, per_rank=2))
        assert data["gap"] == pytest.approx(data["makespan_s"] / data["bound_s"] - 1, abs=1e-6)
        in_turn = sum(times[at : at + 2].max() for at in range(0, GROUPS, 2))
        assert data["psg_makespan_s"] == pytest.approx(in_turn)
        assert 0 < data["solve_s"] < 10
        assert data["timed_by"] == "wall"
    by_size, by_profile = (data["fit"] for data in described(profiled))
    assert by_size is None
    assert by_profile["groups"] == GROUPS
    assert 0 <= by_profile["mean_error"] <= by_profile["max_error"]


def test_one_profiled_epoch_is_kept(tmp_path: Path) -> None:
    done = train(tmp_path, config_of(epochs=2, profile_epochs=1))
    assert [(event["epoch"], event["data"]["source"]) for event in done.recorder.events("schedule")] == [
        (0, "size"),
        (1, "profile"),
    ]
    assert described(done)[1]["times_s"] == pytest.approx(seconds_by_epoch(done)[0].tolist(), rel=1e-9)


def test_ranks_that_share_cores_are_timed_by_their_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_scheduling, "shares_cores", lambda *_: True)
    done = train(tmp_path, config_of())
    assert [data["timed_by"] for data in described(done)] == ["processor"] * 2
    medians = np.median(seconds_by_epoch(done, "cpu_s")[1:PROFILE], axis=0)
    assert described(done)[1]["times_s"] == pytest.approx(medians.tolist(), rel=1e-9)


def test_cores_are_shared_where_threads_are_more_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = {0: {0, 1, 5, 7}, 1: {0, 1, 5, 7}, 2: {8}}
    here = hash_of_host()

    def received(threads: int, *ranks: int) -> bool:
        described = [f"{here} {sum(1 << core for core in cores[rank]):x} {threads}" for rank in ranks]
        monkeypatch.setattr(group_scheduling, "gather_texts", lambda *_, **__: [*described, f"{here + 1} ff 64"])
        monkeypatch.setattr(group_scheduling.os, "sched_getaffinity", lambda _: cores[ranks[0]])
        return shares_cores(SoloGroup(), "cpu")

    assert [received(threads, 0, 1, 2) for threads in (1, 2, 3)] == [False, False, True]
    assert [received(threads, 2, 0, 1) for threads in (1, 2)] == [False, True], "pinned apart from the others"
    assert not shares_cores(SoloGroup(), "cuda:0")


# what a profile is, without a trainer


class _Counting(SoloGroup):
    """Counts exchanges."""

    def __init__(self) -> None:
        super().__init__()
        self.reduced = 0

    def all_reduce(self, flat: Tensor) -> None:
        self.reduced += 1


def _scheduling(group: SoloGroup | None = None, **changes: Any) -> GroupScheduling:
    config = config_of(**changes)
    groups = snapshot_groups(range(TRAIN), window=WINDOW, stride=1)
    return GroupScheduling(config, graph_of(), groups, group or SoloGroup())


def _epoch_of(seconds: Mapping[int, float]) -> list[tuple[int, int, int, float]]:
    return [(group, 10**18, 10**18 + round(took_s * 1e9), 0.5) for group, took_s in seconds.items()]


def test_an_epoch_in_which_a_group_was_not_timed_is_left_out() -> None:
    group = _Counting()
    scheduling = _scheduling(group, profile_epochs=3)
    whole = {number: seconds_of(number) for number in range(GROUPS)}
    part = {number: 50.0 for number in range(1, GROUPS)}
    ended = []
    for seconds in (part, {n: 9.0 for n in whole}, part, whole, part, whole, whole):
        scheduling.observe(_epoch_of(seconds))
        ended.append(scheduling.end_epoch())
    assert ended == [False] * 5 + [True, False]
    assert scheduling.event().write()["times_s"] == pytest.approx(list(whole.values()), rel=1e-6)
    assert group.reduced == 6  # nothing is exchanged once times are known


def test_medians_are_of_each_group_by_itself() -> None:
    scheduling = _scheduling(profile_epochs=4)
    epochs = [[8.0] * GROUPS, [1.0, 2.0] + [1.0] * 7, [3.0, 1.0] + [2.0] * 7, [2.0, 9.0] + [9.0] * 7]
    assert [_ended(scheduling, dict(enumerate(epoch))) for epoch in epochs] == [False, False, False, True]
    assert scheduling.event().write()["times_s"] == pytest.approx([2.0] * GROUPS)


def _ended(scheduling: GroupScheduling, seconds: dict[int, float]) -> bool:
    scheduling.observe(_epoch_of(seconds))
    return scheduling.end_epoch()


@pytest.mark.parametrize("shared", [False, True])
def test_what_an_exchange_takes_is_weighed_where_ranks_have_their_own_cores(
    monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """Of equal groups the integer programme makes as few iterations as it can where exchanges are dear."""
    monkeypatch.setattr(group_scheduling, "shares_cores", lambda group, device: shared)
    group = SoloGroup()
    group.size = 2  # it hears itself
    scheduling = _scheduling(
        group, scheduler="dygnex_ilp", groups_per_rank=2, profile_epochs=2, parts=2, schedule_limit_s=0.3
    )
    groups = len(scheduling.groups)
    for epoch in range(2):
        scheduling.observe([], exchange_s=3.0 + epoch)
        scheduling.observe(_epoch_of(dict.fromkeys(range(groups), 0.01)), exchange_s=4.0)
        ended = scheduling.end_epoch()
    assert ended
    described = scheduling.event().write()
    assert described["allreduce_s"] == (0.0 if shared else 4.0)
    assert scheduling.state_dict()["allreduce_s"] == described["allreduce_s"]
    if not shared:
        assert described["iterations"] == -(-groups // 4)
    # one definition of predicted: an exchange an iteration, in the epoch, in its bound and in PSG's, as in the gap
    exchange_s, times_s = described["allreduce_s"], np.array(described["times_s"])
    assert described["makespan_s"] == scheduling.schedule.makespan_s(times_s, allreduce_s=exchange_s)
    assert described["makespan_s"] >= described["iterations"] * exchange_s
    assert described["gap"] == pytest.approx(described["makespan_s"] / described["bound_s"] - 1, abs=1e-9)
    psg = heuristics.schedule_round_robin(times_s, 2, per_rank=1)
    assert described["psg_makespan_s"] == psg.makespan_s(times_s, allreduce_s=exchange_s)
    assert described["psg_makespan_s"] >= -(-groups // 2) * exchange_s


def test_times_of_other_groups_are_not_taken_over() -> None:
    scheduling = _scheduling(profile_epochs=1)
    assert _ended(scheduling, {number: seconds_of(number) for number in range(GROUPS)})
    state = scheduling.state_dict()
    config = config_of(profile_epochs=1)
    same = GroupScheduling(config, graph_of(), scheduling.groups, SoloGroup(), state=state)
    assert (same.schedule, same.event().write()["source"]) == (scheduling.schedule, "profile")
    moved = SnapshotGroups(scheduling.groups.start + 1, scheduling.groups.stop + 1)
    other = GroupScheduling(config, graph_of(), moved, SoloGroup(), state=state)
    assert other.event().write()["source"] == "size"


# the linear model, and sizes


def test_the_linear_model_finds_times_that_are_linear() -> None:
    """Groups are timed at 3 us a node and 2 us an edge: no error, and the schedule of the true times."""
    scheduling = _scheduling(group_times="linear")
    seconds = 3e-6 * WINDOW * NODES + 2e-6 * (_sizes() - WINDOW * NODES)
    assert [_ended(scheduling, dict(enumerate(seconds))) for _ in range(2)] == [False, True]
    described = scheduling.event().write()
    assert described["times_s"] == pytest.approx(seconds.tolist(), rel=1e-4)
    assert described["fit"]["max_error"] < 1e-4


def test_a_linear_model_of_too_few_groups_is_refused_before_the_first_step(tmp_path: Path) -> None:
    config = config_of(group_times="linear", group_window=10)
    with pytest.raises(PlanError, match=r"there are 3\..*group_window"):
        build(config, graph_of(), SoloGroup())
    done = train(tmp_path, config_of(group_window=10), script={1: {"set": {"group_times": "linear"}}})
    (refused,) = done.recorder.events("refused")
    assert "group_times" in refused["data"]["reason"]


def test_by_size_nothing_is_timed_or_scheduled_again(tmp_path: Path) -> None:
    done = train(tmp_path, config_of(group_times="size"))
    (only,) = described(done)
    assert (only["source"], only["times_s"], only["fit"]) == ("size", pytest.approx(_sizes().tolist()), None)
    for epoch in range(EPOCHS):
        assert computed_groups(done, epoch) == wanted_groups(only["assignment"])
    group = _Counting()
    scheduling = _scheduling(group, group_times="size")
    assert not _ended(scheduling, {number: 1.0 for number in range(GROUPS)})
    assert group.reduced == 0


# checkpoints


def assert_same_parameters(one: Trained, other: Trained) -> None:
    assert one.parameters.keys() == other.parameters.keys()
    for name, tensor in one.parameters.items():
        assert torch.equal(tensor, other.parameters[name]), name


@pytest.mark.slow
@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("stops", thinned([[1, 2, 4, 5, 8], []]), ids=str)
def test_interrupted_and_resumed_keeps_times_and_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: Sequence[int]
) -> None:
    """Interrupted between two epochs or once times are known it is the same run; within a profiled epoch, the profile
    takes one epoch more and ends in the same schedule."""
    config = config_of()
    whole = train(tmp_path, config)
    by_size, by_profile = whole.recorder.events("schedule")
    steps = by_size["data"]["iterations"]
    assert by_size["data"]["assignment"] != by_profile["data"]["assignment"]
    assert by_profile["data"]["times_s"] == pytest.approx([seconds_of(group) for group in range(GROUPS)], rel=1e-6)
    for step in stops or range(len(whole.losses)):
        first = train(tmp_path, config, script={step: {"stop": True}})
        with monkeypatch.context() as patch:
            if step >= by_profile["step"] - 1:  # all is known: nobody may be asked for a schedule
                patch.setattr(group_scheduling, "solve", _refuse)
            second = train(tmp_path, config, resume=True, first_step=step + 1)
        again = second.recorder.events("schedule")
        known = step >= by_profile["step"] - 1
        assert again[-1]["data"]["assignment"] == by_profile["data"]["assignment"]
        assert again[0]["data"]["assignment"] == (by_profile if known else by_size)["data"]["assignment"]
        between = (step + 1) % steps == 0
        if known or between:
            assert first.losses + second.losses == whole.losses
            assert_same_parameters(second, whole)
        else:
            assert again[-1]["epoch"] == PROFILE + 1
            kept = by_profile["step"] - step - 1
            assert second.losses[:kept] == whole.losses[step + 1 : by_profile["step"]]


def _refuse(*_: object, **__: object) -> Schedule:
    raise AssertionError("a schedule was made although one is known")


@pytest.mark.usefixtures("steady")
def test_a_checkpoint_without_a_plan_is_gone_on_from(tmp_path: Path) -> None:
    """As files written before there were schedules that are kept."""
    whole = train(tmp_path, config_of(system="psg", epochs=2))
    train(tmp_path, config_of(system="psg", epochs=2), script={2: {"stop": True}})
    stored = torch.load(tmp_path / "last.pt", weights_only=True)
    assert stored.pop("plan")["assignment"]
    torch.save(stored, tmp_path / "last.pt")
    rest = train(tmp_path, config_of(system="psg", epochs=2), resume=True, first_step=3)
    assert rest.losses == whole.losses[3:]


# changes while it runs

KNOWN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"scheduler": "longest_first"}),
    ({}, {"scheduler": "fold", "groups_per_rank": 3}),
    ({}, {"groups_per_rank": 1}),
    ({}, {"parts": 3}),
    ({}, {"pipelined": True}),
    ({"system": "psg"}, {"system": "dygnex-g", "groups_per_rank": 2}),
    ({}, {"profile_epochs": 5}),
    ({}, {"profile_epochs": 1}),
]


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize(("start", "changes"), thinned(KNOWN, [3]), ids=str)
def test_a_change_is_scheduled_with_the_known_times_and_is_resuming_with_it(
    tmp_path: Path, start: dict[str, Any], changes: dict[str, Any]
) -> None:
    config = config_of(**start)
    plain = train(tmp_path, config)
    asked = sum(row["epoch"] < PROFILE + 1 for row in plain.recorder.tables["steps"]) - 1  # the first epoch that knows
    live = train(tmp_path, config, script={asked: {"set": changes}})
    train(tmp_path, config, script={asked: {"stop": True}})
    resumed = train(tmp_path, config, resume=True, changes=changes, first_step=asked + 1)
    assert live.losses[asked + 1 :] == resumed.losses
    assert len(resumed.losses) > 0
    assert_same_parameters(live, resumed)
    assert live.recorder.events("refused") == []
    now = described(live)[2]
    assert (live.recorder.events("schedule")[2]["step"], now["source"]) == (asked + 1, "profile")
    assert now["times_s"] == described(live)[1]["times_s"]
    assert now["assignment"] == described(resumed)[0]["assignment"]
    assert (now["scheduler"], now["per_rank"], now["parts"]) == (
        live.config["scheduler"],
        live.config["groups_per_rank"],
        live.config.parts,
    )
    assert now["rebuild_s"] > 0
    made = catalogue.entry("scheduling", now["scheduler"]).load()
    assert now["assignment"] == made(now["times_s"], now["parts"], per_rank=now["per_rank"]).assignment
    assert computed_groups(live, PROFILE + 1) == wanted_groups(now["assignment"])


@pytest.mark.slow
@pytest.mark.usefixtures("steady")
def test_a_change_within_the_profile_keeps_the_epochs_that_were_timed(tmp_path: Path) -> None:
    done = train(tmp_path, config_of(), script={0: {"set": {"scheduler": "longest_first"}}})
    assert [(event["epoch"], event["data"]["source"]) for event in done.recorder.events("schedule")] == [
        (0, "size"),
        (1, "size"),
        (PROFILE, "profile"),
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("steady")
def test_other_groups_are_profiled_anew(tmp_path: Path) -> None:
    done = train(tmp_path, config_of(epochs=7, profile_epochs=2), script={6: {"set": {"group_window": 6}}})
    assert [(event["data"]["source"], len(event["data"]["times_s"])) for event in done.recorder.events("schedule")] == [
        ("size", GROUPS),
        ("profile", GROUPS),
        ("size", 7),
        ("profile", 7),
    ]


@pytest.mark.slow
def test_a_run_that_leaves_snapshot_groups_says_so(tmp_path: Path) -> None:
    done = train(tmp_path, config_of(parts=1), script={0: {"set": {"system": "single"}}})
    assert described(done)[-1] == {"layout": None, "rebuild_s": described(done)[-1]["rebuild_s"]}
    assert {row["epoch"] for row in done.recorder.tables["groups"]} == {0}


# schedulers that fail


def _without_solver(patch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    patch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "ortools" else find(name, *more))


def _failing(error: Exception) -> Callable[[pytest.MonkeyPatch], None]:
    def broken(*_: Any, **__: Any) -> Schedule:
        raise error

    return lambda patch: patch.setattr(longest_first, "schedule_longest_first", broken)


def _forgetful(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(longest_first, "schedule_longest_first", lambda *_, **__: Schedule((((0,), (1,)),), GROUPS))


def _for_others(patch: pytest.MonkeyPatch) -> None:
    """Three parts where there are two."""
    patch.setattr(
        longest_first, "schedule_longest_first", lambda *_, **__: Schedule(((tuple(range(8)), (), (8,)),), GROUPS)
    )


FAILURES: list[tuple[str, Callable[[pytest.MonkeyPatch], None], str]] = [
    ("dygnex_ilp", _without_solver, "needs OR-tools.*best_of"),
    ("longest_first", _failing(PlanError("2 groups of 3 cannot be placed")), "2 groups of 3 cannot be placed"),
    ("longest_first", _failing(ZeroDivisionError("by nothing")), "ZeroDivisionError: by nothing"),
    ("longest_first", _forgetful, "each of 9 groups once"),
    ("longest_first", _for_others, "3 parts.*2"),
]


@pytest.mark.parametrize(
    ("scheduler", "fail", "said"), thinned(FAILURES, [4]), ids=lambda case: getattr(case, "__name__", str(case))
)
def test_a_scheduler_that_fails_leaves_the_run_as_it_was(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scheduler: str,
    fail: Callable[[pytest.MonkeyPatch], None],
    said: str,
) -> None:
    config = config_of(group_times="size", epochs=3)
    untouched = train(tmp_path, config)
    fail(monkeypatch)
    done = train(tmp_path, config, script={1: {"set": {"scheduler": scheduler}}})
    assert done.losses == untouched.losses
    assert_same_parameters(done, untouched)
    assert done.config == config
    (refused,) = done.recorder.events("refused")
    assert refused["data"]["changes"] == {"scheduler": scheduler}
    with pytest.raises(
        PlanError, match=rf"scheduler '{scheduler}': .*{said}"
    ) as caught:  # a run does not begin with it
        train(tmp_path, config.replace(scheduler=scheduler))
    assert refused["data"]["reason"] == str(caught.value)
    assert len(described(done)) == 1


def test_a_scheduler_that_fails_on_the_profile_leaves_the_schedule_of_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solve = dygnex.schedule

    def only_sizes(times_s: Any, *given: Any, **live_settings: Any) -> Schedule:
        if max(times_s) < 1:
            raise PlanError("these times are beyond me")
        return solve(times_s, *given, **live_settings)

    monkeypatch.setattr(dygnex, "schedule", only_sizes)
    done = train(tmp_path, config_of())
    assert done.outcome.state == "finished"
    (refused,) = done.recorder.events("refused")
    assert "these times are beyond me" in refused["data"]["reason"]
    assert (refused["epoch"], len(described(done))) == (PROFILE, 1)
    for epoch in range(EPOCHS):
        assert computed_groups(done, epoch) == wanted_groups(described(done)[0]["assignment"])


# BLAD


def _built(**changes: Any) -> RunComponents:
    return build(config_of(**{"system": "blad", "dtype": "float64", **changes}), graph_of(), SoloGroup())


def _gradients(built: RunComponents, work: Step) -> tuple[float, dict[str, Tensor]]:
    built.gradients.zero()
    loss = float(built.strategy.compute(work, StepMarks()).loss_sum)
    return loss, {name: p.grad.clone() for name, p in built.model.named_parameters() if p.grad is not None}


@pytest.fixture(params=[1, 4])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Threads of torch: fewer than groups at once, and two for each."""
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(1)


@pytest.mark.parametrize("model", ONE_OF_EACH_MEMORY)
@pytest.mark.parametrize("more", [{}, {"loss_at": "all", "layers": 2}], ids=str)
def test_groups_at_once_give_the_bits_of_groups_one_by_one(model: str, more: dict[str, Any], threads: int) -> None:
    if model == "dcrnn":
        more = {**more, "layers": 1}
    at_once, one_by_one = (_built(model=model, pipelined=on, **more) for on in (True, False))
    works = at_once.strategy.epoch(0)
    assert works == one_by_one.strategy.epoch(0)
    assert [work.groups for work in works] == [(0, 1, 2, 3), (4, 5, 6, 7), (8,)]
    for work in works:
        loss, actual = _gradients(at_once, work)
        assert torch.get_num_threads() == threads
        torch.set_num_threads(1)
        expected_loss, expected = _gradients(one_by_one, work)
        torch.set_num_threads(threads)
        assert loss == expected_loss
        assert actual.keys() == expected.keys()
        for name, gradient in expected.items():
            if model == "dcrnn" and threads > 1:  # torch's own products, which some processors sum by threads
                torch.testing.assert_close(actual[name], gradient, rtol=1e-12, atol=1e-14, msg=name)
            else:
                assert torch.equal(actual[name], gradient), name


def test_groups_recomputed_snapshot_by_snapshot_at_once_give_the_same_bits() -> None:
    """Where activations exceed their limit, backward recomputes them."""
    built = [_built(model="dcrnn", pipelined=on, loss_at="all") for on in (True, False)]
    gradients = []
    for components in built:
        for sequence in (components.sequence, *components.strategy._runner.twins):
            limits = replace(sequence.settings.limits, activation_bytes=0)
            sequence.settings = replace(sequence.settings, limits=limits)
        gradients.append(_gradients(components, components.strategy.epoch(0)[0]))
    (loss, actual), (expected_loss, expected) = gradients
    assert loss == expected_loss and expected
    assert all(torch.equal(actual[name], gradient) for name, gradient in expected.items())


def test_two_groups_compute_at_once_on_one_thread_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    both_began = threading.Barrier(2, timeout=20)
    add_gradients = reference.HOW["per_vertex"]

    def compute(run: SequenceSegment) -> Tensor:
        both_began.wait()
        return add_gradients(run)

    monkeypatch.setattr(reference, "HOW", {**reference.HOW, "per_vertex": compute})
    built = _built()
    assert _gradients(built, built.strategy.epoch(0)[0])[0] > 0
    assert torch.get_num_threads() == 1


def test_the_copies_of_the_data_share_no_view() -> None:
    built = _built()
    sequences = built.sequence, *built.strategy._runner.twins
    assert len(sequences) == 2
    assert sequences[0].view(3) is not sequences[1].view(3)
    assert torch.equal(sequences[0].view(3).inputs, sequences[1].view(3).inputs)


# At 400 nodes, H = 16 and windows of 8
@pytest.mark.parametrize("model", thinned(ONE_OF_EACH_MEMORY, (2, 4)))
def test_the_groups_of_a_step_are_all_in_memory(model: str) -> None:
    """A rank with two groups at once needs the peaks of both."""
    more = {"hidden": 16, "group_window": 8, "generated_snapshots": 60, "generated_nodes": 400, "generated_edges": 1600}
    graph = load_for(config_of(**more))

    def peak(groups: tuple[int, ...], *, pipelined: bool) -> int:
        config = config_of(system="blad", model=model, pipelined=pipelined, **more)
        strategy = build(config, graph, SoloGroup()).strategy
        strategy.compute(Step(0, groups, 2), StepMarks())  # inputs are made once and kept
        return peak_bytes(lambda: strategy.compute(Step(0, groups, 2), StepMarks()) and None)

    both, one_by_one = peak((4, 5), pipelined=True), peak((4, 5), pipelined=False)
    assert both == pytest.approx(sum(peak((group,), pipelined=False) for group in (4, 5)), rel=0.1)
    assert both >= 1.5 * one_by_one  # where gradients of the first group remain in memory


# every node at every snapshot of every group, once an epoch


@pytest.mark.parametrize("system", BY_GROUPS)
def test_every_group_is_computed_once_an_epoch(tmp_path: Path, system: str) -> None:
    unsearched = {"schedule_gap": 1.0} if system == "dygnex-l" else {}
    done = train(tmp_path, config_of(system=system, parts=4, epochs=3, **unsearched))
    assert len(described(done)) == 2
    for epoch in range(3):
        computed = [group for step in computed_groups(done, epoch) for group in step]
        assert sorted(computed) == list(range(GROUPS))
        steps = [row for row in done.recorder.tables["steps"] if row["epoch"] == epoch]
        assert sum(row["vertex_snapshots"] for row in steps) == GROUPS * WINDOW * NODES
        assert sum(row["groups"] for row in steps) == GROUPS


@pytest.mark.parametrize("system", sorted(set(catalogue.names("systems")) - set(BY_GROUPS) - WINDOWS))
def test_systems_without_groups_compute_every_vertex_at_every_snapshot_once_an_epoch(
    tmp_path: Path, system: str
) -> None:
    parts = 1 if catalogue.system(system).family == "single" else 2
    partitioner = {"partitioner": "round_robin"} if "partition" in catalogue.system(system).parts else {}
    partitioner |= {"row_ranks": 1} if system == "esdg-hybrid" else {}  # on one rank nothing is split
    done = train(tmp_path, RunConfig(system=system, parts=parts, epochs=2, **partitioner, **SMALL))
    for epoch in range(2):
        steps = [row for row in done.recorder.tables["steps"] if row["epoch"] == epoch]
        assert sum(row["vertex_snapshots"] for row in steps) == TRAIN * NODES
    assert done.recorder.tables["groups"] == []
    assert described(done) == []


# what is learned
