"""The state of the links to one part at every step of a simulated or recorded run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError
from dtdg_lab.network.links import LinkState
from dtdg_lab.network.patterns import Pattern


@dataclass(frozen=True, slots=True, eq=False)
class LinkTrace:
    """The few conditions of the links, and the condition at each step (K conditions, S steps, P parts).

    Attributes:
        delay_s: (K, P - 1) seconds of delay of each other part's replies, in ascending order of the parts.
        bytes_per_s: (K, P - 1) rate of its replies; infinite for no limit.
        which: (S,) index of the condition at each step.

    Raises:
        PlanError: the arrays are inconsistent, or a value is out of range.
    """

    delay_s: NDArray[np.float64]
    bytes_per_s: NDArray[np.float64]
    which: NDArray[np.int64]

    def __post_init__(self) -> None:
        fits = self.delay_s.ndim == 2 and self.delay_s.shape == self.bytes_per_s.shape and self.which.ndim == 1
        if not fits or not self.delay_s.shape[1] or not len(self.which):
            raise PlanError(
                f"delays {self.delay_s.shape}, rates {self.bytes_per_s.shape}, steps {self.which.shape}: "
                "(K, P - 1), (K, P - 1) and (S,) are needed."
            )
        if self.which.min() < 0 or self.which.max() >= len(self.delay_s):
            raise PlanError(f"conditions up to {self.which.max()} at the steps, but there are {len(self.delay_s)}.")
        if not (np.isfinite(self.delay_s) & (self.delay_s >= 0) & (self.bytes_per_s > 0)).all():
            raise PlanError("a trace needs finite delays of at least 0, and rates above 0.")

    @property
    def parts(self) -> int:
        """P."""
        return self.delay_s.shape[1] + 1

    @property
    def steps(self) -> int:
        """S."""
        return len(self.which)


def trace_of_links(states: Sequence[LinkState], part: int) -> LinkTrace:
    """Return the trace of one part for given states of the links, one per step.

    Args:
        states: as recorded, or from a schedule.
        part: the part that requests rows.

    Raises:
        PlanError: there is no state, or the part does not exist.
    """
    if not states or not 0 <= part < states[0].parts or states[0].parts < 2:
        parts = states[0].parts if states else 0
        raise PlanError(f"a trace for part {part} of {len(states)} states of {parts} parts' links: none is possible.")
    index_of_state: dict[LinkState, int] = {}
    which = [index_of_state.setdefault(state, len(index_of_state)) for state in states]
    is_other = np.arange(states[0].parts) != part
    return LinkTrace(
        np.stack([state.delay_s[is_other, part] for state in index_of_state]),
        np.stack([state.bytes_per_s[is_other, part] for state in index_of_state]),
        np.array(which, dtype=np.int64),
    )


def trace_of_pattern(pattern: Pattern, part: int, steps: range, *, epoch_steps: int) -> LinkTrace:
    """Return the trace of one part for a pattern of congestion, step by step.

    Raises:
        PlanError: there are no steps, or the part does not exist.
    """
    places = (divmod(step, epoch_steps) for step in steps)
    return trace_of_links([pattern.at(epoch, step_of_epoch / epoch_steps) for epoch, step_of_epoch in places], part)
