"""Model averaging that never blocks: a slow rank, an early one, a dead one; the arithmetic, the words, the replay."""

from __future__ import annotations

import signal

import pytest
import torch

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.distributed.averager import ControlState, Round
from dtdg_lab.distributed.model_averaging import ModelAverager
from dtdg_lab.testing.processes import Death, RanksError, run_ranks
from tests.distributed import spawn
from tests.distributed.groups import in_groups
from tests.thinning import thinned

# rank 2 takes ten times as long a step; rank 1 ends long before the others
STEPS = {0: 300, 1: 100, 2: 30, 3: 300}
STEP_S = {0: 0.005, 1: 0.005, 2: 0.05, 3: 0.005}


@pytest.fixture(scope="module")
def uneven() -> list[dict]:
    """One run of four ranks at their own pace, looked at by several tests."""
    return in_groups(spawn.average_at_own_pace, 4, STEPS, STEP_S, 0.1)


@pytest.mark.slow
def test_no_step_waits_for_a_round(uneven: list[dict]) -> None:
    for rank in (0, 1, 3):
        seen = uneven[rank]
        assert seen["step_s"] <= 1.2 * seen["work_s"] + 0.002
        # a median hides the one step in twenty that joins a round; waiting there for the slow rank would take 25 ms
        assert seen["control_share"] < 0.12


def test_an_all_reduce_in_every_step_waits_for_the_slow_rank(uneven: list[dict]) -> None:
    for rank in (0, 1, 3):
        assert uneven[rank]["together_s"] > 0.8 * STEP_S[2]
        assert uneven[rank]["step_s"] < 0.6 * uneven[rank]["together_s"]


def test_every_rank_joins_every_round_once(uneven: list[dict]) -> None:
    numbers = [[one.number for one in seen["rounds"]] for seen in uneven]
    assert numbers[0] == [*range(1, len(numbers[0])), 0]  # the round of all comes last
    assert all(own == numbers[0] for own in numbers)
    assert len(numbers[0]) >= 6
    for rank, seen in enumerate(uneven):
        steps = [step for one in seen["rounds"] for step in (one.joined_step, one.applied_step)]
        assert steps == sorted(steps)
        assert max(steps) <= STEPS[rank]


def test_a_model_counts_by_the_steps_since_the_round_before(uneven: list[dict]) -> None:
    for rank, seen in enumerate(uneven):
        *rounds, of_all = seen["rounds"]
        before = [0, *(one.joined_step for one in rounds[:-1])]
        assert [one.weight for one in rounds] == [one.joined_step - at for one, at in zip(rounds, before, strict=True)]
        assert all(one.joined_step == STEPS[rank] and one.gathered for one in rounds if one.weight == 0)
        assert of_all.weight == 1.0 and of_all.gathered, "in the round of all, by shares of the nodes"
    assert sum(one.weight == 0 for one in uneven[1]["rounds"]) > sum(one.weight == 0 for one in uneven[0]["rounds"])
    assert sum(one.gathered for one in uneven[1]["rounds"]) > sum(one.gathered for one in uneven[0]["rounds"])


def test_all_ranks_hear_the_same_words(uneven: list[dict]) -> None:
    words = [one.word for one in uneven[0]["rounds"]]
    assert words == sorted(words)
    assert len(set(words)) >= 5
    for rank, seen in enumerate(uneven):
        assert [one.word for one in seen["rounds"]] == words
        assert seen["agreed"] == words[-1] == ControlState(STEPS[0] // 40, STEPS[0] // 15)
        # a step follows the word of the last round that this rank had applied
        applied = {one.applied_step: one.word for one in seen["rounds"] if one.applied_step < STEPS[rank]}
        assert {step: seen["heard"][step - 1] for step in applied} == applied


def test_a_mean_that_waits_for_the_slow_rank_is_stale_on_the_fast_ones(uneven: list[dict]) -> None:
    staleness = [max(one.staleness for one in seen["rounds"]) for seen in uneven]
    assert staleness[0] >= 2
    assert staleness[0] > staleness[2]


def test_all_ranks_end_with_one_model(uneven: list[dict]) -> None:
    for seen in uneven[1:]:
        assert torch.equal(seen["parameters"], uneven[0]["parameters"])
    assert not torch.equal(uneven[0]["before_finish"], uneven[1]["before_finish"])


def test_bytes_follow_the_formula_of_the_ring(uneven: list[dict]) -> None:
    for seen in uneven:
        reduced = len(seen["rounds"]) * (1000 + 4) * 8  # four slots: weights, version, choice, period
        assert seen["bytes_sent"] == pytest.approx(2 * reduced * 3 / 4, abs=len(seen["rounds"]))


def test_replay_of_the_log_gives_the_same_bits(uneven: list[dict]) -> None:
    logs = [seen["rounds"] for seen in uneven]
    for rank, (parameters, rounds, received) in enumerate(in_groups(spawn.replay_at_own_pace, 4, STEPS, logs)):
        assert torch.equal(parameters, uneven[rank]["parameters"])
        assert rounds == logs[rank]
        assert received[:-1] == uneven[rank]["heard"][:-1]  # finish() may have applied a round at the last step


def test_a_thousand_changes_without_disagreement() -> None:
    first, *others = in_groups(spawn.follow_words, 4, 1000)
    assert len(first["words"]) >= 100
    assert first["words"][-1][1].version == 1000
    assert all(seen["words"] == first["words"] for seen in others)
    assert all(seen["applied"] == 1000 for seen in (first, *others))
    assert all(torch.equal(seen["end"], first["end"]) for seen in others)


@pytest.fixture(scope="module")
def paused() -> list[dict]:
    """Two ranks with a period of a minute that pause, go on and stop."""
    return in_groups(spawn.pause_and_stop, 2)


def test_a_word_is_heard_at_once_whatever_the_period(paused: list[dict]) -> None:
    for seen in paused:
        for version in (1, 2, 3):
            assert seen["knew_s"][version] - paused[0]["asked_s"][version] < 5.0  # of a period of a minute


def test_a_paused_rank_serves_rounds_without_stepping(paused: list[dict]) -> None:
    for seen in paused:
        idle = [one for one in seen["rounds"] if one.version == 1 and not one.is_last]
        assert len(idle) >= 20
        assert {one.applied_step for one in idle} == {seen["paused_step"]}
        assert seen["step"] > seen["paused_step"]
        assert seen["left"] == []  # taken once


def test_the_period_is_rank_0s_and_changes_while_running(paused: list[dict]) -> None:
    # rank 1 never set anything; twenty rounds at 60 s would take twenty minutes
    assert [seen["periods_s"] for seen in paused] == [{60.0, 0.01}] * 2
    for seen in paused:  # each version calls one round, and there is none besides but the one of all
        assert [one.version for one in seen["rounds"] if one.version > 1 and not one.is_last] == [2, 3]


def test_replay_of_a_pause_gives_the_same_bits(paused: list[dict]) -> None:
    steps = {rank: seen["step"] for rank, seen in enumerate(paused)}
    logs = [seen["rounds"] for seen in paused]
    for rank, (parameters, rounds, _) in enumerate(in_groups(spawn.replay_at_own_pace, 2, steps, logs)):
        assert torch.equal(parameters, paused[rank]["parameters"])
        assert rounds == logs[rank]


def test_averagers_follow_one_another_on_one_group() -> None:
    results = in_groups(spawn.one_after_another, 2)
    for seen in results:
        assert [[one.is_last for one in log].count(True) for log in seen["logs"]] == [1, 1, 1]
        assert all(log[-1].is_last for log in seen["logs"])
        assert [step for _, step, _ in seen["ends"]] == [20, 50, 50]
        assert [word for word, _, _ in seen["ends"]] == [ControlState(1, 0), ControlState(2, 1), ControlState(3, 2)]
        assert seen["same"] and seen["own_store"]
        reduced = sum(len(log) for log in seen["logs"]) * (1000 + 4) * 8
        assert seen["counted"] == (reduced, reduced)  # 2 b (R - 1) / R with two ranks
    for (_, _, one), (_, _, other) in zip(results[0]["ends"], results[1]["ends"], strict=True):
        assert torch.equal(one, other)


def test_rounds_of_another_run_are_refused() -> None:
    validate_settings, consequence = run_ranks(spawn.replay_of_another, 2)
    assert validate_settings.startswith("ConfigError: replay: round 1 was joined at step 4")
    assert "cannot be followed at step 2" in validate_settings
    assert "cannot be followed at step 2" in consequence


@pytest.fixture(scope="module")
def pair() -> list[dict]:
    """What two ranks saw of three small cases."""
    return in_groups(spawn.pair, 2, 40)


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


@pytest.mark.parametrize(("victim", "when"), thinned([(2, "round"), (0, "round"), (1, "finish")]))
def test_a_killed_rank_is_named_within_the_limit(victim: int, when: str) -> None:
    limit_s = 4.0
    results = run_ranks(spawn.killed_at, 4, victim, when, limit_s, may_die=(victim,))
    assert results.pop(victim) == Death(-signal.SIGKILL)
    for reason, after_s in results:
        assert f"Rank {victim} has given no sign of life" in reason
        assert "resume" in reason
        assert after_s < limit_s + 2.0  # the limit, and what a busy machine adds


def test_the_reason_of_a_rank_that_raises_reaches_the_others() -> None:
    (described, told_s), (reason, raised_s) = run_ranks(spawn.fail_while_averaging, 2)
    assert reason == "loss is NaN"
    assert "ValueError: loss is NaN" in described
    assert told_s - raised_s < 4.0  # missing heartbeats would take seven seconds


def test_a_dead_rank_of_a_run_is_an_error_before_its_limit() -> None:
    (reason, after_s), death = run_ranks(spawn.lose_a_rank_of_a_run, 2, may_die=(1,))
    assert death == Death(-signal.SIGKILL)
    assert "failed on rank 0. The rank that caused it is not known here." in reason
    assert after_s < 5.0  # missing heartbeats would take seven seconds


def test_a_name_serves_one_averager_on_a_store() -> None:
    with pytest.raises(RanksError, match="its own name"):
        run_ranks(_two_averagers_of_one_name, 1)


def _two_averagers_of_one_name(rank: int, ranks: int, address: str) -> None:
    group = spawn.join_group(rank, ranks, address)
    for _ in range(2):
        spawn.averager_of(group, torch.zeros(1), limit_s=2.0).close()


@pytest.mark.parametrize(
    ("parameters", "every_s", "limit_s"),
    [
        ([], 1.0, 1.0),
        ([torch.zeros(1), torch.zeros(1, dtype=torch.float64)], 1.0, 1.0),
        (torch.zeros(1, dtype=torch.float16), 1.0, 1.0),  # its slots would round a version
        (torch.zeros(1), -1.0, 1.0),
        (torch.zeros(1), float("nan"), 1.0),
        (torch.zeros(1), 1.0, 0.0),
    ],
)
def test_what_cannot_be_averaged_is_refused(parameters: object, every_s: float, limit_s: float) -> None:
    with pytest.raises(ConfigError):
        ModelAverager(parameters, group=None, store=None, every_s=every_s, limit_s=limit_s, newest_state=ControlState)  # type: ignore[arg-type]


def test_staleness_counts_steps() -> None:
    assert Round(3, 10, 14).staleness == 4
