"""Steps of an epoch, shared by all ranks: a faster rank takes more of them."""

from __future__ import annotations

import time
from collections.abc import Callable

LEASE_S = 0.05  # most seconds of work that a rank takes ahead


class SharedSteps:
    """Assigns every step of an epoch to one rank; ranks take several steps ahead, so most need no communication.

    A rank takes the number of steps that it makes in 50 ms, at least one, and at most a 2R-th of the remaining steps
    (guided self-scheduling). So a slow rank takes single steps, and all ranks share the last steps of an epoch.
    Taken steps stay with their rank. If it slows down, the others wait at the end of the run for all of them: at most
    50 ms of work at its former pace.

    Until a stop, every step number of an epoch is taken once. A stop drops steps that were taken but not made, and
    keeps only the count of steps made. So a resumed run makes the missing number of steps, but may repeat some step
    numbers and leave out others.

    References: Polychronopoulos and Kuck, Guided self-scheduling, IEEE Transactions on Computers, 1987.

    Args:
        add: adds to a counter shared by all ranks and returns its new value; atomic, counters start at 0.
        ranks: number of ranks, R.
        first: the current epoch, and the number of its steps taken before.
        clock: returns seconds of this rank's clock.
    """

    def __init__(
        self,
        add: Callable[[str, int], int],
        *,
        ranks: int,
        first: tuple[int, int] = (0, 0),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._add, self._ranks, self._first, self._clock = add, ranks, first, clock
        self._epoch = -1
        self._leased = range(0)
        self._remaining = 0  # steps of the epoch at this rank's last lease
        self._made, self._lease_size = 0, 1  # steps since then, and steps made in 50 ms
        self._leased_s = clock()

    def take(self, epoch: int, steps: int) -> int | None:
        """Take the number of this rank's next step of an epoch, from 0; None if all steps are taken.

        Args:
            epoch: the epoch of the last call, or a later one.
            steps: steps of the epoch, of all ranks together.
        """
        if epoch != self._epoch:
            self._epoch, self._leased, self._remaining = epoch, range(0), steps
        if not self._leased:
            self._lease(steps)
        if not self._leased:
            return None
        number, self._leased = self._leased[0], self._leased[1:]
        self._made += 1
        return number

    def _lease(self, steps: int) -> None:
        now_s = self._clock()
        if self._made:
            spent_s = max(now_s - self._leased_s, 1e-9)
            self._lease_size = max(1, int(LEASE_S * self._made / spent_s))
        self._made, self._leased_s = 0, now_s
        lease = min(self._lease_size, max(1, -(-self._remaining // (2 * self._ranks))))
        steps_before = self._first[1] if self._epoch == self._first[0] else 0
        start = steps_before + self._add(f"steps/{self._epoch}", lease) - lease
        self._leased = range(min(start, steps), min(start + lease, steps))
        self._remaining = max(0, steps - start - lease)
