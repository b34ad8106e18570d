"""The least makespan of several heuristics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from numpy.typing import ArrayLike

from dtdg_lab.core.plans import Schedule
from dtdg_lab.scheduling.bounds import problem_bound_s, relative_gap
from dtdg_lab.scheduling.checks import Problem, checked
from dtdg_lab.scheduling.dygnex_greedy import greedy
from dtdg_lab.scheduling.fold import folded
from dtdg_lab.scheduling.longest_first import dealt_longest_first
from dtdg_lab.scheduling.merge import merged
from dtdg_lab.scheduling.slots import Slots, finished, makespan_s
from dtdg_lab.scheduling.swaps import swapped

FOLDS = 12  # numbers of bundles tried
EXACT_GROUPS = 200  # up to here Algorithm 2 tries all targets, in tens of milliseconds
SAMPLED_GROUPS = 2000  # up to here it tries a sample; above, fold is so close to the bound that it brings nothing
NEAR = 1e-3  # relative distance from the bound at which nothing more is tried


def schedule(
    times_s: ArrayLike,
    ranks: int,
    *,
    per_rank: int = 2,
    allreduce_s: float = 0.0,
    gap: float = 0.02,
    time_limit_s: float = 10.0,
    seed: int = 0,
) -> Schedule:
    """The best of fold, with several numbers of iterations, longest first and DyGNeX-G, improved by swaps.

    Args:
        times_s: (K,) predicted or measured seconds of each group.
        ranks: R.
        per_rank: L, most groups of a rank in an iteration.
        allreduce_s: seconds of the exchange that ends an iteration: more of them must be worth it.
        gap: not used by this rule: it costs so little that it stops at 0.1 % only.
        time_limit_s: no further heuristic is tried after these seconds, and the notes say so.
        seed: of the targets that DyGNeX-G samples.

    Returns:
        Never worse than any of the heuristics that the notes do not call untried. The same input gives the same
        schedule, unless time ran out.

    Raises:
        PlanError: a time is negative or not finite, or there is none.
        ConfigError: a knob has a value that is not allowed.

    References: ours; the parts are named in their own modules.
    """
    since = time.perf_counter()
    problem = checked(
        times_s, ranks, per_rank=per_rank, allreduce_s=allreduce_s, gap=gap, time_limit_s=time_limit_s, seed=seed
    )
    bound_s = problem_bound_s(problem)
    slots, notes = best_slots(problem, bound_s, until=since + time_limit_s)
    return finished(slots, problem, since=since, notes=notes, bound_s=bound_s)


def best_slots(problem: Problem, bound_s: float, *, until: float) -> tuple[Slots, str]:
    """The best slots, and which heuristic they are from."""
    best_s, best, winner, untried = float("inf"), None, "", []
    for name, make in _heuristics(problem):
        if best is not None and time.perf_counter() > until:
            untried.append(name)
            continue
        slots = merged(make(), problem)
        made_s = makespan_s(slots, problem)
        if made_s < best_s:
            best_s, best, winner = made_s, slots, name
        if relative_gap(best_s, bound_s) <= NEAR:
            break
    assert best is not None
    if relative_gap(best_s, bound_s) > NEAR and not untried:
        improved = swapped(best, problem, until=until)
        if makespan_s(improved, problem) < best_s:
            best, winner = improved, f"{winner}, improved by swaps"
    late = f" Untried, as time_limit_s={problem.time_limit_s:g} was over: {', '.join(untried)}." if untried else ""
    return best, f"Best: {winner}.{late}"


def _heuristics(problem: Problem) -> Iterator[tuple[str, Callable[[], Slots]]]:
    """Names and functions, the quickest first."""
    ranks, fewest = problem.ranks, problem.fewest
    yield "fold", lambda: folded(problem, fewest * ranks)
    pairs = -(-problem.groups // problem.per_rank)
    if pairs < fewest * ranks:
        yield "fold without lone groups", lambda: folded(problem, pairs)
    yield "longest first", lambda: dealt_longest_first(problem)
    for more in range(1, min(FOLDS, problem.most - fewest) + 1):
        bundles = (fewest + more) * ranks
        yield f"fold into {fewest + more} iterations", lambda bundles=bundles: folded(problem, bundles)  # type: ignore[misc]
    if problem.per_rank > 1 and problem.groups <= SAMPLED_GROUPS:
        yield "DyGNeX-G", lambda: greedy(problem, exact=problem.groups <= EXACT_GROUPS)
