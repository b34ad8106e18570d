"""Position of a run: its next step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a run: its next step is iteration ``iteration`` of epoch ``epoch``.

    If ranks share the steps of an epoch, ``iteration`` is exact only after ranks have gathered, such as after a stop.
    In between, such as in a checkpoint within an epoch, it is one above the number of rank 0's newest step. Other ranks
    may have made fewer or more steps.
    """

    epoch: int = 0
    iteration: int = 0
    step: int = 0

    @property
    def current_epoch(self) -> int:
        """Epoch of work between steps: the last epoch until the next one has begun."""
        at_boundary = self.iteration == 0 and self.step > 0
        return self.epoch - at_boundary
