"""Each part's weight in the final model, by a linear probe, on two and four processes with a straggler."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import Tensor

from dtdg_lab.distributed.averager import ControlState
from dtdg_lab.distributed.group import Group
from dtdg_lab.distributed.model_averaging import averager_for
from dtdg_lab.testing.averaging_probe import Probe, probe
from tests.distributed.groups import in_groups

SLOW_S, FAST_S = 0.033, 0.003  # seconds of a step of rank 0 and of the others: a straggler by 30 ms
EARLY, LATE = 10, 300  # steps of rank 0 and of the others if they do not share them
SHARES = {2: (0.5, 0.5), 4: (0.4, 0.3, 0.2, 0.1)}
PERIODS_S = {"long": 0.3, "short": 0.01}


def probes(group: Group) -> dict[str, Probe]:
    """Return probes by weights and period, and a replay."""
    ranks = group.size
    run: dict[str, Any] = {
        "shares": SHARES[ranks],
        "seconds": (SLOW_S, *[FAST_S] * (ranks - 1)),
        "steps": 900 * (ranks - 1),
    }
    results = {
        f"{weights}, {period}": probe(group, name=f"{weights}, {period}", weights=weights, every_s=every_s, **run)
        for period, every_s in PERIODS_S.items()
        for weights in ("paper", "share")
    }
    replay = results["share, long"]
    results["replay"] = probe(group, name="replay", weights="share", every_s=0.3, replay=replay, **run)
    return {**results, "ends early": end_early(group)}


def end_early(group: Group) -> Probe:
    """Make fixed numbers of steps, few on rank 0."""
    coefficients = torch.zeros(group.size, dtype=torch.float64)
    share, every_s = SHARES[group.size][group.rank], 0.005
    averager = averager_for(
        group, coefficients, every_s=every_s, newest_state=ControlState, name="early", share=share, weights="share"
    )
    for _ in range(LATE if group.rank else EARLY):
        time.sleep(FAST_S)
        coefficients[group.rank] += averager.scale
        averager.control()
    averager.finish()
    return Probe(averager.step, averager.applied_rounds(), [], coefficients)


@pytest.fixture(scope="module", params=[2, 4])
def seen(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return in_groups(probes, request.param)


def global_loss(coefficients: Tensor) -> float:
    """Mean squared distance of the model from the constants of all ranks, weighted by their shares."""
    ranks = len(coefficients) - 1
    distances = (coefficients - torch.eye(ranks + 1, dtype=torch.float64)[:ranks]).square().sum(dim=1)
    return float(distances @ torch.tensor(SHARES[ranks], dtype=torch.float64))


@pytest.mark.parametrize("period", PERIODS_S)
def test_with_shares_each_part_has_its_share_of_the_final_model(seen: list[dict[str, Any]], period: str) -> None:
    found = seen[0][f"share, {period}"]
    assert found.steps < seen[1][f"share, {period}"].steps / 2, "else there is no straggler"
    assert found.coefficients[:-1].tolist() == pytest.approx(SHARES[len(seen)], abs=0.03)
    assert found.coefficients[-1] < 0.03, "the start is forgotten"


@pytest.mark.parametrize("period", PERIODS_S)
def test_the_loss_over_all_parts_is_not_worse_with_shares(seen: list[dict[str, Any]], period: str) -> None:
    paper, share = (global_loss(seen[0][f"{weights}, {period}"].coefficients) for weights in ("paper", "share"))
    assert share < paper


@pytest.mark.parametrize("period", PERIODS_S)
def test_with_equal_weights_the_straggler_s_part_has_less(seen: list[dict[str, Any]], period: str) -> None:
    assert seen[0][f"paper, {period}"].coefficients[0] < 0.8 / len(seen)
    assert {one.weight for one in seen[0][f"paper, {period}"].rounds} <= {0.0, 1.0}
    assert set(seen[0][f"paper, {period}"].scales) == {1.0}


def test_ranks_end_with_one_model(seen: list[dict[str, Any]]) -> None:
    for name, found in seen[0].items():
        assert all(torch.equal(other[name].coefficients, found.coefficients) for other in seen[1:])


def test_a_round_without_a_step_of_some_rank_is_no_average(seen: list[dict[str, Any]]) -> None:
    first, *others = (found["ends early"].rounds for found in seen)
    late = [one for one in first if one.joined_step == EARLY and one.gathered and not one.is_last]
    assert late[1:] and not any(one.weight for one in late[1:])
    for rounds in others:
        assert [one.number for one in rounds if one.weight] == [one.number for one in first if one.weight]
        assert [one.number for one in rounds] == [one.number for one in first]
        assert rounds[-1].joined_step == LATE and rounds[-1].weight


def test_the_straggler_keeps_its_rate_and_the_others_make_smaller_steps(seen: list[dict[str, Any]]) -> None:
    slow, *others = (found["share, long"].scales for found in seen)
    assert set(slow) == {1.0}
    for scales in others:
        assert scales[0] == 1.0 and 0 < min(scales) < 0.5


def test_a_replay_of_shares_gives_the_same_bits(seen: list[dict[str, Any]]) -> None:
    for found in seen:
        first, again = found["share, long"], found["replay"]
        assert (again.rounds, again.scales) == (first.rounds, first.scales)
        assert torch.equal(again.coefficients, first.coefficients)
