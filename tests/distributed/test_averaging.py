"""Model averaging that never blocks: a slow rank, an early one, a dead one; the arithmetic; the replay."""

from __future__ import annotations

import signal

import pytest
import spawn
import torch

from dtdg_lab.comm.averaging import ModelAverager, Round
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.testing.processes import Death, RanksError, run_ranks

# rank 2 takes ten times as long a step; rank 1 ends long before the others
STEPS = {0: 300, 1: 100, 2: 30, 3: 300}
STEP_S = {0: 0.005, 1: 0.005, 2: 0.05, 3: 0.005}


@pytest.fixture(scope="module")
def uneven() -> list[dict]:
    """One run of four ranks at their own pace, looked at by several tests."""
    return run_ranks(spawn.average_at_own_pace, 4, STEPS, STEP_S, 0.1)


def test_no_step_waits_for_a_round(uneven: list[dict]) -> None:
    for rank in (0, 1, 3):
        seen = uneven[rank]
        assert seen["step_s"] <= 1.2 * seen["work_s"] + 0.002
        # a median hides the one step in twenty that joins a round; waiting there for the slow rank would take 25 ms
        assert seen["control_share"] < 0.12


def test_every_rank_joins_every_round_once(uneven: list[dict]) -> None:
    numbers = [[one.number for one in seen["rounds"]] for seen in uneven]
    assert numbers[0] == list(range(1, len(numbers[0]) + 1))
    assert all(own == numbers[0] for own in numbers)
    assert len(numbers[0]) >= 5
    for rank, seen in enumerate(uneven):
        steps = [step for one in seen["rounds"] for step in (one.joined_step, one.applied_step)]
        assert steps == sorted(steps)
        assert max(steps) <= STEPS[rank]


def test_ended_ranks_join_with_weight_zero(uneven: list[dict]) -> None:
    for rank, seen in enumerate(uneven):
        weights = [one.weight for one in seen["rounds"]]
        assert weights == sorted(weights, reverse=True)
        assert all(one.joined_step == STEPS[rank] for one in seen["rounds"] if one.weight == 0)
    assert sum(one.weight == 0 for one in uneven[1]["rounds"]) > sum(one.weight == 0 for one in uneven[0]["rounds"])


def test_a_mean_that_waits_for_the_slow_rank_is_stale_on_the_fast_ones(uneven: list[dict]) -> None:
    staleness = [max(one.staleness for one in seen["rounds"]) for seen in uneven]
    assert staleness[0] >= 2
    assert staleness[2] <= 2


def test_all_ranks_end_with_one_model(uneven: list[dict]) -> None:
    for seen in uneven[1:]:
        assert torch.equal(seen["parameters"], uneven[0]["parameters"])
    assert not torch.equal(uneven[0]["before_finish"], uneven[1]["before_finish"])


def test_bytes_follow_the_formula_of_the_ring(uneven: list[dict]) -> None:
    for seen in uneven:
        reduced = (len(seen["rounds"]) + 1) * (1000 + 1) * 8  # one more: the round that ends all
        assert seen["bytes_sent"] == pytest.approx(2 * reduced * 3 / 4, abs=len(seen["rounds"]) + 1)


def test_replay_of_the_log_gives_the_same_bits(uneven: list[dict]) -> None:
    logs = [seen["rounds"] for seen in uneven]
    for rank, (parameters, rounds) in enumerate(run_ranks(spawn.replay_at_own_pace, 4, STEPS, logs)):
        assert torch.equal(parameters, uneven[rank]["parameters"])
        assert rounds == logs[rank]


@pytest.fixture(scope="module")
def pair() -> list[dict]:
    """What two ranks saw of three small cases."""
    return run_ranks(spawn.pair, 2, 40)


def test_one_round_by_hand(pair: list[dict]) -> None:
    # copies 1 and 3, mean 2; own steps +10 and +20 meanwhile are kept: 1 + 10 + (2 - 1), 3 + 20 + (2 - 3)
    results = [seen["by hand"] for seen in pair]
    assert [after for after, _ in results] == [[12.0], [22.0]]
    assert [end for _, end in results] == [[17.0], [17.0]]


def test_averaging_after_every_sgd_step_is_gradient_averaging(pair: list[dict]) -> None:
    for averaged, synchronous, rounds in (seen["every step"] for seen in pair):
        torch.testing.assert_close(averaged, synchronous, rtol=1e-12, atol=1e-12)
        assert rounds == 40


def test_period_zero_goes_on_when_rank_0_has_ended(pair: list[dict]) -> None:
    results = [seen["early end"] for seen in pair]
    assert [rounds for rounds, _ in results] == [2, 5]
    # mean of 0 and 1, plus 2 steps together; then rank 1 steps 3 times more and rank 0 follows it
    for _, parameters in results:
        torch.testing.assert_close(parameters, torch.full((3,), 5.5, dtype=torch.float64))


@pytest.mark.parametrize(("victim", "when"), [(2, "round"), (0, "round"), (1, "finish")])
def test_a_killed_rank_is_named_within_the_limit(victim: int, when: str) -> None:
    limit_s = 2.0
    results = run_ranks(spawn.killed_at, 4, victim, when, limit_s, may_die=(victim,))
    assert results.pop(victim) == Death(-signal.SIGKILL)
    for reason, after_s in results:
        assert f"Rank {victim} has given no sign of life" in reason
        assert "resume" in reason
        assert after_s < limit_s + 0.5  # the limit, and what a busy machine adds


def test_the_reason_of_a_rank_that_raises_reaches_the_others() -> None:
    results = run_ranks(spawn.fail_while_averaging, 2)
    assert results[1] == "loss is NaN"
    assert "ValueError: loss is NaN" in results[0]


def test_a_name_serves_one_averager_on_a_store() -> None:
    with pytest.raises(RanksError, match="name of its own"):
        run_ranks(_two_averagers_of_one_name, 1)


def _two_averagers_of_one_name(rank: int, ranks: int, address: str) -> None:
    group = spawn.join_group(rank, ranks, address)
    for _ in range(2):
        ModelAverager(torch.zeros(1), group=spawn.dist.group.WORLD, store=group.store, every_s=1.0, limit_s=2.0).close()


@pytest.mark.parametrize(
    ("parameters", "every_s", "limit_s"),
    [
        ([], 1.0, 1.0),
        ([torch.zeros(1), torch.zeros(1, dtype=torch.float64)], 1.0, 1.0),
        (torch.zeros(1), -1.0, 1.0),
        (torch.zeros(1), 1.0, 0.0),
    ],
)
def test_what_cannot_be_averaged_is_refused(parameters: object, every_s: float, limit_s: float) -> None:
    with pytest.raises(ConfigError):
        ModelAverager(parameters, group=None, store=None, every_s=every_s, limit_s=limit_s)  # type: ignore[arg-type]


def test_staleness_counts_steps() -> None:
    assert Round(3, 10, 14).staleness == 4
