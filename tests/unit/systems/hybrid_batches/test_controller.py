"""The batch-size controller: windows of steps, rewards, decisions that can be resumed, refused settings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtdg_lab.config.catalogue import names
from dtdg_lab.core.errors import ConfigError, NotFiniteError, PlanError, UnknownNameError
from dtdg_lab.engine.capabilities import DecisionRow
from dtdg_lab.rl.agent import Fixed
from dtdg_lab.systems.hybrid_batches.controller import (
    BatchSizeController,
    loss_reward,
    make_controller,
    progress_reward,
    reward,
    time_reward,
)

LEARNING = ("random", "bandit", "dqn")
GRID = tuple((snapshots, vertices) for snapshots in (0.1, 0.3) for vertices in (0.01, 0.05, 0.1))
seconds = st.floats(0, allow_nan=False, allow_infinity=False)


class EventList(Fixed):
    """An agent that remembers what it was taught."""

    def __init__(self, choices: int, order: tuple[int, ...]) -> None:
        super().__init__(choices)
        self.order, self.lessons = list(order), list[tuple[float, int, float, float]]()

    def choose(self, state: float) -> Any:
        return replace(super().choose(state), action=self.order.pop(0))

    def learn(self, state: float, action: int, reward: float, next_state: float) -> None:
        self.lessons.append((state, action, reward, next_state))


def watch(controller: BatchSizeController, loss: float | None, seconds: float, steps: int = 2) -> DecisionRow:
    for _ in range(steps):
        controller.observe(loss, seconds)
    return controller.decide()


def test_a_window_rewards_the_choice_it_was_made_under() -> None:
    agent = EventList(4, (2, 1, 3, 3))
    controller = BatchSizeController(agent, "told", 0)
    first = watch(controller, 10.0, 1.0)
    assert first == (
        "told",
        {"loss_reduction": None, "epsilon": 0.0, "greedy": True, "loss": 10.0, "step_s": 1.0, "steps": 2},
        [None] * 4,
        2,
        None,
    )
    assert (controller.choice, controller.steps, agent.lessons) == (2, 0, [])
    second = watch(controller, 8.0, 0.5)
    assert (second.reward, second.state["loss_reduction"]) == (0.5, 2.0), "twice as fast; no reduction before it"
    third = watch(controller, 4.0, 0.5)
    assert (third.reward, third.state["loss_reduction"]) == (0.5, 4.0), "the loss fell twice as fast"
    fourth = watch(controller, 5.0, 1.0)
    assert (fourth.reward, fourth.state["loss_reduction"]) == (-2.0, -1.0)
    assert agent.lessons == [(0.0, 2, 0.5, 2.0), (2.0, 1, 0.5, 4.0), (4.0, 3, -2.0, -1.0)]


def test_steps_of_another_size_are_left_out() -> None:
    controller = BatchSizeController(EventList(3, (1, 2)), "told", 0)
    watch(controller, 1.0, 1.0)
    controller.observe(100.0, 9.0, action=0)
    assert (controller.steps, controller.is_due(1)) == (0, False)
    controller.observe(0.5, 2.0, action=1)
    controller.observe(0.7, 4.0, action=1)
    assert controller.is_due(2)
    assert not controller.is_due(3)
    state = controller.decide().state
    assert (state["loss"], state["step_s"], state["steps"]) == (pytest.approx(0.6), 3.0, 2)


def test_losses_may_be_missing_or_come_from_elsewhere() -> None:
    agent = EventList(2, (1, 0, 1, 1))
    controller = BatchSizeController(agent, "told", 0)
    watch(controller, None, 1.0)
    silent = watch(controller, None, 0.5)
    assert (silent.state["loss"], silent.state["loss_reduction"], silent.reward) == (None, None, 0.5)
    controller.observe(None, 0.5)
    assert controller.decide(3.0).state["loss"] == 3.0
    controller.observe(7.0, 0.5)
    validated = controller.decide(2.0)
    assert (validated.state["loss"], validated.state["loss_reduction"], validated.reward) == (2.0, 1.0, 0.0)


def test_a_size_that_somebody_else_chose_teaches_nothing() -> None:
    agent = EventList(3, (1, 1, 1))
    controller = BatchSizeController(agent, "told", 0)
    watch(controller, 1.0, 1.0)
    controller.observe(0.0, 0.1)
    controller.follow(2)
    assert (controller.choice, controller.steps) == (2, 0)
    watch(controller, 0.5, 1.0)
    assert agent.lessons == []
    with pytest.raises(PlanError, match="from 0 to 2"):
        controller.follow(3)


@pytest.mark.parametrize("paid", ["paper", "progress"])
@pytest.mark.parametrize("name", names("control"))
def test_an_batch_policy_is_resumed_in_the_middle_of_a_window(name: str, paid: str) -> None:
    def made() -> BatchSizeController:
        return make_controller(name, choices=5, initial=2, seed=4, reward=paid, sizes=GRID[:5])

    def lived(controller: BatchSizeController, steps: range) -> list[DecisionRow]:
        found = []
        for step in steps:
            controller.observe(2 + math.sin(step), 1 + controller.choice / 5)
            if controller.is_due(3):
                found.append(controller.decide())
        return found

    whole, first, second = made(), made(), made()
    expected = lived(whole, range(100))
    begun = lived(first, range(46))
    lived(second, range(7))
    second.load_state_dict(first.state_dict())
    assert begun + lived(second, range(46, 100)) == expected
    assert second.state_dict() == whole.state_dict()
    assert all(decision.policy == name for decision in expected)
    if name == "none":
        assert {decision.action for decision in expected} == {2}


def test_what_cannot_be_is_refused() -> None:
    for name in LEARNING:
        with pytest.raises(ConfigError, match="1 action has nothing"):
            make_controller(name, choices=1, initial=0)
    assert make_controller("none", choices=1, initial=0).choice == 0
    with pytest.raises(UnknownNameError, match="Did you mean 'bandit'"):
        make_controller("bandid", choices=3, initial=0)
    with pytest.raises(PlanError, match="from 0 to 2"):
        make_controller("bandit", choices=3, initial=3)
    controller = make_controller("bandit", choices=3, initial=0)
    for wrong in (math.nan, math.inf):
        with pytest.raises(NotFiniteError, match="no batch-size controller can learn"):
            controller.observe(wrong, 1.0)


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(seconds, seconds, finite, finite)
def test_a_reward_is_within_its_bounds_whatever_was_measured(a: float, b: float, c: float, d: float) -> None:
    assert -1 <= time_reward(a, b) <= 1
    assert -1 <= loss_reward(c, d) <= 1
    assert reward(a, b, c, d) == time_reward(a, b) + loss_reward(c, d)


@given(finite, finite)
def test_a_loss_that_falls_faster_is_never_punished(last: float, now: float) -> None:
    """Not so by the printed equation: with a negative denominator, losses that rise and rise faster earn 1."""
    earned = loss_reward(last, now)
    assert earned >= 0 if now > last else earned <= 0


@pytest.mark.parametrize(
    ("given_numbers", "expected"),
    [
        ((2.0, 1.0, 1.0, 2.0), 0.5 + 0.5),
        ((1.0, 2.0, 2.0, 1.0), -1.0 - 1.0),
        ((1.0, 9.0, 1.0, 1.0), -1.0),
        ((0.0, 0.0, 0.0, 0.0), 0.0),
        ((0.0, 1.0, -1.0, 0.0), -1.0 + 1.0),
        ((0.0, 1.0, 1.0, 0.0), -1.0 - 1.0),
        ((1.0, 0.0, -1.0, -2.0), 1.0 - 0.5),
        ((1.0, 1.0, None, 5.0), 0.0),
        ((1.0, 1.0, 5.0, None), 0.0),
        ((1.0, 1.0, 1e308, -1e308), -1.0),
    ],
)
def test_rewards_by_hand(given_numbers: tuple[float, float, float | None, float | None], expected: float) -> None:
    assert reward(*given_numbers) == expected


@given(finite, finite, seconds, seconds)
def test_progress_is_within_its_bounds_whatever_was_measured(now: float, last: float, took: float, best: float) -> None:
    earned, kept = progress_reward(last, now, took, best)
    assert -1 <= earned <= 1 and math.isfinite(kept) and kept >= 0
    if 0 < took < 1e9 and 1e-9 < abs(last) < 1e9 and abs(now - last) > 1e-6 * abs(last):
        assert earned * (last - now) >= 0, "a loss that falls is never punished"


def test_progress_pays_for_a_size_and_not_for_a_change() -> None:
    best = 0.0
    described = []
    for last, now, took in ((8.0, 4.0, 1.0), (4.0, 2.0, 1.0), (2.0, 1.0, 2.0), (1.0, 2.0, 4.0)):
        earned, best = progress_reward(last, now, took, best)
        described.append(earned)
    assert described == [1.0, 1.0, pytest.approx(0.25 / 0.485), pytest.approx(-0.25 / (0.485 * 0.97))]
    assert reward(1.0, 1.0, 4.0, 2.0) == -1.0, "by equation 3 the second window, as good as the first, is punished"
    assert progress_reward(0.0, 1.0, 1.0, 0.0) == progress_reward(1.0, 1.0, 0.0, 0.0) == (0.0, 0.0)
