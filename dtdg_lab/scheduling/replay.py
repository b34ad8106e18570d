"""What the other schedulers would have done with the group times of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from dtdg_lab.core import catalogue
from dtdg_lab.core.errors import ConfigError, NotAvailableError
from dtdg_lab.scheduling.bounds import lower_bound_s
from dtdg_lab.scheduling.outcome import Outcome, outcome
from dtdg_lab.scheduling.solve import PSG, solve, times_of

_ILP = "dygnex_ilp"
_ILP_MOST = 100  # groups: the paper solves the integer programme below it, and the greedy rule from it
_CHOOSERS = ("round_robin", "dygnex_auto")  # round_robin stands as psg; dygnex_auto only picks one of the others


@dataclass(frozen=True, slots=True)
class Replay:
    """What each scheduler would have come to with the same times.

    Attributes:
        outcomes: in the order asked for.
        missing: scheduler and why it could not be asked, in words.
    """

    outcomes: tuple[Outcome, ...]
    missing: tuple[tuple[str, str], ...] = ()

    @property
    def best(self) -> Outcome:
        """The shortest epoch; of equals the first."""
        return min(self.outcomes, key=lambda each: each.makespan_s)

    def rows(self) -> list[dict[str, Any]]:
        """Plain values, a row for each outcome; ``scheduling.outcome.MEANINGS`` says what they are."""
        return [each.row() for each in self.outcomes]


def replay(
    times_s: ArrayLike,
    ranks: int,
    *,
    per_rank: int = 2,
    allreduce_s: float = 0.0,
    schedulers: Sequence[str] | None = None,
    gap: float = 0.02,
    time_limit_s: float = 1.0,
    seed: int = 0,
) -> Replay:
    """Ask each scheduler for the same groups, and compare.

    Args:
        times_s: (K,) measured or predicted seconds of each group.
        ranks: R of the run.
        per_rank: most groups of a rank in an iteration; ``psg`` has one.
        allreduce_s: seconds of the exchange that ends an iteration; not counted on one rank.
        schedulers: ``psg`` or names of the catalogue; where not given ``psg`` and all of the catalogue, but the
            integer programme only up to 100 groups (the paper's rule), and not what merely chooses among the others.
        gap: see :func:`~dtdg_lab.scheduling.solve.solve`.
        time_limit_s: for each scheduler that searches.
        seed: of schedulers that draw lots.

    Raises:
        PlanError: times are negative or not finite, or all are 0.
        ConfigError: there is no rank.
        UnknownNameError: there is no such scheduler.
        NotAvailableError: none of the schedulers is installed.
    """
    times = times_of(times_s)
    if ranks < 1:
        raise ConfigError(f"a replay on {ranks} ranks: at least 1 is needed.")
    exchange = allreduce_s if ranks > 1 else 0.0
    bound = lower_bound_s(times, ranks, per_rank=per_rank, allreduce_s=exchange)
    found: list[Outcome] = []
    missing: list[tuple[str, str]] = []
    for name in _all(len(times)) if schedulers is None else schedulers:
        try:
            plan = solve(
                name,
                times,
                ranks,
                per_rank=per_rank,
                allreduce_s=exchange,
                gap=gap,
                time_limit_s=time_limit_s,
                seed=seed,
            )
        except NotAvailableError as error:
            missing.append((name, str(error)))
            continue
        most = 1 if name == PSG else per_rank
        found.append(outcome(name, plan, times, per_rank=most, allreduce_s=exchange, bound_s=bound))
    if not found:
        raise NotAvailableError(" ".join(why for _, why in missing) or "no scheduler was asked for: name one.")
    return Replay(tuple(found), tuple(missing))


def _all(groups: int) -> tuple[str, ...]:
    known = [name for name in catalogue.names("scheduling") if name not in _CHOOSERS]
    return (PSG, *(name for name in known if name != _ILP or groups <= _ILP_MOST))
