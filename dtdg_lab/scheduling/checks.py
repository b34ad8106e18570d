"""What is given to a scheduler, checked once for all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import ConfigError, PlanError, shortened


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Groups to be scheduled, and how: K groups, R ranks, at most L groups of a rank in an iteration.

    Attributes:
        times_s: (K,) seconds of each group, read-only; at least 0.
        ranks: R.
        per_rank: L.
        allreduce_s: seconds of the gradient exchange that ends every iteration.
        gap: how far above a bound a search may stop, relative to that bound.
        time_limit_s: seconds a search may take.
        seed: of what is drawn.
        targets: that DyGNeX-G tries in an iteration; 0 for as many as take about a second.
    """

    times_s: NDArray[np.float64]
    ranks: int
    per_rank: int
    allreduce_s: float = 0.0
    gap: float = 0.02
    time_limit_s: float = 10.0
    seed: int = 0
    targets: int = 0

    @property
    def groups(self) -> int:
        """K."""
        return len(self.times_s)

    @property
    def share(self) -> int:
        """R L, the most groups of an iteration."""
        return self.ranks * self.per_rank

    @property
    def fewest(self) -> int:
        """The fewest iterations that hold all groups, ceil(K / (R L))."""
        return -(-self.groups // self.share)

    @property
    def most(self) -> int:
        """The most iterations that a best schedule ever needs.

        Two iterations of at most R groups each can be merged where L >= 2, and the merged one takes no longer than
        both: their groups are first spread, one a rank, then laid on each other. So some best schedule has at most
        one iteration of fewer than R + 1 groups.
        """
        if self.per_rank == 1:
            return self.fewest
        return max(self.fewest, (self.groups - 1) // (self.ranks + 1) + 1)


def checked(
    times_s: ArrayLike,
    ranks: int,
    *,
    per_rank: int,
    allreduce_s: float,
    gap: float,
    time_limit_s: float,
    seed: int,
    targets: int = 0,
) -> Problem:
    """What was given, as a :class:`Problem`; groups that take no time at all are allowed.

    Raises:
        PlanError: ``times_s`` is no vector of at least one finite number of at least 0.
        ConfigError: a knob has a value that is not allowed.
    """
    return Problem(
        checked_times(times_s), _whole("ranks", ranks), _whole("per_rank", per_rank),
        _seconds("allreduce_s", allreduce_s), _seconds("gap", gap), _time_limit(time_limit_s),
        _whole("seed", seed, least=0), _whole("targets", targets, least=0),
    )  # fmt: skip


def checked_times(times_s: ArrayLike) -> NDArray[np.float64]:
    """A read-only copy, (K,) float64.

    Raises:
        PlanError: it is no vector of at least one finite number of at least 0.
    """
    try:
        own = np.array(times_s, np.float64)
    except (TypeError, ValueError) as error:
        raise PlanError(f"times_s must hold the seconds of each group, not {shortened(times_s)}.") from error
    if own.ndim != 1 or not len(own):
        raise PlanError(
            f"times_s has shape {own.shape}: a vector with the seconds of at least one group is needed. "
            "Are there snapshots enough for one group?"
        )
    wrong = np.flatnonzero(~(np.isfinite(own) & (own >= 0)))
    if len(wrong):
        told = ", ".join(f"group {group}: {own[group]} s" for group in wrong[:4])
        raise PlanError(
            f"{len(wrong)} of {len(own)} group times are negative or not finite ({told}). Finite seconds of at least "
            "0 are allowed. Profile these groups again, or predict their times."
        )
    with np.errstate(over="ignore"):
        total = own.sum()
    if not np.isfinite(total):
        raise PlanError("the group times sum to more than a float64 holds. Are they in seconds?")
    own.setflags(write=False)
    return own


def _whole(name: str, given: int, least: int = 1) -> int:
    """A whole number of at least ``least``."""
    if isinstance(given, bool) or not isinstance(given, Integral) or given < least:
        raise ConfigError(f"{name} is {shortened(given)}: a whole number of at least {least} is allowed.")
    return int(given)


def _seconds(name: str, given: float) -> float:
    """A finite number of at least 0."""
    if isinstance(given, bool) or not isinstance(given, Real) or not math.isfinite(given) or given < 0:
        raise ConfigError(f"{name} is {shortened(given)}: a finite number of at least 0 is allowed.")
    return float(given)


def _time_limit(given: float) -> float:
    """A finite number above 0."""
    if _seconds("time_limit_s", given) == 0:
        raise ConfigError("time_limit_s is 0: a search needs some time. Set it above 0, or choose scheduler 'fold'.")
    return float(given)
