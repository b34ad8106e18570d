"""Model averaging that never blocks: a slow rank, an early one, a dead one; the arithmetic, the words, the replay."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from dtdg_lab.core.errors import ConfigError, RunFailedError
from dtdg_lab.distributed.averager import ControlState, Round
from dtdg_lab.distributed.group import Group, ProcessGroup
from dtdg_lab.distributed.model_averaging import ModelAverager, averager_for
from dtdg_lab.distributed.store import reach_store
from dtdg_lab.testing.processes import Death, RanksError, join_group, run_ranks
from tests.distributed.groups import in_groups
from tests.thinning import thinned


def start_of(rank: int, size: int = 1000, dtype: torch.dtype = torch.float64) -> Tensor:
    """Parameters a rank starts with, different on each."""
    return torch.randn(size, generator=torch.Generator().manual_seed(rank), dtype=dtype)


def one_step(parameters: Tensor, rank: int, choice: int = 0) -> None:
    """A step of local training: towards a target of the rank's own, as fast as a choice says."""
    parameters.sub_(0.005 * (1 + choice % 3) * (parameters - rank))


def averager_of(group: ProcessGroup, parameters: Tensor | list[Tensor], **options: Any) -> ModelAverager:
    """As tests want it: with a limit of its own, and nothing asked for unless said."""
    return ModelAverager(
        parameters,
        group=dist.new_group(),
        store=group.store,
        **{"every_s": 1.0, "limit_s": 20.0, "newest_state": ControlState, "name": "test"} | options,
    )


def average_at_own_pace(
    group: Group, steps: dict[int, int], step_s: dict[int, float], every_s: float
) -> dict[str, Any]:
    """Train with averaging; returns what the rank saw. ``step_s`` is time asleep inside a step, as work would be."""
    parameters = start_of(group.rank)

    def asked() -> ControlState:
        assert group.rank == 0, "only rank 0 is asked"
        return ControlState(averager.step // 40, averager.step // 15)

    averager = averager_of(group, parameters, every_s=every_s, newest_state=asked, name="pace")
    work_s, step_took_s, received = [], [], []
    for _ in range(steps[group.rank]):
        began = time.perf_counter()
        time.sleep(step_s[group.rank])
        one_step(parameters, group.rank, averager.agreed.choice)
        worked = time.perf_counter()
        averager.control()
        work_s.append(worked - began)
        step_took_s.append(time.perf_counter() - began)
        received.append(averager.agreed)
    before_finish = parameters.clone()
    averager.finish()
    averager.finish()  # a second call does nothing
    group.barrier()
    together_s = [_step_together(group, step_s[group.rank]) for _ in range(8)]
    return {
        "rounds": averager.rounds,
        "bytes_sent": averager.bytes_sent,
        "work_s": sorted(work_s)[len(work_s) // 2],
        "step_s": sorted(step_took_s)[len(step_took_s) // 2],
        "together_s": sorted(together_s)[len(together_s) // 2],
        "control_share": (sum(step_took_s) - sum(work_s)) / sum(work_s),
        "heard": received,
        "agreed": averager.agreed,
        "before_finish": before_finish,
        "parameters": parameters,
    }


def _step_together(group: ProcessGroup, step_s: float) -> float:
    """Seconds of a step with an all-reduce, which averaging stands in for."""
    began = time.perf_counter()
    time.sleep(step_s)
    group.all_reduce(torch.zeros(1000, dtype=torch.float64))
    return time.perf_counter() - began


def replay_at_own_pace(
    group: Group, steps: dict[int, int], logs: list[list[Round]]
) -> tuple[Tensor, list[Round], list[ControlState]]:
    """The same training fed with the logged rounds, at another pace (none); whoever asks for a word is wrong."""
    parameters, received = start_of(group.rank), []
    with averager_of(group, parameters, newest_state=_nobody_asks, replay=logs[group.rank]) as averager:
        for _ in range(steps[group.rank]):
            one_step(parameters, group.rank, averager.agreed.choice)
            averager.control()
            received.append(averager.agreed)
    return parameters, averager.rounds, received


def _nobody_asks() -> ControlState:
    raise AssertionError("a replay asks nobody")


def follow_words(group: Group, changes: int) -> dict[str, Any]:
    """Rank 0 makes a change in every step of its own; all step, by what they hear, until they know of the last one."""
    parameters = start_of(group.rank, 50)

    def asked() -> ControlState:
        return ControlState(min(averager.step, changes), averager.step % 9)

    averager = averager_of(group, parameters, every_s=0.002, newest_state=asked)
    seen, applied = 0, 0
    while averager.agreed.version < changes:
        one_step(parameters, group.rank, averager.agreed.choice)
        averager.control()
        applied += averager.agreed.version - seen
        seen = averager.agreed.version
        time.sleep(0.001)
    averager.finish()
    return {
        "words": [(one.number, one.control_state) for one in averager.applied_rounds()],
        "applied": applied,
        "end": parameters,
    }


def pause_and_stop(group: Group) -> dict[str, Any]:
    """A period of a minute: a pause, a shorter period while paused, going on, and a stop, all at rank 0's word.

    Versions: 1 pauses, 2 goes on, 3 stops. Returns the seconds between asking for each and knowing of it, and the log.
    """
    parameters = start_of(group.rank)
    asked_s: dict[int, float] = {}
    knew_s: dict[int, float] = {}
    wanted = [0]

    def ask(version: int) -> None:
        wanted[0] = version
        asked_s[version] = time.monotonic()

    averager = averager_of(group, parameters, every_s=60.0, newest_state=lambda: ControlState(wanted[0], 7 * wanted[0]))
    periods_s = set()
    idle_rounds = paused_step = 0
    while averager.agreed.version < 3:
        time.sleep(0.001)
        knew_s.setdefault(averager.agreed.version, time.monotonic())
        periods_s.add(averager.every_s)
        if averager.agreed.version == 1:
            paused_step = averager.step
            averager.idle()
            idle_rounds = len(averager.rounds)
            if group.rank == 0 and idle_rounds == 1:
                averager.every_s = 0.01
            if group.rank == 0 and idle_rounds == 20:
                averager.every_s = 60.0
                ask(2)
            continue
        one_step(parameters, group.rank, averager.agreed.choice)
        averager.control()
        if group.rank == 0 and averager.step in (30, paused_step + 30):
            ask(1 if averager.agreed.version == 0 else 3)
    knew_s.setdefault(3, time.monotonic())
    step = averager.step
    averager.finish()
    return {
        "asked_s": asked_s,
        "knew_s": knew_s,
        "paused_step": paused_step,
        "periods_s": periods_s,
        "step": step,
        "rounds": averager.applied_rounds(),
        "left": averager.applied_rounds(),
        "parameters": parameters,
    }


def one_after_another(group: Group) -> dict[str, Any]:
    """Three averagers of one group, as a run has them whose model is built anew; the last without a step between."""
    parameters = start_of(group.rank)
    start, step, logs, ends = ControlState(), 0, [], []
    kept = []
    for number, steps in enumerate((20, 30, 0)):
        word = ControlState(start.version + 1, number)
        averager = averager_for(
            group,
            parameters,
            every_s=0.01,
            newest_state=lambda word=word: word,
            name=f"a{number}",
            start=start,
            step=step,
        )
        with averager:
            for _ in range(steps):
                time.sleep(0.001)
                one_step(parameters, group.rank, averager.agreed.choice)
                averager.control()
        kept.append(group.second_group())
        start, step = averager.agreed, averager.step
        logs.append(averager.applied_rounds())
        ends.append((averager.agreed, averager.step, parameters.clone()))
    counted = (group.bytes_sent, group.bytes_received)
    same = all(one[0] is kept[0][0] and one[1] is kept[0][1] for one in kept)
    return {"logs": logs, "ends": ends, "counted": counted, "same": same, "own_store": kept[0][1] is not group.store}


def replay_of_another(rank: int, ranks: int, address: str) -> str:
    """Rounds of a run with other steps."""
    group = join_group(rank, ranks, address)
    try:
        with averager_of(
            group, start_of(rank), newest_state=_nobody_asks, limit_s=10.0, replay=[Round(1, 4, 5)]
        ) as averager:
            for _ in range(2 if rank == 0 else 5):
                averager.control()
    except (ConfigError, RunFailedError) as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"rank {rank} followed it")


def three_cases(group: Group, steps: int) -> dict[str, Any]:
    """Three small cases on one pair of processes, since starting them costs most."""
    results = {
        "by hand": mean_by_hand(group),
        "every step": average_after_every_step(group, steps),
        "early end": blocking_with_an_early_end(group),
    }
    return results


def average_after_every_step(group: ProcessGroup, steps: int) -> tuple[Tensor, Tensor, int]:
    """Plain SGD averaged after every step, and the same with gradients averaged before every step."""
    rank, ranks = group.rank, group.size
    data = start_of(100 + rank, 40).reshape(10, 4)
    averaged, synchronous = start_of(7, 4), start_of(7, 4)
    parts = [averaged[:1], averaged[1:].view(3, 1)]  # a list of tensors is averaged in place
    averager = averager_of(group, parts, every_s=0.0, name="average_after_every_step")
    for _ in range(steps):
        averaged.sub_(0.05 * _gradient(averaged, data))
        averager.control()
        gradient = _gradient(synchronous, data)
        dist.all_reduce(gradient)
        synchronous.sub_(0.05 * gradient / ranks)
    rounds = len(averager.rounds)
    averager.finish()
    return averaged, synchronous, rounds


def _gradient(parameters: Tensor, data: Tensor) -> Tensor:
    """Of the mean of (data @ parameters - 1) ** 2 / 2 over rows."""
    return data.T @ (data @ parameters - 1.0) / len(data)


def blocking_with_an_early_end(group: ProcessGroup) -> tuple[int, Tensor]:
    """Period 0 with unequal numbers of steps: rank 0 ends first, the others go on averaging."""
    rank = group.rank
    parameters = torch.full((3,), float(rank), dtype=torch.float64)
    averager = averager_of(group, parameters, every_s=0.0, name="blocking_with_an_early_end")
    with averager:
        for _ in range(2 if rank == 0 else 5):
            parameters += 1.0
            averager.control()
    return len([one for one in averager.rounds if one.weight and not one.is_last]), parameters


def mean_by_hand(group: ProcessGroup) -> tuple[list[float], list[float]]:
    """One round by the book: join at (1 and 3), step by +10 meanwhile, apply, then end."""
    rank = group.rank
    parameters = torch.tensor([1.0, 3.0][rank]).reshape(1)
    averager = averager_of(group, parameters, name="mean_by_hand", replay=[Round(1, 1, 2)])
    averager.control()
    parameters += 10.0 * (rank + 1)
    averager.control()
    after_round = parameters.tolist()
    averager.finish()
    return after_round, parameters.tolist()


def die_while_averaging(
    rank: int, ranks: int, address: str, victim: int, when: str, limit_s: float
) -> tuple[str, float]:
    """``victim`` kills itself in a round (after joining it) or while the others are in finish().

    Returns the survivor's error and the second on the machine's clock at which it was raised.
    """
    group = join_group(rank, ranks, address)
    parameters = start_of(rank, 200_000, torch.float32)
    averager = averager_of(group, parameters, every_s=0.05, limit_s=limit_s)
    try:
        for step in range(10_000):
            time.sleep(0.002)
            if rank == victim and step == 100:
                _kill_self(averager, group.store, in_round=when == "round")
            if when == "finish" and rank != victim and step == 50:
                break
            averager.control()
        averager.finish()
    except RunFailedError as error:
        return str(error), time.monotonic()
    raise AssertionError(f"rank {rank} saw no failure")


def _kill_self(averager: ModelAverager, store: Any, *, in_round: bool) -> None:
    while in_round and averager._flight is None:  # the next round is joined, and nobody has finished it without us
        averager._apply_if_complete()
        averager._serve()
    store.set("killed_ns", str(time.monotonic_ns()))
    os.kill(os.getpid(), signal.SIGKILL)


def killed_at(rank: int, ranks: int, address: str, *args: Any) -> tuple[str, float]:
    """As :func:`die_while_averaging`, with seconds since the kill."""
    reason, raised_s = die_while_averaging(rank, ranks, address, *args)
    return reason, raised_s - int(reach_store(address, ranks).get("killed_ns")) * 1e-9


def fail_while_averaging(rank: int, ranks: int, address: str) -> tuple[str, float]:
    """Rank 1 raises inside the block; the others must name its reason. Returns it and when it was known, in seconds.

    The limit is a run's, a minute: beats alone would tell of it after seven seconds.
    """
    group = join_group(rank, ranks, address)
    parameters = start_of(rank)
    try:
        with averager_of(group, parameters, every_s=0.05, limit_s=60.0) as averager:
            for step in range(10_000):
                time.sleep(0.002)
                if rank == 1 and step == 60:
                    raise ValueError("loss is NaN")
                averager.control()
    except (RunFailedError, ValueError) as error:
        raised_s = time.monotonic()
        time.sleep(0.5)  # the connection stays: nobody hears of the failure from the network
        return str(error), raised_s
    raise AssertionError(f"rank {rank} saw no failure")


def lose_a_rank_of_a_run(rank: int, ranks: int, address: str) -> tuple[str, float]:
    """Rank 1 is killed in a round; the other says when it knows, by the network's account alone."""
    group = join_group(rank, ranks, address)
    averager = averager_for(group, start_of(rank), every_s=0.05, newest_state=ControlState, name="run")
    assert isinstance(averager, ModelAverager)
    try:
        for step in range(10_000):
            time.sleep(0.002)
            if rank == 1 and step == 50:
                _kill_self(averager, group.store, in_round=True)
            averager.control()
    except RuntimeError as error:  # as engines catch it, to name the dead
        assert isinstance(error, RunFailedError)
        return str(error), time.monotonic() - int(group.store.get("killed_ns")) * 1e-9
    raise AssertionError(f"rank {rank} saw no failure")


# rank 2 takes ten times as long a step; rank 1 ends long before the others
STEPS = {0: 300, 1: 100, 2: 30, 3: 300}
STEP_S = {0: 0.005, 1: 0.005, 2: 0.05, 3: 0.005}


@pytest.fixture(scope="module")
def uneven() -> list[dict]:
    """One run of four ranks at their own pace, looked at by several tests."""
    return in_groups(average_at_own_pace, 4, STEPS, STEP_S, 0.1)


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


def test_models_count_alike_unless_they_are_those_of_the_round_before(uneven: list[dict]) -> None:
    for rank, seen in enumerate(uneven):
        *rounds, of_all = seen["rounds"]
        before = [0, *(one.joined_step for one in rounds[:-1])]
        assert [one.weight for one in rounds] == [one.joined_step > at for one, at in zip(rounds, before, strict=True)]
        assert all(one.joined_step == STEPS[rank] and one.gathered for one in rounds if one.weight == 0)
        assert of_all.weight == 1.0 and of_all.gathered, "all count in the round of all"
    assert sum(one.weight == 0 for one in uneven[1]["rounds"]) > sum(one.weight == 0 for one in uneven[0]["rounds"])
    assert sum(one.gathered for one in uneven[1]["rounds"]) > sum(one.gathered for one in uneven[0]["rounds"])


def test_all_ranks_hear_the_same_words(uneven: list[dict]) -> None:
    words = [one.control_state for one in uneven[0]["rounds"]]
    assert words == sorted(words)
    assert len(set(words)) >= 5
    for rank, seen in enumerate(uneven):
        assert [one.control_state for one in seen["rounds"]] == words
        assert seen["agreed"] == words[-1] == ControlState(STEPS[0] // 40, STEPS[0] // 15)
        # a step follows the word of the last round that this rank had applied
        applied = {one.applied_step: one.control_state for one in seen["rounds"] if one.applied_step < STEPS[rank]}
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
    for rank, (parameters, rounds, received) in enumerate(in_groups(replay_at_own_pace, 4, STEPS, logs)):
        assert torch.equal(parameters, uneven[rank]["parameters"])
        assert rounds == logs[rank]
        assert received[:-1] == uneven[rank]["heard"][:-1]  # finish() may have applied a round at the last step


def test_a_thousand_changes_without_disagreement() -> None:
    first, *others = in_groups(follow_words, 4, 1000)
    assert len(first["words"]) >= 20
    assert first["words"][-1][1].version == 1000
    assert all(seen["words"] == first["words"] for seen in others)
    assert all(seen["applied"] == 1000 for seen in (first, *others))
    assert all(torch.equal(seen["end"], first["end"]) for seen in others)


@pytest.fixture(scope="module")
def paused() -> list[dict]:
    """Two ranks with a period of a minute that pause, go on and stop."""
    return in_groups(pause_and_stop, 2)


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
    for rank, (parameters, rounds, _) in enumerate(in_groups(replay_at_own_pace, 2, steps, logs)):
        assert torch.equal(parameters, paused[rank]["parameters"])
        assert rounds == logs[rank]


def test_averagers_follow_one_another_on_one_group() -> None:
    results = in_groups(one_after_another, 2)
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
    validate_settings, consequence = run_ranks(replay_of_another, 2)
    assert validate_settings.startswith("ConfigError: replay: round 1 was joined at step 4")
    assert "does not fit step 2" in validate_settings
    assert "does not fit step 2" in consequence


@pytest.fixture(scope="module")
def pair() -> list[dict]:
    """What two ranks saw of three small cases."""
    return in_groups(three_cases, 2, 40)


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
    limit_s = 6.0
    results = run_ranks(killed_at, 4, victim, when, limit_s, may_die=(victim,))
    assert results.pop(victim) == Death(-signal.SIGKILL)
    for reason, after_s in results:
        assert f"Rank {victim} has given no sign of life" in reason
        assert "resume" in reason
        assert after_s < limit_s + 5.0  # the limit, and what a busy machine adds


def test_the_reason_of_a_rank_that_raises_reaches_the_others() -> None:
    (described, told_s), (reason, raised_s) = run_ranks(fail_while_averaging, 2)
    assert reason == "loss is NaN"
    assert "ValueError: loss is NaN" in described
    assert told_s - raised_s < 4.0  # missing heartbeats would take seven seconds


def test_a_dead_rank_of_a_run_is_an_error_before_its_limit() -> None:
    (reason, after_s), death = run_ranks(lose_a_rank_of_a_run, 2, may_die=(1,))
    assert death == Death(-signal.SIGKILL)
    assert "failed on rank 0. The rank that caused it is unknown." in reason
    assert after_s < 5.0  # missing heartbeats would take seven seconds


def test_a_name_serves_one_averager_on_a_store() -> None:
    with pytest.raises(RanksError, match="its own name"):
        run_ranks(_two_averagers_of_one_name, 1)


def _two_averagers_of_one_name(rank: int, ranks: int, address: str) -> None:
    group = join_group(rank, ranks, address)
    for _ in range(2):
        averager_of(group, torch.zeros(1), limit_s=2.0).close()


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
