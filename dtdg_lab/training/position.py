"""Position of a run: the step that comes next."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """Where a run is: the next step to make is iteration ``iteration`` of epoch ``epoch``.

    Where ranks share the steps of an epoch, ``iteration`` counts the steps made only once ranks have gathered, as after
    a stop. In between it is an estimate, as in a checkpoint written within an epoch: one above the number of rank 0's
    newest step. Other ranks may have made fewer or more steps.
    """

    epoch: int = 0
    iteration: int = 0
    step: int = 0

    @property
    def current_epoch(self) -> int:
        """The epoch to which work between steps belongs: the one just ended if the next has not begun."""
        at_boundary = self.iteration == 0 and self.step > 0
        return self.epoch - at_boundary
