"""BatchPolicys in pictures: values, choices and regret; averaging; and several runs over wall time."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hybrid_windows import BEST, check, described, evaluated, traces, window
from runs_synthetic import finished_run
from synthetic_lines import line
from targets_synthetic import (
    decision_row,
    decisions,
    dynahb_data,
    event,
    hybrid_data,
    round_row,
)  # fmt: skip

import dtdg_lab as lab
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.records import TABLES
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.run import compare
from dtdg_lab.systems.hybrid_batches.charts import RoundLog, staleness_words
from dtdg_lab.systems.hybrid_batches.events import HybridFacts
from dtdg_lab.systems.hybrid_batches.policy_charts import BatchPolicyLog, batch_policy_facts, best_words, verdict_words
from dtdg_lab.visualization.loss import near_best, near_by_seed_words, seconds_to, wall_time_figure, wall_time_words
from dtdg_lab.visualization.run_window import RunWindow
from dtdg_lab.visualization.series import RankSteps

# the batch policy


def test_a_reward_is_of_the_action_before() -> None:
    log = BatchPolicyLog()
    for number, (action, reward) in enumerate(((1, None), (2, 0.5), (2, -0.25), (1, 0.0), (0, 0.1))):
        log.row(0, named(decision_row(number, action, reward)), 1)
    facts = batch_policy_facts(log.choices(), 9)
    assert [(each.action, each.reward) for each in facts.rewards] == [(1, 0.5), (2, -0.25), (2, 0.0), (1, 0.1)]
    assert (facts.arms[1].count, facts.arms[1].mean) == (2, 0.3) and facts.arms[0] is None
    assert facts.best is None and facts.regret() == [], "none was rewarded three times"


def test_regret_is_what_the_best_would_have_earned_more() -> None:
    log = BatchPolicyLog()
    for number, (action, reward) in enumerate(((0, None), (0, 0.2), (0, 0.2), (1, 0.2), (1, 0.1), (0, 0.0))):
        log.row(0, named(decision_row(number, action, reward)), 1)
    facts = batch_policy_facts(log.choices(), 2)
    assert facts.best == 0
    assert facts.regret() == pytest.approx([0, 0, 0, 0.1, 0.3])


@pytest.mark.parametrize(
    ("late", "words"),
    [(0.05, "does not beat the best fixed size here"), (0.45, "it beats it"), (0.2, "inconclusive")],
)
def test_the_verdict_follows_from_the_rewards(late: float, words: str) -> None:
    """Size 4 earns 0.2, give or take 0.01, in the first half; then others earn ``late``, one after another."""
    log, number = BatchPolicyLog(), 0
    plan = [(BEST, 0.2)] * 20 + [(action % 3, late) for action in range(20)]
    reward = None
    for number, (action, earns) in enumerate(plan):
        log.row(0, named(decision_row(number, action, reward)), 1)
        reward = earns + 0.01 * (-1) ** number
    facts = batch_policy_facts(log.choices(), 9)
    if late == 0.45:  # the best of all arms is then one of the late ones: what it beats is size 4
        facts = type(facts)(**{name: getattr(facts, name) for name in facts.__dataclass_fields__} | {"best": BEST})
    assert words in best_words(facts, HybridFacts.read(dynahb_data()))


def test_values_choices_and_epsilon_are_drawn() -> None:
    data = dynahb_data(choice=BEST)
    shown = described(window(data, steps=5), data)
    panels = shown.view("hybrid").named_panels()
    for name in ("values", "choices", "rewards", "regret"):
        check(panels[name][0])
    values = traces(panels["values"][0])
    assert list(values) == [HybridFacts.read(data).label(action) for action in range(9)]
    assert values["20 % x 5 %"]["x"] == [5 * (number + 1) for number in range(60)]
    assert "Worth most now: 20 % x 5 %" in panels["values"][1]
    choices = traces(panels["choices"][0])
    assert len(choices["best value"]["x"]) + len(choices["drawn"]["x"]) == 60
    epsilon = choices["epsilon (right)"]["y"]
    assert epsilon[:2] == [1.0, 0.95] and epsilon[-1] == 0.1 and choices["epsilon (right)"]["yaxis"] == "y2"
    assert "dqn made 60 decisions, 67 % of them by the best value" in panels["choices"][1]
    assert list(traces(panels["regret"][0])) == ["against always 20 % x 5 %"]
    assert len(traces(panels["rewards"][0])["each"]["x"]) == 59
    assert "compare runs with fixed sizes" in shown.view("hybrid").caption()


def test_long_decisions_stay_small_and_end_with_the_newest() -> None:
    data = dynahb_data()
    shown = window(data, steps=2)
    shown.add(line("decisions", decisions(2500)))
    assert shown.view("hybrid").batch_policy().decisions == 2000
    values = shown.view("hybrid").named_panels()["values"][0]["data"][0]
    assert len(values["x"]) <= 300 and values["x"][-1] == 5 * 2500


def test_a_policy_without_values_has_its_choices() -> None:
    data = dynahb_data(batch_policy="random")
    shown = window(data, steps=2)
    rows = [decision_row(number, number % 9, 0.1, policy="random", values=[None] * 9) for number in range(9)]
    shown.add(line("decisions", rows))
    panels = shown.view("hybrid").named_panels()
    assert "this policy keeps no values" in json.dumps(panels["values"][0])
    check(panels["choices"][0])
    shown.add(line("decisions", [decision_row(20, 0, 0.1, policy="dqn")]))
    assert shown.view("hybrid").batch_policy().decisions == 9, "those of another batch_policy are not this one's"


def test_decisions_of_other_tuners_are_passed_over() -> None:
    log = BatchPolicyLog()
    log.row(
        0, {"step": 3, "policy": "greedy", "state": {"full_snapshots": 2}, "values": [], "action": {}, "reward": 0.0}, 1
    )
    assert log.choices() == []


def named(row: list[Any]) -> dict[str, Any]:
    return dict(zip(TABLES["decisions"], row, strict=True))


# averaging


def test_staleness_is_a_line_of_each_rank() -> None:
    data = dynahb_data()
    shown = described(window(data, steps=200), data)
    shown.add(line("rounds", [round_row(number, 190, 190, weight=0.0) for number in (21, 22)], rank=1))
    shown.add(line("rounds", [round_row(0, 200, 200)], rank=0))
    figure, words = shown.view("hybrid").named_panels()["staleness"]
    check(figure)
    drawn = traces(figure)
    assert drawn["rank 0"]["y"] == [1] * 20 + [0] and drawn["rank 1"]["y"] == [2] * 20 + [0, 0]
    assert drawn["rank 0"]["x"][-1] == 200, "what closes a run has number 0, and is drawn last"
    assert "stale by 1.0 on rank 0 and 2.0 on rank 1 steps on average, 2 at most; 5.6 rounds a second" in words
    assert "Rank 1 has finished and no longer contributes to the average." in words


@pytest.mark.parametrize(
    ("finished", "ended", "words"),
    [
        ((0, 1), False, "Ranks 0 and 1 have finished and no longer contribute to the average."),
        ((1,), False, "Rank 1 has finished and no longer contributes to the average."),
        ((), False, ""),
        ((0, 1), True, ""),
    ],
)
def test_only_ranks_that_wait_for_others_are_said_to_have_finished(
    finished: tuple[int, ...], ended: bool, words: str
) -> None:
    log = RoundLog()
    for rank in (0, 1, 2):
        kinds = [(1, 10, 10.0, False), (2, 10, 0.0, False)]  # a round in a pause
        kinds += [(3, 10, 0.0, True)] * (rank in finished) + [(0, 10, 0.5, True)] * ended
        for number, at, weight, gathered in kinds:
            row = {"number": number, "joined_step": at, "applied_step": at, "weight": weight, "gathered": gathered}
            log.row(rank, row, 1)
    said = staleness_words(log, RankSteps())
    assert words in said and ("finished" in said) == bool(words)


def test_rounds_a_second_follow_from_each_ranks_own_clock() -> None:
    steps = RankSteps()
    for step in range(10):
        row = {"step": step, "time_s": 0.5, "batch_s": 0.05}
        steps.row(0, row, 0.5 * step, 1)
    assert steps.at(0, 4).seconds == 2.0 and steps.at(1, 4) is None
    assert steps.batch_share() == pytest.approx(0.1) and RankSteps().batch_share() is None


# wall time


def test_losses_are_drawn_over_seconds_with_a_star_where_all_have_been() -> None:
    fast = evaluated(window(hybrid_data(), system="dbov"), [1.0, 0.5, 0.25])
    slow = evaluated(window(hybrid_data(), system="dbos"), [1.0, 0.8, 0.5, 0.45])
    evaluated(slow, [0.9], split="train")
    near = near_best([fast, slow])
    assert near == pytest.approx(1.05 * 0.25)
    assert seconds_to(fast, 0.45) == pytest.approx(0.6) and seconds_to(slow, 0.45) == pytest.approx(0.8)
    assert seconds_to(slow, 0.3) is None and near_best([fast, window()]) is None
    figure = wall_time_figure([("fast", fast), ("slow", slow)])
    check(figure)
    stars = [(t["x"], t["y"]) for t in figure["data"] if t.get("marker", {}).get("symbol") == "star"]
    assert stars == [([0.6], [near])], "what the worst run reaches says nothing of a quick one"
    below = [trace for trace in figure["data"] if trace.get("yaxis") == "y2"]
    assert below[0]["mode"] == "lines" and below[0]["y"] == [2.0], "steps where training was not evaluated"
    assert below[1]["y"] == [0.9]
    words = wall_time_words([("fast", fast), ("slow", slow)])
    assert words.startswith("To loss 0.2625, 5% above the least of all, fast took 600 ms. slow did not get there.")
    close = evaluated(window(hybrid_data(), system="bvr"), [1.0, 0.8, 0.5, 0.26])
    words = wall_time_words([("fast", fast), ("close", close)])
    assert "fast took 600 ms; close 800 ms, 1.33 times as long. Look" in words
    check(wall_time_figure([]))
    check(wall_time_figure([("one", fast)]))
    assert wall_time_words([]) and "least of all" not in wall_time_words([("new", window())])


@pytest.mark.parametrize(
    ("dqn", "said"), [([1.0, 0.4], "dqn (400 ms) beats it here"), ([1.0, 0.9, 0.9, 0.4], "dqn (800 ms) does not beat")]
)
def test_an_batch_policy_is_judged_by_runs_with_fixed_sizes(dqn: list[float], said: str) -> None:
    sizes = {"20 % x 5 %": [1.0, 0.7, 0.4], "10 % x 5 %": [1.0, 0.9, 0.8, 0.7, 0.4]}
    runs = [("adjusted", evaluated(window(dynahb_data()), dqn))]
    for label, losses in sizes.items():
        given = [[float(part.split()[0]) / 100 for part in label.split(" x ")]]
        runs.append((label, evaluated(window(hybrid_data(reservoir=True, exchange="models", shares=given)), losses)))
    words = wall_time_words(runs)
    assert "The best of 2 fixed sizes, in hindsight, is 20 % x 5 %: 600 ms to loss 0.42." in words and said in words
    other = RunWindow(RunConfig(system="dynahb", dataset="growing", ranks=2, epochs=20, model="gatlstm"))
    other.add(event(hybrid_data()))
    assert "fixed" not in wall_time_words([runs[0], ("other", evaluated(other, [1.0, 0.4]))]), "of another model"


def test_times_to_a_loss_have_a_spread_over_seeds() -> None:
    quick = [evaluated(window(dynahb_data()), losses) for losses in ([1.0, 0.5], [1.0, 0.8, 0.5], [1.0, 0.9, 0.8])]
    slow = [evaluated(window(hybrid_data()), [1.0, 0.9])]
    first, quickly, never = near_by_seed_words({"dqn": quick, "fixed": slow}).splitlines()
    assert first.startswith("seconds to loss 0.525, 5% above the least of all")
    assert quickly.endswith("never  (1 of 3 never)") and never == "  fixed: never  never  never  (1 of 1 never)"
    assert near_by_seed_words({"dqn": [window(dynahb_data())]}) == ""


def test_several_batch_policies_are_told_in_one_verdict() -> None:
    assert verdict_words({"dqn": 2.0}, {}, 0.1) == verdict_words({}, {"a": 1.0}, 0.1) == ""
    lost = verdict_words({"dqn": math.inf}, {"a": 1.5}, 0.1)
    assert "a: 1.5 s to loss 0.1. dqn (not there) does not beat it here." in lost
    assert verdict_words({"dqn": 2.0}, {"a": math.inf}, 0.1) == "None of 1 fixed size got to loss 0.1; dqn got there."
    words = verdict_words({"dqn": 2.0, "bandit": 1.0, "random": 3.0}, {"a": 1.5, "b": 2.5}, 0.1)
    assert words == (
        "The best of 2 fixed sizes, in hindsight, is a: 1.5 s to loss 0.1. bandit (1.0 s) beats it here. dqn (2.0 s) "
        "and random (3.0 s) do not beat it here."
    )


def test_stored_runs_are_compared_over_wall_time(tmp_path) -> None:
    runs = [finished_run(tmp_path / name, epochs=epochs) for name, epochs in (("a", 2), ("b", 3))]
    for run in runs:
        finish(run, "finished")
    found = compare([run.path for run in runs])
    check(found.wall_time)
    words = found.summary()
    assert words.startswith("Scored by protocol warm with 0 snapshots left out")
    assert "To loss 0.63, 5% above the least of all, epochs 3 took 300 ms. epochs 2 did not " in words
    assert lab.plot(found.wall_time).data[0].name == found.labels[0]


def test_runs_are_labelled_by_the_settings_that_tell_them_apart(tmp_path) -> None:
    runs = []
    for number, (system, batch_policy) in enumerate((("dynahb", "dqn"), ("dynahb", "none"), ("dbos", "none"))):
        runs.append(finished_run(tmp_path / str(number), epochs=2, system=system, batch_policy=batch_policy))
        finish(runs[-1], "finished")
    labels = compare([run.path for run in runs]).labels
    assert labels == (
        "system dynahb, batch_policy dqn",
        "system dynahb, batch_policy none",
        "system dbos, batch_policy none",
    )
