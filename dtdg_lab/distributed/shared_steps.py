"""Steps of an epoch as a budget shared by all ranks: a faster rank takes more of them."""

from __future__ import annotations

import time
from collections.abc import Callable

LEASE_S = 0.05  # seconds of steps that a rank takes ahead at most


class SharedSteps:
    """Assigns every step of an epoch to one rank; ranks take several steps ahead, so most need no communication.

    A rank takes the steps that it makes in 50 ms, at least one, and at most a 2R-th of the remaining steps
    (guided self-scheduling). So a slow rank takes them one by one, and the last steps of an epoch are shared evenly.
    Steps that were taken stay with their rank. If it slows down among them, the others wait at the end of the run for
    all of them, not for one: 50 ms of work at its former pace at most, however long that takes at its new one.

    Every number of an epoch is given once, until a stop. A stop drops the steps that were taken and not made, and only
    the count of the steps made is kept. So a run that is resumed makes as many steps as are missing, and by number it
    may repeat some and leave out others.

    References: Polychronopoulos and Kuck, Guided self-scheduling, IEEE Transactions on Computers, 1987.

    Args:
        add: adds a number to a counter that all ranks share, and returns its new value: atomic, 0 before its first use.
        ranks: R.
        first: the epoch that is under way, and how many of its steps have been taken before.
        clock: seconds, of this rank.
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
        self._held = range(0)
        self._left = 0  # of the epoch, when this rank last asked
        self._made, self._wanted = 0, 1  # steps since then, and how many are made in 50 ms
        self._asked_s = clock()

    def take(self, epoch: int, steps: int) -> int | None:
        """Take the number of this rank's next step of an epoch, from 0; None if all steps are taken.

        Args:
            epoch: the same as last time, or a later one.
            steps: of the epoch, by all ranks together.
        """
        if epoch != self._epoch:
            self._epoch, self._held, self._left = epoch, range(0), steps
        if not self._held:
            self._ask(steps)
        if not self._held:
            return None
        number, self._held = self._held[0], self._held[1:]
        self._made += 1
        return number

    def _ask(self, steps: int) -> None:
        now_s = self._clock()
        if self._made:
            spent_s = max(now_s - self._asked_s, 1e-9)
            self._wanted = max(1, int(LEASE_S * self._made / spent_s))
        self._made, self._asked_s = 0, now_s
        lease = min(self._wanted, max(1, -(-self._left // (2 * self._ranks))))
        steps_before = self._first[1] if self._epoch == self._first[0] else 0
        start = steps_before + self._add(f"steps/{self._epoch}", lease) - lease
        self._held = range(min(start, steps), min(start + lease, steps))
        self._left = max(0, steps - start - lease)
