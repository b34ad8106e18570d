"""Fetched features on ranks: one plan on any number of them, every change at one step on all, and owners that die."""

from __future__ import annotations

import signal
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dtdg_lab.core.errors import LabError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.kernels.device_memory import DeviceMemory
from dtdg_lab.systems.feature_cache.pipeline import cache as feature_cache
from dtdg_lab.testing.training import Trained
from tests.distributed.groups import TakenStep, assert_same_steps, in_groups, take_step
from tests.hybrid_training import train as train_by_steps
from tests.remote_training import (
    CHANGES,
    EPOCHS,
    LONG,
    PARTS,
    Struck,
    built_remote,
    changing_graph,
    left,
    policy_file,
    remote_config,
    static_config,
    static_graph,
    train_remote,
)
from tests.remote_training import STEPS as EPOCH_STEPS
from tests.thinning import thinned, values_that_run

STEPS = 3
CASES: list[dict[str, Any]] = [
    {"policy": "fixed", "cache_window": 2},
    {"policy": "on_demand", "model": "evolvegcn-o"},
    {"policy": "prefetch", "model": "gatlstm", "layers": 1, "links": "1 delay=2"},
    {"policy": "epoch_hot", "static": True},
]
POLICIES = (
    "on_demand",
    "prefetch",
    "epoch_hot",
    "fixed",
    "threshold",
    "random",
    "double_dqn",
    "planner",
    "clairvoyant",
)
ALONE = {"parts": 2, "batch_size": 16}
SLOW, SLOW_HALO, DELAY_S = "1>0 delay=50", "2>1 delay=50", 0.05
HALO = {"system": "adgnn-t", "layers": 1, "epochs": 8}
COMING: list[dict[str, Any]] = [
    {"links": "* delay=3"},
    {"system": "fixed-window"},
    {"links": "2>0 delay=1"},
    {"system": "adgnn-t"},
    {"links": ""},
]


def first_steps(case: dict[str, Any], group: Group) -> list[TakenStep]:
    """The first steps of an epoch."""
    settings = {**case, "ranks": group.size}
    static = settings.pop("static", False)
    config = static_config(**settings) if static else remote_config(**settings)
    with built_remote(config, group, static_graph() if static else changing_graph()) as built:
        return [take_step(built, group, work) for work in built.strategy.epoch(0)[:STEPS]]


def all_cases(group: Group) -> list[list[TakenStep]]:
    return [first_steps(case, group) for case in CASES]


# runs


def _to_dict(done: Trained, began_s: float) -> dict[str, Any]:
    tables = done.recorder.tables
    names = ("steps", "phases", "resolved", "windows", "fetches", "links", "cache_decisions")
    return {
        "losses": done.losses,
        "parameters": done.parameters,
        "state": done.outcome.state,
        "left": left(),
        "took_s": time.monotonic() - began_s,
        "config": dict(done.config.flat),
        **{kind: done.recorder.events(kind) for kind in ("settings", "refused", "congestion", "features")},
        **{name: tables[name] for name in names},
    }


def all_stories(group: Group, folder: str, policies: list[str], struck: list[str]) -> dict[str, Any]:
    """Every run of two ranks, one after another on one group."""
    found = {}

    def go(name: str, policy: str = "fixed", *, keep: str | None = None, by_steps: bool = False, **how: Any) -> None:
        group.barrier()  # rank 0 may still be writing the checkpoint that another one reads
        began_s, where = time.monotonic(), Path(folder) / (keep or name)
        where.mkdir(exist_ok=True)
        config = remote_config(policy, ranks=group.size, **how.pop("settings", {}))
        if by_steps:
            done = train_by_steps(config, load_for(config), where / "last.pt", group=group, one_by_one=True, **how)
        else:
            done = train_remote(config, where, group=group, **how)
        found[name] = _to_dict(done, began_s)

    def fails(name: str, policy: str, sent: signal.Signals) -> None:
        recorder = Struck(sent if group.rank == 1 else None, 4, meet=group.barrier)  # nobody is past the step by then
        group.barrier()
        began_s = time.monotonic()
        try:
            go(name, policy, settings={"fetch_timeout_s": 2.0}, recorder=recorder)
        except LabError as error:
            found[name] = {
                "kind": type(error).__name__,
                "reason": str(error),
                "left": left(),
                "steps": len(recorder.tables["steps"]),
                "took_s": time.monotonic() - began_s,
            }

    for policy in policies:
        go(policy, policy, settings={"policy_file": policy_file(Path(folder))} if policy == "double_dqn" else {})
    go("live", settings=LONG, script={step: {"set": changes} for step, changes in CHANGES.items()})
    go("not live", settings=LONG)
    real, free = feature_cache.device_memory, 10_000_000 if group.rank == 1 else 10**12
    feature_cache.device_memory = lambda device: DeviceMemory(device, free, free)
    refused = {1: {"set": {"cache_policy": "fixed"}}, 2: {"set": {"links": "9>0 delay=5"}}}
    go("refused", "on_demand", settings={"cache_rows": 1_000_000}, script=refused)
    feature_cache.device_memory = real
    go("clean link", "on_demand", settings=ALONE)
    go("slow link", "on_demand", settings={**ALONE, "links": SLOW})
    for name, links in (("halo", ""), ("slow halo", SLOW_HALO)):
        go(name, settings={**HALO, "links": links})
    script = {step + 1: {"set": changes} for step, changes in enumerate(COMING)}
    go("coming and going", settings={**HALO, "epochs": 100}, by_steps=True, script={**script, 8: {"stop": True}})
    go("halted", script={6: {"stop": True}})
    go("resumed", keep="halted", resume=True)
    for name in struck:
        fails(name, "on_demand", {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}[name])
        go(f"{name} and resumed", keep=name, resume=True)
    return found


ids = [" ".join(str(value) for value in case.values()) for case in CASES]


# one plan on one, two and four processes


@cache
def alone(case: int) -> list[TakenStep]:
    return first_steps(CASES[case], SoloGroup())


@pytest.fixture(scope="module", params=thinned([2, 4]), ids=lambda ranks: f"{ranks} processes")
def ranks(request: pytest.FixtureRequest) -> list[list[list[TakenStep]]]:
    return in_groups(all_cases, request.param)


@pytest.mark.parametrize("case", range(len(CASES)), ids=ids)
def test_one_plan_on_several_processes(ranks: list[list[list[TakenStep]]], case: int) -> None:
    assert len(alone(case)) == STEPS
    for found in ranks:
        assert_same_steps(found[case], alone(case))
    for step, wanted in enumerate(alone(case)):
        assert {found[case][step].groups for found in ranks} == {wanted.groups}
        asked = {part: rows for found in ranks for part, rows in _remote(found[case][step]).items()}
        assert asked == _remote(wanted) and len(asked) == PARTS and sum(asked.values()) > 0


def _remote(step: TakenStep) -> dict[int, int]:
    """Part -> rows that it asked others for."""
    return {row[0]: row[2] for row in step.rows["resolved"]}


# runs on two ranks


@pytest.fixture(scope="module")
def stories(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    policies, struck = ([value for (value,) in values_that_run(request, name)] for name in ("policy", "story"))
    policies = [*dict.fromkeys(["on_demand", "fixed", *policies])]
    return in_groups(all_stories, 2, str(tmp_path_factory.mktemp("stories")), policies, struck)


def _same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def _quickest(described: dict[str, Any], table: str, name: str, **where: Any) -> float:
    return min(row[name] for row in described[table] if all(row[of] == value for of, value in where.items()))


@pytest.mark.parametrize("policy", thinned(POLICIES, (3, 6)))
def test_every_policy_trains_the_same_bits_on_all_ranks(stories: list[dict[str, Any]], policy: str) -> None:
    wanted = stories[0]["on_demand"]
    assert len(wanted["losses"]) == EPOCHS * EPOCH_STEPS
    for rank, found in enumerate(stories):
        assert found[policy]["losses"] == wanted["losses"] and _same(found[policy]["parameters"], wanted["parameters"])
        assert {row["part"] for row in found[policy]["resolved"]} == {2 * rank, 2 * rank + 1}, "parts of the rank alone"
        assert {row["owner"] for row in found[policy]["fetches"]} == set(range(PARTS))
        assert (len(found[policy]["windows"]) > 0) == (policy not in ("on_demand", "prefetch"))


def test_changes_are_made_at_one_step_on_all_ranks(stories: list[dict[str, Any]]) -> None:
    one, other = (found["live"] for found in stories)
    described = [[(event["step"], event["data"]["changes"]) for event in of["settings"]] for of in (one, other)]
    assert described[0] == [(step + 1, changes) for step, changes in CHANGES.items()]
    assert described[0] == described[1] and one["config"] == other["config"]
    assert one["losses"] == other["losses"] == stories[0]["not live"]["losses"]
    assert _same(one["parameters"], stories[0]["not live"]["parameters"])
    for of in (one, other):
        window = {
            part: {row["step"] for row in of["resolved"] if row["part"] == part and row["window"] < 0}
            for part in {row["part"] for row in of["resolved"]}
        }
        for steps in window.values():
            assert 28 in steps and not steps & {0, 1}
        assert {row["policy"] for row in of["cache_decisions"]} >= {"random"}
        assert 2 in {row["biased"] for row in of["windows"] if row["step"] >= 15 and row["part"] != 2}
    assert [(event["step"], event["data"]) for event in other["congestion"]] in (
        [],
        [(event["step"], event["data"]) for event in one["congestion"]],
    )


def test_what_one_rank_cannot_do_all_refuse(stories: list[dict[str, Any]]) -> None:
    """Rank 1 has no memory for a cache; nobody has a part 9."""
    for found in stories:
        assert found["refused"]["losses"] == stories[0]["on_demand"]["losses"]
        assert found["refused"]["config"]["cache_policy"] == "on_demand" and found["refused"]["config"]["links"] == ""
    memory, link = (event["data"]["reason"] for event in stories[0]["refused"]["refused"])
    assert "rank 1" in memory and "cache_rows=1000000 exceeds memory" in memory
    assert "names part 9: there are 4" in link


def test_a_slow_link_is_waited_for_and_gradients_are_not_slower(stories: list[dict[str, Any]]) -> None:
    """Rank 0's part asks rank 1's; lower bounds are promised, upper ones are of the least disturbed step."""
    (clean, slow), (_, other) = ([found[name] for name in ("clean link", "slow link")] for found in stories)
    assert clean["losses"] == slow["losses"] == other["losses"]
    assert _quickest(slow, "resolved", "wait_s") >= DELAY_S
    assert _quickest(slow, "resolved", "wait_s") - _quickest(clean, "resolved", "wait_s") < 1.8 * DELAY_S
    assert _quickest(other, "resolved", "wait_s") < 0.8 * DELAY_S, "replies the other way are not late"
    for of in (slow, other):
        reduced = [row["end_ns"] - row["start_ns"] for row in of["phases"] if row["phase"] == "communicate"]
        assert min(reduced) < 0.5e9 * DELAY_S


def test_halos_are_slowed_by_the_same_links_and_no_loss_changes(stories: list[dict[str, Any]]) -> None:
    """Part 2, of rank 1, is slow to part 1, of rank 0: rank 0 waits for its halo."""
    (clean, slow), (_, other) = ([found[name] for name in ("halo", "slow halo")] for found in stories)
    assert clean["losses"] == slow["losses"] == other["losses"]
    assert _quickest(slow, "steps", "time_s") >= DELAY_S > _quickest(clean, "steps", "time_s")
    assert [event["data"]["delay_ms"][2] for event in slow["congestion"]] == [[0.0, 1e3 * DELAY_S, 0.0, 0.0]]


def test_systems_come_and_go_while_links_are_slow(stories: list[dict[str, Any]]) -> None:
    one, other = (found["coming and going"] for found in stories)
    assert [event["data"]["changes"] for event in one["settings"]] == COMING and one["refused"] == []
    assert one["losses"] == other["losses"] and one["state"] == other["state"] == "stopped"
    assert one["left"] == other["left"] == []
    fetched = {row["step"] for row in one["resolved"]}
    assert fetched == {row["step"] for row in other["resolved"]} and len(fetched) % EPOCH_STEPS == 0
    assert [event["data"].get("policy") for event in one["features"]] == ["fixed", None]
    halo = [row["step"] for row in one["steps"] if row["step"] < min(fetched)]
    delayed = [row["time_s"] for row in one["steps"] if 2 <= row["step"] < min(fetched)]
    assert len(halo) >= 3 and min(delayed) >= 0.003, "exchanges of three milliseconds at least"


def test_an_interrupted_run_goes_on_with_the_same_bits(stories: list[dict[str, Any]]) -> None:
    for found in stories:
        wanted = stories[0]["fixed"]
        assert [*found["halted"]["losses"], *found["resumed"]["losses"]] == wanted["losses"]
        assert len(found["halted"]["losses"]) == 7 and _same(found["resumed"]["parameters"], wanted["parameters"])


@pytest.mark.parametrize(
    ("story", "words"),
    thinned([("killed", "(rank 1) has exited: its connection was closed"), ("stopped", "(rank 1) was silent for ")]),
)
def test_a_server_that_dies_ends_the_run_on_all_ranks_in_time(
    stories: list[dict[str, Any]], story: str, words: str
) -> None:
    """A rank may first notice the end of the other rank, whose server ends with it."""
    wanted = stories[0]["on_demand"]
    own = "feature server of part(s) [2, 3] was ended by SIGKILL"  # what the rank of the server may find first
    reasons = [found[story]["reason"] for found in stories]
    assert any(words in reason or own in reason for reason in reasons), reasons
    assert all("feature server of part" in reason for reason in reasons), reasons
    for found in stories:
        failed, again = found[story], found[f"{story} and resumed"]
        assert failed["kind"] == "RunFailedError" and "part" in failed["reason"] and failed["steps"] == 5
        assert failed["left"] == [] and failed["took_s"] < 15.0
        assert again["state"] == "finished" and again["losses"] == wanted["losses"][-len(again["losses"]) :]
        assert _same(again["parameters"], wanted["parameters"])


def test_nothing_is_left_on_any_rank(stories: list[dict[str, Any]]) -> None:
    for found in stories:
        assert {name: described["left"] for name, described in found.items() if described["left"]} == {}
