"""Averages of past delays fade by steps and belong to one run."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dtdg_lab.systems.feature_cache.policies.lateness_memory import LatenessMemory, RunsMemory, memory_size
from dtdg_lab.systems.feature_cache.policies.state import state_size


def states(late: list[list[float]]) -> NDArray[np.float32]:
    found = np.zeros((len(late), state_size(4)), np.float32)
    found[:, :3] = late
    return found


def test_averages_fade_by_steps_not_by_observations() -> None:
    often, seldom = LatenessMemory(1, 4), LatenessMemory(1, 4)
    for memory in (often, seldom):
        memory.take_in(states([[0, 0, 0]]), np.zeros(1, np.int64))
    for _ in range(10):
        described = often.take_in(states([[1, 0, 2]]), np.array([10]))
    rarely = seldom.take_in(states([[1, 0, 2]]), np.array([100]))
    remembered = described[0, state_size(4) :].reshape(3, 3)
    assert memory_size(4) == remembered.size
    assert remembered[0] == pytest.approx([1 - np.exp(-2), 0, 2 - 2 * np.exp(-2)], rel=1e-5)
    assert remembered[1] == pytest.approx([1 - np.exp(-0.5), 0, 2 - 2 * np.exp(-0.5)], rel=1e-5)
    assert rarely[0, : state_size(4) + 6] == pytest.approx(described[0, : state_size(4) + 6], rel=1e-5)


def test_alternating_links_differ_from_a_steady_one() -> None:
    memory = LatenessMemory(2, 4)
    for turn in range(40):
        now = [1.0, 0.0] if turn // 2 % 2 else [0.0, 1.0]
        described = memory.take_in(states([[1, 0, 0], [*now, 0]]), np.array([25, 25]))
    apart = described[:, -3:]
    assert apart[0] == pytest.approx([0, 0, 0], abs=1e-6)
    assert apart[1, 0] > 0.4 and apart[1, 1] > 0.4


def test_a_new_or_restarted_run_has_an_empty_memory() -> None:
    memory, alone = RunsMemory(4), RunsMemory(4)
    for step in (0, 16, 32):
        memory.take_in(states([[2, 0, 0], [0, 3, 0]]), np.array([5, 6]), np.array([step, step]))
    described = memory.take_in(states([[1, 0, 0], [0, 1, 0]]), np.array([5, 7]), np.array([16, 48]))
    fresh = alone.take_in(states([[1, 0, 0], [0, 1, 0]]), np.array([5, 7]), np.array([16, 48]))
    assert np.array_equal(described, fresh)
