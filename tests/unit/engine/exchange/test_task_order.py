"""Orders in which tasks go on between their exchanges, and the clock they are judged by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.rng import generator
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.engine.exchange.overlap import TRIED, OverlapTrial
from dtdg_lab.engine.exchange.task_order import (
    FEATURES,
    TaskClock,
    TaskTimePredictor,
    TaskTimes,
    early_ready,
    in_turn,
    task_features,
)
from tests.task_orders import best_order, bound_s, play


def drawn(count: int, pulls: int, decayed: int, seed: int) -> list[TaskTimes]:
    """``decayed`` tasks without exchanges, then ``count`` whose exchanges take about as long as their stretches."""
    rng = generator(seed, "test/tasks")
    without = [TaskTimes(rng.uniform(0.1, 0.5, 1)) for _ in range(decayed)]
    return without + [TaskTimes(rng.uniform(0.5, 1.5, pulls + 1), rng.uniform(0.5, 2, pulls)) for _ in range(count)]


def test_full_snapshots_start_their_exchanges_before_decayed_ones_compute() -> None:
    decayed, full = TaskTimes((2.0,)), TaskTimes((1.0, 1.0), (3.0,))
    tasks = [decayed, decayed, full, full]
    assert early_ready(tasks) == (2, 3, 0, 1, 2, 3)
    assert in_turn(tasks) == (0, 1, 2, 2, 3, 3)
    early = play(tasks, early_ready(tasks))
    assert (early.total_s, early.exposed_s) == (8.0, 0.0), "4 s of decayed snapshots hide both exchanges"
    blocking = play(tasks, in_turn(tasks))
    assert (blocking.total_s, blocking.computed_s, blocking.exposed_s, blocking.in_flight_s) == (14.0, 8.0, 6.0, 6.0)


def test_of_equally_ready_tasks_the_one_with_the_shorter_exchange_goes_first() -> None:
    tasks = [TaskTimes((1.0, 1.0), (each,)) for each in (4.0, 2.0, 3.0)]
    assert early_ready(tasks)[:3] == (1, 2, 0)


def test_a_task_that_was_ready_earlier_goes_before_one_with_a_shorter_exchange() -> None:
    first, second = TaskTimes((1.0, 1.0, 1.0), (2.0, 9.0)), TaskTimes((1.0, 1.0, 1.0), (2.5, 1.0))
    # both have arrived when the third task's long stretch ends: the first at 3 s, the second at 4.5 s
    assert early_ready([first, second, TaskTimes((9.0,))]) == (0, 1, 2, 0, 1, 1, 0)


def test_equal_tasks_go_by_number() -> None:
    tasks = [TaskTimes((1.0, 1.0, 1.0), (1.0, 1.0))] * 3
    assert early_ready(tasks) == (0, 1, 2) * 3


def test_where_nothing_is_ready_the_rank_waits_for_the_next_arrival() -> None:
    tasks = [TaskTimes((1.0, 1.0), (5.0,)), TaskTimes((1.0, 1.0), (2.0,))]
    assert early_ready(tasks) == (1, 0, 1, 0)
    assert play(tasks, early_ready(tasks)) == play(tasks, (1, 0, 1, 0))
    assert play(tasks, (1, 0, 1, 0)).exposed_s == 1.0 + 3.0, "from 2 s to 3 s, and from 4 s to 7 s"


def test_exchanges_of_one_link_go_one_after_another() -> None:
    tasks = [TaskTimes((1.0, 1.0), (4.0,)), TaskTimes((1.0, 1.0), (4.0,))]
    order = early_ready(tasks)
    assert play(tasks, order).total_s == 7.0, "they arrive at 5 s and 6 s"
    assert play(tasks, order, one_link=True).total_s == 10.0, "they arrive at 5 s and 9 s"


def test_the_link_changes_the_order_where_it_changes_what_arrives_first() -> None:
    tasks = [TaskTimes((1.0, 1.0, 1.0), (1.0, 10.0)), TaskTimes((1.0, 1.0, 1.0), (2.0, 1.0))]
    assert early_ready(tasks) == (0, 1, 0, 1, 1, 0), "the second exchanges arrive at 13 s and 6 s"
    assert early_ready(tasks, one_link=True) == (0, 1, 0, 1, 0, 1), "they arrive at 14 s and 15 s"


def test_no_tasks_and_tasks_without_exchanges_have_orders() -> None:
    assert early_ready([]) == in_turn([]) == ()
    assert early_ready([TaskTimes((1.0,)), TaskTimes((0.5,))]) == (0, 1)
    assert play([], ()).total_s == 0.0 == bound_s([])


def test_times_from_arrays_are_numbers() -> None:
    task = TaskTimes(np.array([1, 2]), np.array([3.0]))
    assert task == TaskTimes((1.0, 2.0), (3.0,)) and task.pulls == 1
    assert all(type(each) is float for each in (*task.compute_s, *task.communicate_s))


@pytest.mark.parametrize(
    ("compute_s", "communicate_s", "said"),
    [
        ((1.0,), (1.0,), "one stretch more"),
        ((), (), "one stretch more"),
        ((1.0, -1.0), (1.0,), "at least 0 s"),
        ((1.0, 1.0), (float("nan"),), "at least 0 s"),
        ((float("inf"),), (), "at least 0 s"),
    ],
)
def test_times_that_are_none_are_refused(compute_s: tuple, communicate_s: tuple, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        TaskTimes(compute_s, communicate_s)


@pytest.mark.parametrize(("order", "said"), [((0, 0), "before tasks"), ((0, 0, 1, 1), "no turn"), ((0, 2), "no turn")])
def test_an_order_that_is_none_is_refused(order: tuple[int, ...], said: str) -> None:
    tasks = [TaskTimes((1.0, 1.0), (1.0,)), TaskTimes((1.0,))]
    with pytest.raises(PlanError, match=said):
        play(tasks, order)


def test_the_clock_never_goes_back() -> None:
    clock = TaskClock([TaskTimes((1.0,))])
    clock.wait_until(2.0)
    clock.wait_until(1.0)
    assert (clock.now_s, clock.waited_s) == (2.0, 2.0)


def test_the_best_order_is_found_where_the_rule_misses_it() -> None:
    """A long exchange is hidden by starting it first; the rule starts the short one first."""
    tasks = [TaskTimes((1.0, 1.0), (4.0,)), TaskTimes((1.0, 1.0), (1.0,))]
    order, times = best_order(tasks)
    assert order == (0, 1, 1, 0) and times.total_s == 6.0 == bound_s(tasks)
    assert early_ready(tasks) == (1, 0, 1, 0) and play(tasks, early_ready(tasks)).total_s == 7.0


def test_more_orders_than_can_be_tried_are_refused() -> None:
    with pytest.raises(PlanError, match="4 tasks have 9,459,450 orders"):
        best_order([TaskTimes((1.0,) * each, (1.0,) * (each - 1)) for each in (2, 4, 4, 5)])


@pytest.mark.parametrize("one_link", [False, True])
@pytest.mark.parametrize(("count", "pulls", "decayed"), [(2, 2, 0), (2, 2, 1), (3, 1, 1)])
def test_the_rule_is_near_the_best_and_far_from_the_blocking_order(
    count: int, pulls: int, decayed: int, one_link: bool
) -> None:
    early, blocking = [], []
    for seed in range(8):
        tasks = drawn(count, pulls, decayed, seed)
        best = best_order(tasks, one_link=one_link)[1].total_s
        early.append(play(tasks, early_ready(tasks, one_link=one_link), one_link=one_link).total_s / best)
        blocking.append(play(tasks, in_turn(tasks), one_link=one_link).total_s / best)
    assert min(early) >= 1.0 and np.mean(early) < 1.06 and max(early) < 1.25
    assert min(blocking) > 1.3


def test_long_exchanges_of_many_tasks_are_hidden_to_the_most_part() -> None:
    """As eight full snapshots of two layers, whose exchanges take as long as what they compute, beside six decayed."""
    tasks = drawn(8, 2, 6, seed=0)
    early, blocking = play(tasks, early_ready(tasks)), play(tasks, in_turn(tasks))
    assert blocking.exposed_s == pytest.approx(blocking.in_flight_s)
    assert early.exposed_s < 0.05 * early.in_flight_s


SLOW_LINKS = (0.9, 0.60, 0.53, 0.73, 0.52, 0.58, 0.63)  # the first warms up; then without and with overlap, in turn
NATIVE_LINKS = (0.9, 0.22, 0.27, 0.19, 0.23, 0.26, 0.24)


@pytest.mark.parametrize(
    ("seconds", "on"),
    [
        (SLOW_LINKS, True),
        (NATIVE_LINKS, False),
        ((1, 3, 2, 9, 4, 4, 3), True),
        ((9, 1.0, 0.98, 1.0, 0.98, 1.0, 0.5), False),
    ],
    ids=["slow links", "native links", "one epoch disturbed", "within noise"],
)
def test_overlap_is_chosen_by_medians(seconds: tuple[float, ...], on: bool) -> None:
    """The first epoch is not counted; steps of an epoch are summed; neither one slow nor one fast epoch decides."""
    trial, tried = OverlapTrial(SoloGroup(), "cpu"), []
    for epoch_s in seconds:
        assert trial.chosen is None
        tried.append(trial.on)
        for _ in range(2):
            trial.add(epoch_s / 2)
        trial.end_epoch()
    assert tuple(tried) == TRIED
    assert trial.chosen is not None and (trial.on, trial.chosen.on) == (on, on)
    medians = np.median(seconds[1::2]), np.median(seconds[2::2])
    assert (trial.chosen.off_s, trial.chosen.on_s) == pytest.approx(medians)
    assert ("do not overlap" in trial.chosen.words) == (not on)


COMPUTE = task_features("compute", rows=1000, edges=9000, width=32)
SEND = task_features("communicate", rows=1000, width=32, sent_bytes=128_000)


def measured_step(step: int, *, noise: float = 0.0) -> tuple[Any, Any]:
    """Return features of 8 stretches and 4 exchanges, and their seconds on a machine far from the prior."""
    rng = generator(step, "test/task times")
    rows = []
    for _ in range(8):
        count = 10 ** rng.uniform(2, 5)
        rows.append(task_features("compute", rows=count, edges=count * rng.uniform(2, 20), width=rng.choice([2, 64])))
    for _ in range(4):
        count, width = 10 ** rng.uniform(2, 4), rng.choice([2, 32])
        rows.append(task_features("communicate", rows=count, width=width, sent_bytes=4 * count * width))
    features = np.array(rows)
    misses = 1 + (features[:, 1] > 1e5)  # the rows of the neighbours no longer fit a cache
    compute_s = 3e-4 + 8e-9 * features[:, 0] * features[:, 2] + 2.5e-9 * misses * features[:, 1] * features[:, 2]
    communicate_s = 1.5e-3 + features[:, 3] / 2e8
    seconds = np.where(features[:, 5] == 1, communicate_s, compute_s)
    return features, seconds * np.exp(noise * rng.normal(size=len(rows)))


def fitted(steps: int, *, noise: float = 0.0) -> TaskTimePredictor:
    predictor = TaskTimePredictor()
    for step in range(steps):
        predictor.observe(*measured_step(step, noise=noise))
    return predictor


def median_error(predictor: TaskTimePredictor, *, slower: float = 1.0) -> float:
    features, seconds = measured_step(10_000)
    return float(np.median(np.abs(predictor.predict(features) / (slower * seconds) - 1)))


def test_before_any_observation_the_prior_is_predicted() -> None:
    predicted_s = TaskTimePredictor().predict([COMPUTE, SEND])
    np.testing.assert_allclose(predicted_s, [5e-5 + 1e-9 * 10_000 * 32, 2e-4 + 1e-9 * 128_000], rtol=1e-12)


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_the_times_of_a_machine_are_learned_with_and_without_noise(noise: float) -> None:
    assert median_error(TaskTimePredictor()) > 0.5 and median_error(fitted(120, noise=noise)) < 0.2


def test_a_constant_offset_is_learned_within_a_few_steps() -> None:
    predictor = TaskTimePredictor()
    for _ in range(20):
        predictor.observe([COMPUTE, SEND], [0.05, 0.002])
    np.testing.assert_allclose(predictor.predict([COMPUTE, SEND]), [0.05, 0.002], rtol=0.25)


def test_a_machine_that_becomes_slower_is_followed() -> None:
    predictor = fitted(120)
    for step in range(120, 260):
        features, seconds = measured_step(step)
        predictor.observe(features, 5 * seconds)
    assert median_error(predictor, slower=5.0) < 0.2


def test_outliers_do_not_bend_the_fit() -> None:
    predictor = fitted(120)
    for step in range(120, 220):
        features, seconds = measured_step(step)
        seconds[step % 12] *= 100
        predictor.observe(features, seconds)
    assert median_error(predictor) < 0.25


def test_observations_beyond_the_newest_are_forgotten() -> None:
    forgetful, fresh = fitted(60), TaskTimePredictor()
    for predictor in (forgetful, fresh):
        predictor.observe(np.tile(COMPUTE, (512, 1)), np.full(512, 0.01))
    assert forgetful.predict([COMPUTE, SEND]).tolist() == fresh.predict([COMPUTE, SEND]).tolist()


def test_no_tasks_have_no_times() -> None:
    predictor = TaskTimePredictor()
    predictor.observe(np.empty((0, len(FEATURES))), [])
    assert predictor.predict(np.empty((0, len(FEATURES)))).shape == (0,)


@pytest.mark.parametrize(
    ("features", "seconds", "message"),
    [
        ([COMPUTE], [[0.1]], "give each task one time"),
        ([COMPUTE], [0.1, 0.1], "give each task one time"),
        ([COMPUTE], [-0.1], "give each task one time"),
        ([COMPUTE], [float("nan")], "give each task one time"),
        ([COMPUTE[:5]], [0.1], "give (n, 6)"),
        ([(-1.0, *COMPUTE[1:])], [0.1], "at least 0"),
        ([(float("inf"), *COMPUTE[1:])], [0.1], "at least 0"),
        ([(*COMPUTE[:5], 1.0)], [0.1], "one kind"),
    ],
)
def test_unusable_features_and_times_are_refused(features: Any, seconds: Any, message: str) -> None:
    with pytest.raises(PlanError) as error:
        TaskTimePredictor().observe(features, seconds)
    assert message in str(error.value)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(PlanError, match="the kinds are compute, communicate"):
        task_features("rest")
