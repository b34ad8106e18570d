"""The least makespan of several heuristics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from numpy.typing import ArrayLike

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.scheduling.bounds import problem_bound_s, relative_gap
from dtdg_lab.scheduling.checks import Problem, checked
from dtdg_lab.scheduling.dygnex_greedy import greedy, targets_of
from dtdg_lab.scheduling.fold import folded
from dtdg_lab.scheduling.longest_first import dealt_longest_first
from dtdg_lab.scheduling.merge import merged
from dtdg_lab.scheduling.slots import Slots, finished, makespan_s
from dtdg_lab.scheduling.swaps import swapped

FOLDS = 12  # numbers of bundles tried
NEAR = 1e-3  # relative distance from the bound at which only DyGNeX-G is still tried


def schedule(
    times_s: ArrayLike,
    ranks: int,
    *,
    per_rank: int = 2,
    allreduce_s: float = 0.0,
    gap: float = 0.02,
    time_limit_s: float = 10.0,
    seed: int = 0,
    targets: int = 0,
) -> Schedule:
    """The best of fold, with several numbers of iterations, longest first and DyGNeX-G, improved by swaps.

    Args:
        times_s: (K,) predicted or measured seconds of each group.
        ranks: R.
        per_rank: L, most groups of a rank in an iteration.
        allreduce_s: seconds of the exchange that ends an iteration: more of them must be worth it.
        gap: not used by this rule: it costs so little that it stops at 0.1 % only.
        time_limit_s: no further heuristic is tried after these seconds, and the notes say so.
        seed: not used by this rule: nothing is drawn.
        targets: that DyGNeX-G tries in an iteration; 0 for as many as take about a second.

    Returns:
        Never worse than fold and DyGNeX-G, and worse than the others by 0.1 % at most, unless the notes call one
        untried: time ran out, or it needs what is not installed. The same input gives the same schedule, unless time
        ran out.

    Raises:
        PlanError: a time is negative or not finite, or there is none.
        ConfigError: a knob has a value that is not allowed.

    References: ours; the parts are named in their own modules.
    """
    since = time.perf_counter()
    problem = checked(
        times_s,
        ranks,
        per_rank=per_rank,
        allreduce_s=allreduce_s,
        gap=gap,
        time_limit_s=time_limit_s,
        seed=seed,
        targets=targets,
    )
    bound_s = problem_bound_s(problem)
    slots, notes, tried = best_slots(problem, bound_s, until=since + time_limit_s)
    return finished(slots, problem, since=since, notes=notes, bound_s=bound_s, targets=tried)


def best_slots(problem: Problem, bound_s: float, *, until: float) -> tuple[Slots, str, int | None]:
    """The best slots, which heuristic they are from, and how many targets DyGNeX-G tried; None where it was not."""
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
    if not untried:
        best, winner = _improved(best, winner, problem, bound_s, until)
    tried, missing = None, ""
    if problem.per_rank > 1 and relative_gap(makespan_s(best, problem), bound_s) > 0:
        if time.perf_counter() > until:
            untried.append("DyGNeX-G")
        else:
            try:
                slots, tried = merged(greedy(problem), problem), targets_of(problem)
            except NotAvailableError as error:
                slots, missing = best, f" Untried: {error}"
            if makespan_s(slots, problem) < makespan_s(best, problem):
                best, winner = _improved(slots, "DyGNeX-G", problem, bound_s, until)
    late = f" Untried, as time_limit_s={problem.time_limit_s:g} was over: {', '.join(untried)}." if untried else ""
    return best, f"Best: {winner}.{late}{missing}", tried


def _improved(slots: Slots, made_by: str, problem: Problem, bound_s: float, until: float) -> tuple[Slots, str]:
    """Slots after swaps, and who made them; as they are where they are near the bound, or swaps bring nothing."""
    if relative_gap(makespan_s(slots, problem), bound_s) <= NEAR:
        return slots, made_by
    better = swapped(slots, problem, until=until)
    if makespan_s(better, problem) < makespan_s(slots, problem):
        return better, f"{made_by}, improved by swaps"
    return slots, made_by


def _heuristics(problem: Problem) -> Iterator[tuple[str, Callable[[], Slots]]]:
    """Names and functions of what takes milliseconds, the quickest first."""
    ranks, fewest = problem.ranks, problem.fewest
    yield "fold", lambda: folded(problem, fewest * ranks)
    pairs = -(-problem.groups // problem.per_rank)
    if pairs < fewest * ranks:
        yield "fold without lone groups", lambda: folded(problem, pairs)
    yield "longest first", lambda: dealt_longest_first(problem)
    for more in range(1, min(FOLDS, problem.most - fewest) + 1):
        bundles = (fewest + more) * ranks
        yield f"fold into {fewest + more} iterations", lambda bundles=bundles: folded(problem, bundles)  # type: ignore[misc]
