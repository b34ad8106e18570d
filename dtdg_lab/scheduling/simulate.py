"""What schedulers come to on many ranks, by their group times alone: the simulation of Figure 5.

Simulated: in each iteration every rank computes its groups one after another, and all wait for the slowest; then the
gradients are all-reduced in ``allreduce_s``. Not simulated: loading of data, slow ranks, ranks that share cores or
caches, an all-reduce that overlaps with computing or takes longer on more ranks, and evaluation between epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from numpy.typing import ArrayLike

from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.scheduling.bounds import lower_bound_s
from dtdg_lab.scheduling.outcome import Outcome, outcome
from dtdg_lab.scheduling.solve import PSG, solve, times_of

RANKS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
SCHEDULERS = (PSG, "longest_first", "fold", "dygnex_greedy", "best_of")
PAPER_THROUGHPUT = MappingProxyType({512: 0.95, 1024: 0.85})  # DyGNeX-G, section 5.4; the curve's growth is not given


def simulate(
    times_s: ArrayLike,
    *,
    ranks: Sequence[int] = RANKS,
    schedulers: Sequence[str] = SCHEDULERS,
    per_rank: int = 2,
    allreduce_s: float = 0.0,
    seen_s: ArrayLike | None = None,
    time_limit_s: float = 10.0,
    seed: int = 0,
    targets: int = 0,
) -> tuple[Outcome, ...]:
    """One outcome for each number of ranks and scheduler, in this order.

    Args:
        times_s: (K,) seconds that each group takes.
        ranks: numbers of ranks R. One rank needs no all-reduce.
        schedulers: ``psg``, or names of the catalogue's room ``scheduling``.
        per_rank: most groups of a rank in an iteration; ``psg`` has one.
        allreduce_s: seconds of the exchange that ends an iteration, the same on every number of ranks.
        seen_s: (K,) seconds the schedulers take the groups to need; ``times_s`` where not given, as in the paper.
        time_limit_s: for schedulers that search.
        seed: of schedulers that draw lots.
        targets: that DyGNeX-G tries in an iteration; 0 for as many as take about a second.

    Raises:
        PlanError: times are negative or not finite, or all are 0, or the two vectors do not fit.
        ConfigError: no rank or scheduler is given, or a number of ranks is below 1.
        UnknownNameError: there is no such scheduler.

    References: DyGNeX section 5.4 and Figure 5.
    """
    times = times_of(times_s)
    seen = times if seen_s is None else times_of(seen_s)
    if seen.shape != times.shape:
        raise PlanError(f"the schedulers see {len(seen)} groups of {len(times)}: give each group a time.")
    if not ranks or min(ranks) < 1 or not schedulers:
        raise ConfigError(
            f"simulation of {list(schedulers)} on {list(ranks)} ranks: at least one of both is needed, and ranks of at "
            "least 1."
        )
    outcomes = []
    for count in ranks:
        exchange = allreduce_s if count > 1 else 0.0
        bound = lower_bound_s(times, count, per_rank=per_rank, allreduce_s=exchange)
        for name in schedulers:
            plan = solve(
                name,
                seen,
                count,
                per_rank=per_rank,
                allreduce_s=exchange,
                time_limit_s=time_limit_s,
                seed=seed,
                targets=targets,
            )
            outcomes.append(
                outcome(
                    name,
                    plan,
                    times,
                    per_rank=1 if name == PSG else per_rank,
                    allreduce_s=exchange,
                    bound_s=bound,
                )
            )
    return tuple(outcomes)
