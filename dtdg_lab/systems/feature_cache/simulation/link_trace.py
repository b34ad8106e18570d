"""The state of the links to one part at every step of a simulated or recorded run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.network.links import LinkState
from dtdg_lab.network.patterns import Pattern


@dataclass(frozen=True, slots=True, eq=False)
class LinkTrace:
    """The few conditions of the links, and the condition at each step (K conditions, S steps, P parts).

    Attributes:
        delay_s: (K, P - 1) seconds of delay of each other part's replies, in ascending order of the parts.
        bytes_per_s: (K, P - 1) rate of its replies; infinite for no limit.
        which: (S,) index of the condition at each step.
    """

    delay_s: NDArray[np.float64]
    bytes_per_s: NDArray[np.float64]
    which: NDArray[np.int64]

    @property
    def parts(self) -> int:
        """P."""
        return self.delay_s.shape[1] + 1

    @property
    def steps(self) -> int:
        """S."""
        return len(self.which)


def trace_of_pattern(pattern: Pattern, part: int, steps: range, *, epoch_steps: int) -> LinkTrace:
    """Return the trace of a part that requests rows under a pattern of congestion, step by step."""
    positions = (divmod(step, epoch_steps) for step in steps)
    states = [pattern.at(epoch, step_of_epoch / epoch_steps) for epoch, step_of_epoch in positions]
    conditions: dict[LinkState, int] = {}
    which = [conditions.setdefault(state, len(conditions)) for state in states]
    is_other = np.arange(states[0].parts) != part
    return LinkTrace(
        np.stack([state.delay_s[is_other, part] for state in conditions]),
        np.stack([state.bytes_per_s[is_other, part] for state in conditions]),
        np.array(which, dtype=np.int64),
    )
