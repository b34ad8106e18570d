"""The progress law finds a good size in a few windows, and leaves one that it is wrong about."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.core.errors import ConfigError
from dtdg_lab.systems.hybrid_batches.controller import make_controller
from dtdg_lab.systems.hybrid_batches.progress_law import ProgressLaw

GRID = tuple((snapshots, vertices) for snapshots in (0.1, 0.3) for vertices in (0.01, 0.05, 0.1))


def law_world(agent: ProgressLaw, times: int, noise: float, *, spoilt: int = -1) -> list[int]:
    """Choices in a world of the law's own form; a spoilt size makes none of the progress that the law expects."""
    draw, taken, action = np.random.default_rng(3), [], 0
    for _ in range(times):
        snapshots, vertices = GRID[action]
        batch = snapshots * vertices
        step_s = 1e-4 + 0.01 * snapshots + 0.6 * batch
        gain = (0.0 if action == spoilt else batch / (batch + 0.003)) + noise * draw.standard_normal()
        agent.timed(action, step_s)
        agent.learn(0.0, action, gain / step_s, 0.0)
        action = agent.choose(0.0).action
        taken.append(action)
    return taken


def test_the_law_finds_a_good_size_in_a_few_windows_and_leaves_one_it_is_wrong_about() -> None:
    rates = [b / (b + 0.003) / (1e-4 + 0.01 * s + 0.6 * b) for s, v in GRID for b in (s * v,)]
    good = {action for action, rate in enumerate(rates) if rate > 0.95 * max(rates)}
    assert good == {0, 1}, "two of six"
    quiet, loud = (law_world(ProgressLaw(GRID), 60, noise) for noise in (0.0, 0.1))
    assert quiet[0] == 5 and set(quiet[5:]) <= good, "the largest, and soon a good one"
    assert sum(action in good for action in loud[20:]) > 20
    wrong = quiet[-1]
    assert law_world(ProgressLaw(GRID), 60, 0.0, spoilt=wrong)[-30:].count(wrong) <= 3


def test_a_law_needs_sizes() -> None:
    with pytest.raises(ConfigError, match="Give sizes"):
        make_controller("law", choices=3, initial=0)
    with pytest.raises(ConfigError, match="above 0"):
        ProgressLaw(((0.1, 0.0), (0.1, 0.1)))
    with pytest.raises(ConfigError, match="1 action has nothing"):
        ProgressLaw(GRID[:1])
