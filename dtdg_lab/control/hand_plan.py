"""Sizes of batches planned by hand: one for each stage of the way to the target."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dtdg_lab.control.agent import checked_action
from dtdg_lab.control.batch_simulator import BatchSimulator
from dtdg_lab.core.errors import ConfigError


def planned_s(simulator: BatchSimulator, plan: Sequence[int], target: float) -> float:
    """Seconds to the target of a simulated training whose sizes are known beforehand.

    The way, by which the logarithm of the loss above its floor must fall, has as many stages of equal length as the
    plan has sizes; a step has the size of the stage in which it begins. Of the last step only the share that was needed
    counts, as in :class:`BatchSimulator`.

    Args:
        simulator: of the training; its noise does not matter.
        plan: action of each stage, at least one.
        target: a loss between floor and start.

    Raises:
        ConfigError: there is no stage, or the target is not between floor and start.
        PlanError: there is no such action.
    """
    if not plan or not simulator.floor < target < simulator.start:
        raise ConfigError(
            f"a plan of {len(plan)} stages to a loss of {target}: give at least one stage, and a target between "
            f"floor={simulator.floor} and start={simulator.start}."
        )
    for action in plan:
        checked_action(action, len(simulator.sizes))
    whole = math.log((simulator.start - simulator.floor) / (target - simulator.floor))
    left, seconds = whole, 0.0
    while left > 0:
        done = 1 - left / whole
        action = plan[min(int(done * len(plan)), len(plan) - 1)]
        gain = simulator.gain(action, done)
        seconds += min(left / gain, 1.0) * simulator.step_s(action)
        left -= gain
    return seconds
