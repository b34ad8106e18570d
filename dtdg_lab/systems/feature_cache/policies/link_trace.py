"""How slow the links to one part were, or will be, at every step: what a simulated or recorded run meets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.feature_store import LinkState


class LinkPattern(Protocol):
    """Says how slow every link is at any moment: what :mod:`dtdg_lab.network` is made of."""

    def at(self, epoch: int, share: float) -> LinkState:
        """The links a ``share`` in [0, 1) into an epoch."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LinkTrace:
    """The few conditions that links were in, and which of them held at each step (K conditions, S steps, P parts).

    Attributes:
        delay_s: (K, P - 1) seconds that each other part's replies were late, in ascending order of the parts.
        bytes_per_s: (K, P - 1) at which its replies passed; infinite where nothing limited them.
        which: (S,) number of the condition at each step.

    Raises:
        PlanError: the arrays do not fit each other, or a value is out of its bounds.
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
            raise PlanError(f"conditions up to {self.which.max()} at the steps, of {len(self.delay_s)} that there are.")
        if not (np.isfinite(self.delay_s) & (self.delay_s >= 0) & (self.bytes_per_s > 0)).all():
            raise PlanError("a trace with a negative or endless delay, or a rate that is not above 0.")

    @property
    def parts(self) -> int:
        """P."""
        return self.delay_s.shape[1] + 1

    @property
    def steps(self) -> int:
        """S."""
        return len(self.which)


def trace_of_links(states: Sequence[LinkState], part: int) -> LinkTrace:
    """What one part meets while the links are in these states, one for each step.

    Args:
        states: as they were recorded, or as a schedule says.
        part: the one that asks.

    Raises:
        PlanError: there is no state, or no such part.
    """
    if not states or not 0 <= part < states[0].parts or states[0].parts < 2:
        parts = states[0].parts if states else 0
        raise PlanError(f"a trace for part {part} of {len(states)} states of {parts} parts' links: nothing to follow.")
    seen: dict[LinkState, int] = {}
    which = [seen.setdefault(state, len(seen)) for state in states]
    others = np.arange(states[0].parts) != part
    return LinkTrace(
        np.stack([state.delay_s[others, part] for state in seen]),
        np.stack([state.bytes_per_s[others, part] for state in seen]),
        np.array(which, dtype=np.int64),
    )


def trace_of_pattern(pattern: LinkPattern, part: int, *, epochs: int, epoch_steps: int) -> LinkTrace:
    """What one part meets while a pattern of congestion goes on, step by step.

    Raises:
        PlanError: nothing to follow, or no such part.
    """
    states = [pattern.at(epoch, step / epoch_steps) for epoch in range(epochs) for step in range(epoch_steps)]
    return trace_of_links(states, part)
