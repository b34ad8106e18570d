"""Hybrid batches on ranks: one plan on any number of them, batch policies and knobs followed by all, no rank waits."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from dtdg_lab.core.plans import TargetBatch
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.systems.hybrid_batches.part_batches import FIRST_NEW
from dtdg_lab.systems.hybrid_batches.strategy import HybridBatchStrategy
from dtdg_lab.testing.processes import run_ranks
from dtdg_lab.training.build import RunComponents
from tests.distributed.groups import TakenStep, assert_same_steps, in_groups
from tests.distributed.hybrid_on_ranks import (
    APART_EPOCHS,
    CASES,
    EPOCH,
    HALTED_EPOCHS,
    LIVE,
    LONG_EPOCHS,
    PARTS,
    RUN,
    SLOW_MS,
    STEPS,
    all_cases,
    all_stories,
    built_case,
    first_steps,
    run_config,
)
from tests.hybrid_training import train
from tests.thinning import thinned, values_that_run

ids = [" ".join(str(value) for value in case.values()) for case in CASES]


# one plan on one, two and four processes, and on the whole graph


@cache
def alone(case: int) -> list[TakenStep]:
    return first_steps(CASES[case], SoloGroup())


@pytest.fixture(scope="module", params=thinned([2, 4]), ids=lambda ranks: f"{ranks} processes")
def ranks(request: pytest.FixtureRequest) -> list[dict[int, list[TakenStep]]]:
    return in_groups(all_cases, request.param, [case for (case,) in values_that_run(request, "case")])


@pytest.mark.parametrize("case", thinned(range(len(CASES)), (1, 3, 4)), ids=ids)
def test_one_plan_on_several_processes(ranks: list[dict[int, list[TakenStep]]], case: int) -> None:
    assert len(alone(case)) == 2 * STEPS
    for found in ranks:
        assert_same_steps(found[case], alone(case))
    for step, wanted in enumerate(alone(case)):
        each = [found[case][step] for found in ranks]
        assert {(found.groups, found.sent) for found in each} == {(PARTS, 0)}, "nothing is sent before gradients"
        assert [of for found in each for of in _batches(found)] == _batches(wanted)
        assert sum(found.work for found in each) == wanted.work
    assert len({tuple(_batches(found)) for found in alone(case)}) == len(alone(case))


@pytest.mark.parametrize(
    "case", thinned([case for case in range(len(CASES)) if CASES[case].get("model") != "dcrnn"], 3), ids=ids.__getitem__
)
def test_a_step_is_the_mean_over_parts_of_their_targets_in_the_whole_graph(case: int) -> None:
    built = built_case(CASES[case], SoloGroup())
    assert isinstance(built.strategy, HybridBatchStrategy)
    losses = []
    for part in built.strategy.parts:
        batch = part.sampler.batch(part.sizes[0], 0, FIRST_NEW)
        losses.append(_loss_on_the_whole(built, part.number, batch))
    torch.stack(losses).mean().backward()
    wanted = alone(case)[0]
    assert float(torch.stack(losses).mean().detach()) == pytest.approx(wanted.loss, rel=1e-10)
    gradient = torch.cat([of.grad.reshape(-1) for of in built.model.parameters() if of.grad is not None]).numpy()
    assert np.abs(gradient - wanted.gradient).max() <= 1e-10 * np.abs(gradient).max()


def _batches(step: TakenStep) -> list[tuple[Any, ...]]:
    """The batches of parts, without the seconds they took."""
    return [(row[0], *row[2:9]) for row in step.rows["targets"]]


def _loss_on_the_whole(built: RunComponents, part: int, batch: TargetBatch) -> Tensor:
    """The mean over snapshots of the mean over labelled targets; all nodes run, from state zero."""
    assert built.partition is not None
    graph, model = built.sequence.graph, built.model
    targets = torch.tensor(built.partition.vertices(part)[batch.targets])
    state, losses = model.initial_state(graph.num_nodes), []
    for t in batch.snapshots:
        space = built.sequence.view(t)
        h, state = model.snapshot(space, space.inputs, state)
        z = model.readout(h)[targets]
        if built.config["task"] == "classification":
            assert graph.classes is not None
            labels = torch.tensor(graph.classes[t].astype(np.int64))[targets]
            losses.append(functional.cross_entropy(z[labels >= 0], labels[labels >= 0]))
        else:
            losses.append((z.squeeze(-1) - torch.tensor(graph.targets[t]).double()[targets]).square().mean())
    return torch.stack(losses).mean()


# runs on two ranks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stories")


@pytest.fixture(scope="module")
def stories(folder: Path) -> list[dict[str, Any]]:
    return run_ranks(all_stories, 2, str(folder))


def _by_step(described: dict[str, Any], column: str) -> dict[int, Any]:
    """A rank has one part."""
    return {row["step"]: row[column] for row in described["targets"]}


def _same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.parametrize("story", ["together", "live together"])
def test_what_is_decided_is_followed_by_all_at_one_step(stories: list[dict[str, Any]], story: str) -> None:
    one, other = (found[story] for found in stories)
    assert _by_step(one, "action") == _by_step(other, "action")
    assert _by_step(one, "snapshots") == _by_step(other, "snapshots")
    assert len(set(_by_step(one, "action").values())) > 1
    assert len(one["decisions"]) >= 4 and other["decisions"] == []
    assert one["losses"] == other["losses"] and _same(one["parameters"], other["parameters"])
    described = [[(event["step"], event["data"]["changes"]) for event in of["knobs"]] for of in (one, other)]
    assert described[0] == described[1]
    changed = {step + 1: asked["set"] for step, asked in LIVE.items() if "set" in asked and step != 11}
    assert dict(described[0]) == (changed if story == "live together" else {})


@pytest.mark.parametrize("story", ["live", "live again", "decided", "halted", "resumed", "by epochs"])
def test_ranks_that_never_wait_hear_the_same_words(stories: list[dict[str, Any]], story: str) -> None:
    one, other = (found[story] for found in stories)
    words = [[(row["number"], row["version"], row["choice"]) for row in of["rounds"]] for of in (one, other)]
    assert words[0] == words[1] and len(words[0]) > 3
    described = [[event["data"]["changes"] for event in of["knobs"]] for of in (one, other)]
    assert described[0] == described[1]
    assert one["config"] == other["config"]
    assert one["state"] == other["state"] == ("stopped" if story in ("halted", "by epochs") else "finished")
    assert _same(one["parameters"], other["parameters"]), "all end with one model"


def test_a_choice_rules_at_once_where_it_is_made_and_after_a_round_elsewhere(stories: list[dict[str, Any]]) -> None:
    first, other = (found["decided"] for found in stories)
    made = [(row["step"] + 1, row["action"]) for row in first["decisions"]]
    received = [(row["applied_step"], row["choice"]) for row in other["rounds"]]
    assert len({action for _, action in made}) > 1 and len({choice for _, choice in received}) > 1
    for described, changes in ((first, made), (other, received)):
        for step, action in _by_step(described, "action").items():
            assert action == [choice for at, choice in [(0, 0), *changes] if at <= step][-1]


def test_changes_while_no_rank_waits(stories: list[dict[str, Any]]) -> None:
    assert sum(len(found["live"]["losses"]) for found in stories) == LONG_EPOCHS * 20
    asked = [change["set"] for step, change in LIVE.items() if "set" in change and step != 11]
    for found in stories:
        described = found["live"]
        assert [event["data"]["changes"] for event in described["knobs"]] == asked
        sources, actions = _by_step(described, "source"), _by_step(described, "action")
        since = {name: event["step"] for event in described["knobs"] for name in event["data"]["changes"]}
        assert all(source == "new" for step, source in sources.items() if step >= since["reservoir"])
        assert "new" not in {source for step, source in sources.items() if step < since["reservoir"]}
        fixed = [event["step"] for event in described["knobs"] if event["data"]["changes"].get("batch_policy")]
        assert {actions[step] for step in range(fixed[0], fixed[1])} <= {0}
        assert described["left"] == [] and len(described["reservoir"]) > 0
    assert stories[0]["live"]["paused"] == stories[0]["live together"]["paused"] == 1
    (refused,) = stories[0]["live"]["refused"]
    assert refused["data"]["changes"] == LIVE[11]["set"] and "batch_nodes=99.0" in refused["data"]["reason"]


@pytest.mark.parametrize("story", ["live", "shares"])
def test_a_run_that_never_waited_repeats_bit_for_bit(stories: list[dict[str, Any]], story: str) -> None:
    for found in stories:
        done, again = found[story], found[f"{story} again"]
        assert again["losses"] == done["losses"] and again["drawn"] == done["drawn"]
        rounds = [[{**row, "step": 0, "epoch": 0} for row in of["rounds"]] for of in (again, done)]
        assert rounds[0] == rounds[1]
        assert _same(again["parameters"], done["parameters"])
    if story == "shares":  # the other one has a reservoir in its first steps only
        assert "reservoir" in {row["source"] for found in stories for row in found[story]["targets"]}


def test_a_stop_is_heard_by_all_and_resumed(stories: list[dict[str, Any]]) -> None:
    one, other = (found["halted"] for found in stories)
    assert one["state"] == other["state"] == "stopped"
    assert _same(one["parameters"], other["parameters"])
    again, beside = (found["resumed"] for found in stories)
    made = [len(of["losses"]) for of in (one, other, again, beside)]
    assert sum(made) == HALTED_EPOCHS * 20, "what was left, and no step twice"
    assert again["steps"][0]["step"] == beside["steps"][0]["step"] == max(made[:2]), "numbers that no rank has had"
    taken = sorted((row["epoch"], row["iteration"]) for of in (again, beside) for row in of["steps"])
    assert taken == [divmod(number, 20) for number in range(sum(made[:2]), sum(made))]
    assert again["decisions"][0]["reward"] is not None, "the batch policy goes on"


def test_a_run_of_equal_steps_is_resumed_as_if_nothing_had_been(stories: list[dict[str, Any]]) -> None:
    """It was stopped after a decision that nobody had heard yet."""
    for found in stories:
        whole, first, second = (found[story] for story in ("whole", "first half", "second half"))
        assert len(first["losses"]) == 2 and first["losses"] + second["losses"] == whole["losses"]
        assert first["drawn"] + second["drawn"] == whole["drawn"]
        assert _same(second["parameters"], whole["parameters"])
    assert stories[0]["first half"]["decisions"][-1]["action"] != 0


def test_partitioner_and_exchange_change_when_all_have_come_together(stories: list[dict[str, Any]]) -> None:
    one, other = (found["by epochs"] for found in stories)
    described = [
        [(event["step"], event["data"]["when"], event["data"]["changes"]) for event in of["knobs"]]
        for of in (one, other)
    ]
    assert (
        [what for *_, what in described[0]]
        == [what for *_, what in described[1]]
        == [asked["set"] for asked in EPOCH.values()]
    )
    assert {when for _, when, _ in described[0] + described[1]} == {"epoch"}
    models = [sum(row["number"] == 0 for row in of["rounds"]) for of in (one, other)]
    assert models == [3, 3], "each stretch of averaging ends with a round of all"
    assert one["left"] == other["left"] == []


def test_ranks_that_were_apart_make_their_last_steps_together(stories: list[dict[str, Any]]) -> None:
    one, other = (found["from apart"] for found in stories)
    (since,) = {of["knobs"][0]["step"] for of in (one, other)}
    numbers, losses = (
        [[row[name] for row in of["steps"] if row["step"] >= since] for of in (one, other)]
        for name in ("step", "global_loss")
    )
    epochs = APART_EPOCHS - min(row["epoch"] for row in one["steps"] if row["step"] >= since)
    assert numbers == [list(range(since, since + 5 * epochs))] * 2 and losses[0] == losses[1]
    made = [sum(row["step"] < since for row in of["steps"]) for of in (one, other)]
    assert made[0] == since > made[1], "the slower one goes on where the other is"
    assert one["state"] == other["state"] == "finished"
    assert _same(one["parameters"], other["parameters"])


def test_a_change_after_the_last_step_leaves_nothing_running(stories: list[dict[str, Any]]) -> None:
    for found in stories:
        described = found["to models at the end"]
        assert [event["data"]["changes"] for event in described["knobs"]] == [EPOCH[22]["set"]]
        assert described["left"] == []


def test_the_validation_part_is_read_by_the_rank_that_decides(stories: list[dict[str, Any]]) -> None:
    one, other = (found["validation"] for found in stories)
    last = max(row["step"] for row in one["evaluations"])
    received = {(row["step"], row["loss"]) for row in one["evaluations"] if row["split"] == "validation"}
    decided = {(row["step"], row["state"]["loss"]) for row in one["decisions"]}
    assert decided and decided <= received  # the model of all may be evaluated again at the last decision's step
    assert {row["split"] for row in one["evaluations"] if row["step"] < last} == {"train", "validation"}
    assert other["evaluations"] == other["decisions"] == []


def test_a_slowed_rank_slows_no_other(stories: list[dict[str, Any]]) -> None:
    step_s = {
        story: [median(row["time_s"] for row in found[story]["steps"]) for found in stories]
        for story in ("slowed", "slowed together")
    }
    assert step_s["slowed"][1] > 1e-3 * SLOW_MS
    assert step_s["slowed together"][0] > 1e-3 * SLOW_MS > 2 * step_s["slowed"][0]


def test_the_fast_rank_makes_most_steps_of_a_run(stories: list[dict[str, Any]]) -> None:
    one, other = (found["slowed"] for found in stories)
    made = [len(of["losses"]) for of in (one, other)]
    assert sum(made) == 2 * 20, "all steps of both, none twice"
    assert made[0] >= 0.8 * sum(made) and made[1] >= 1
    taken = sorted((row["epoch"], row["iteration"]) for of in (one, other) for row in of["steps"])
    assert taken == [(epoch, number) for epoch in range(2) for number in range(20)]
    assert _same(one["parameters"], other["parameters"])


@pytest.mark.parametrize("story", ["decided", "slowed"])
def test_models_are_all_that_travels(stories: list[dict[str, Any]], story: str) -> None:
    for found in stories:
        described = found[story]
        assert described["links"] == []
        numbers = sum(tensor.numel() for tensor in described["parameters"].values()) + 4
        round_bytes = 2 * numbers * 8 // 2  # of an all-reduce on two ranks
        sent = {row["step"]: row["bytes_sent"] for row in described["steps"] if row["bytes_sent"]}
        rounds = [row for row in described["rounds"] if row["number"] and row["weight"]]
        assert set(sent.values()) == {round_bytes} and sent.keys() <= {row["joined_step"] - 1 for row in rounds}
        assert sent.keys() >= {row["joined_step"] - 1 for row in rounds if not row["gathered"]}


def test_staleness_is_told(stories: list[dict[str, Any]]) -> None:
    for found in stories:
        rounds = found["live"]["rounds"]
        assert [row["number"] for row in rounds[:-1]] == list(range(1, len(rounds))) and rounds[-1]["number"] == 0
        made = len(found["live"]["losses"])
        assert all(row["joined_step"] <= row["applied_step"] <= made for row in rounds)
        assert all(before["applied_step"] <= after["joined_step"] for before, after in pairwise(rounds))


def test_a_rank_that_fails_ends_the_run_everywhere(stories: list[dict[str, Any]], folder: Path) -> None:
    one, other = (found["failed"] for found in stories)
    assert other["kind"] == "RunStoreError"
    assert "the disk of this rank is full" in one["reason"]
    assert one["left"] == other["left"] == []
    assert one["steps"] < 1000
    config = run_config(ranks=1)
    again = train(config, load_for(config), folder / "failed.pt", resume=True, changes={"epochs": 2, "slow_ms": 0.0})
    assert again.outcome.state == "finished" and len(again.losses) <= 2 * RUN["epoch_batches"]
