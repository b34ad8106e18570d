"""One process by itself hears words as ranks would."""

from __future__ import annotations

import pytest
import torch

from dtdg_lab.config.record_tables import MAX_CONTROL_VERSION
from dtdg_lab.core.errors import ConfigError, ControlError
from dtdg_lab.distributed.averager import MAX_CHOICE, ControlState, Round, SingleProcessAverager
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.distributed.model_averaging import averager_for


class _Asked:
    """A word that tests change."""

    def __init__(self, *word: int) -> None:
        self.word = ControlState(*word)

    def __call__(self) -> ControlState:
        return self.word


def test_a_choice_waits_for_a_round_and_a_version_does_not() -> None:
    asked = _Asked(0, 0)
    averager = SingleProcessAverager(every_s=60.0, newest_state=asked)
    asked.word = ControlState(0, 5)
    averager.control()
    assert (averager.agreed, averager.applied_rounds()) == (ControlState(0, 0), [])
    asked.word = ControlState(1, 5)
    averager.control()
    assert averager.agreed == ControlState(1, 5)
    assert averager.applied_rounds() == [Round(1, 2, 2, 1.0, 1, 5)]
    asked.word = ControlState(1, 6)
    averager.idle()
    assert (averager.agreed.choice, averager.step) == (5, 2)
    averager.every_s = 0.0
    averager.idle()
    assert (averager.agreed.choice, averager.step) == (6, 2)
    assert [one.number for one in averager.applied_rounds()] == [2]


def test_a_period_of_one_step_is_a_round_a_step() -> None:
    averager = SingleProcessAverager(every_s=0.0, newest_state=_Asked(), step=10)
    for _ in range(5):
        averager.control()
    averager.finish()
    averager.finish()  # a second call does nothing
    assert [(one.number, one.joined_step, one.staleness) for one in averager.applied_rounds()] == [
        *((number, 10 + number, 0) for number in range(1, 6)),
        (0, 15, 0),
    ]


def test_the_group_of_one_gets_it_and_sends_nothing() -> None:
    group, parameters = SoloGroup(), torch.ones(3)
    start = ControlState(2, 4)
    averager = averager_for(group, parameters, every_s=60.0, newest_state=_Asked(2, 4), name="one", start=start)
    assert isinstance(averager, SingleProcessAverager)
    with averager:
        averager.control()
        assert averager.agreed == start
        assert averager.rounds == []
    assert averager.rounds[-1].is_last
    assert torch.equal(parameters, torch.ones(3))
    assert (group.bytes_sent, group.bytes_received, averager.bytes_sent) == (0, 0, 0)


def _nobody_asks() -> ControlState:
    raise AssertionError("a replay asks nobody")


def test_replay_hears_the_recorded_words_at_their_steps() -> None:
    asked = _Asked()
    averager = SingleProcessAverager(every_s=0.0, newest_state=asked)
    averager.idle()  # a pause before the first step
    received = []
    for step in range(6):
        asked.word = ControlState(step // 2, step)
        averager.control()
        received.append(averager.agreed)
    asked.word = ControlState(9, 9)
    averager.finish()
    again = SingleProcessAverager(every_s=60.0, newest_state=_nobody_asks, replay=averager.rounds)
    repeated = []
    for _ in range(6):
        again.control()
        repeated.append(again.agreed)
    again.finish()
    assert repeated == received
    assert again.agreed == ControlState(9, 9)
    assert again.rounds == averager.rounds


@pytest.mark.parametrize("event", [Round(1, 1, 2), Round(1, 9, 9)])
def test_rounds_of_several_ranks_are_refused(event: Round) -> None:
    averager = SingleProcessAverager(every_s=1.0, newest_state=_nobody_asks, replay=[event])
    with pytest.raises(ConfigError, match="round 1 was joined"):
        averager.control()
        averager.finish()


@pytest.mark.parametrize("every_s", [-0.1, float("nan"), float("inf")])
def test_a_period_that_means_nothing_is_refused_at_any_time(every_s: float) -> None:
    with pytest.raises(ConfigError, match="every_s"):
        SingleProcessAverager(every_s=every_s, newest_state=_Asked())
    averager = SingleProcessAverager(every_s=1.0, newest_state=_Asked())
    with pytest.raises(ConfigError, match="every_s"):
        averager.every_s = every_s
    assert averager.every_s == 1.0


@pytest.mark.parametrize(
    "word", [ControlState(MAX_CONTROL_VERSION + 1, 0), ControlState(1, MAX_CHOICE + 1), ControlState(1, -1)]
)
def test_a_word_that_no_slot_holds_is_refused(word: ControlState) -> None:
    with pytest.raises(ControlError, match="a round carries versions from 0"):
        SingleProcessAverager(every_s=0.0, newest_state=lambda: word).control()


def test_words_up_to_the_bounds_are_exact_in_a_slot() -> None:
    word = ControlState(MAX_CONTROL_VERSION, MAX_CHOICE)
    assert torch.zeros(2).new_tensor([*word]).add(0.0).tolist() == [*word]
