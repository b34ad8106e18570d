"""Heuristic schedulers: round robin, consecutive, fold, and the best of several improved by swaps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.snapshot_groups.schedulers.base import (
    Problem,
    Slots,
    checked,
    finished,
    longest_first_slots,
    makespan_s,
    problem_bound_s,
    relative_gap,
)
from dtdg_lab.systems.snapshot_groups.schedulers.dygnex import greedy, targets_of

# Fold: the largest with the smallest, and like sums side by side.


def schedule_fold(
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
    """Sort groups, pair the largest with the smallest, sort the pairs by their sums, and deal these in runs of R.

    On a growing graph the sums are nearly alike, so nobody waits. Takes O(K log K), milliseconds for 10,000 groups.

    Args:
        times_s: (K,) predicted or measured seconds of each group.
        ranks: R.
        per_rank: L, most groups of a rank in an iteration. With 1 it is ``longest_first``; with 3 and more each
            further run of groups, the largest first, goes to the bundles with the smallest sums.
        allreduce_s: seconds of an exchange; the number of iterations is fixed by ``per_rank``, so only the gap
            reads it.
        gap: not used by this rule.
        time_limit_s: not used by this rule.
        seed: not used by this rule: nothing is drawn.
        targets: not used by this rule.

    Returns:
        ceil(K / (R L)) iterations. Where K does not fill them, the largest groups stay alone. Ties go to the lower
        group. The best schedule there is where K <= 2 R and L = 2.

    Raises:
        PlanError: a time is negative or not finite, or there is none.
        ConfigError: a knob has a value that is not allowed.

    References: ours.
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
    return finished(folded(problem, problem.fewest * problem.ranks), problem, since=since)


def folded(problem: Problem, bundles: int) -> Slots:
    """Groups in a number of bundles, at least ceil(K / L), dealt in runs of R; (ceil(bundles / R), R, L)."""
    groups, each = problem.groups, problem.per_rank
    lengths_s = np.append(problem.times_s, 0.0)
    longest_first = np.full(bundles * each, groups)
    longest_first[:groups] = np.argsort(-problem.times_s, kind="stable")
    rounds = longest_first.reshape(each, bundles)
    members = rounds.T.copy()
    sums = lengths_s[rounds[0]]
    for number, groups_of_round in enumerate(rounds[1:], start=1):
        smallest_first = np.argsort(sums, kind="stable")
        members[smallest_first, number] = groups_of_round
        sums[smallest_first] += lengths_s[groups_of_round]
    iterations = -(-bundles // problem.ranks)
    slots = np.full((iterations * problem.ranks, each), groups)
    slots[:bundles] = members[np.argsort(-sums, kind="stable")]
    return slots.reshape(iterations, problem.ranks, each)


# Merge iterations that are no more than half full: never slower, and one exchange less.


def merged(slots: Slots, problem: Problem) -> Slots:
    """Slots with at most one iteration of R groups or fewer, and none without any, where L >= 2.

    Two iterations of at most R groups each: spread one a rank, then laid on each other, the longest on the shortest.
    No rank takes longer than both iterations did.
    """
    groups, ranks = problem.groups, problem.ranks
    slots = slots[(slots < groups).any(axis=(1, 2))]
    if problem.per_rank == 1:
        return slots
    few = (slots < groups).sum(axis=(1, 2)) <= ranks
    kept = list(slots[~few])
    waiting = [row[row < groups] for row in slots[few]]
    while len(waiting) > 1:
        both = np.concatenate([waiting.pop(), waiting.pop()])
        if len(both) <= ranks:
            waiting.append(both)
        else:
            kept.append(_laid(both, problem))
    return np.array(kept + [_laid(rest, problem) for rest in waiting])


def _laid(groups: NDArray[np.int64], problem: Problem) -> NDArray[np.int64]:
    """One iteration (R, L) of at most 2 R groups: the longest one a rank, the others with the shortest of these."""
    longest_first = groups[np.argsort(-problem.times_s[groups], kind="stable")]
    ranks = problem.ranks
    row = np.full((ranks, problem.per_rank), problem.groups)
    row[: min(len(groups), ranks), 0] = longest_first[:ranks]
    rest = longest_first[ranks:]
    row[ranks - len(rest) :, 1] = rest[::-1]
    return row


# Local search: swap a group of a slowest rank with a shorter one elsewhere, as long as that shortens the epoch.


WORK = 4_000_000  # slots looked at in all: about a tenth of a second


def swapped(slots: Slots, problem: Problem, *, until: float) -> Slots:
    """Better slots, by the best swap of each slowest rank's groups in turn; an empty slot counts as a group of 0 s.

    The work is bounded by a number of slots, so that the same input gives the same slots; ``until``, a time of
    ``time.perf_counter()``, only matters on a machine much slower than that.
    """
    slots = slots.copy()
    times_s = np.append(problem.times_s, 0.0)[slots]  # (iterations, R, L)
    work, better = 0, True
    while better and work < WORK:
        better = False
        for iteration in np.argsort(-times_s.sum(axis=2).max(axis=1), kind="stable").tolist():
            for place in range(problem.per_rank):
                work += times_s.size
                if work > WORK or time.perf_counter() > until:
                    return slots
                better |= _swap(slots, times_s, iteration, place)
    return slots


def _swap(slots: Slots, times_s: NDArray[np.float64], iteration: int, place: int) -> bool:
    """Swap the group in this place of the iteration's slowest rank with the best other; whether that helped."""
    loads = times_s.sum(axis=2)
    longest = loads.max(axis=1)
    rank = int(loads[iteration].argmax())
    others = np.delete(loads[iteration], rank)
    second = float(others.max()) if len(others) else 0.0
    less = times_s[iteration, rank, place] - times_s  # (iterations, R, L): what the slowest rank is relieved of
    own = np.maximum(second, longest[iteration] - less)  # this iteration afterwards
    raised = loads[:, :, None] + less
    change = own - longest[iteration] + np.maximum(raised - longest[:, None, None], 0.0)
    change[iteration] = np.maximum(own[iteration], raised[iteration]) - longest[iteration]
    change[less <= 0] = 0.0
    change[iteration, rank] = 0.0
    best = int(change.argmin())
    if change.flat[best] >= -1e-12 * longest.sum():
        return False
    here, there = (iteration, rank, place), np.unravel_index(best, change.shape)
    slots[here], slots[there] = slots[there], slots[here]
    times_s[here], times_s[there] = times_s[there], times_s[here]
    return True


# The least makespan of several heuristics.


FOLDS = 12  # numbers of bundles tried
NEAR = 1e-3  # relative distance from the bound at which only DyGNeX-G is still tried


def schedule_best_of(
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
    yield "longest first", lambda: longest_first_slots(problem)
    for more in range(1, min(FOLDS, problem.most - fewest) + 1):
        bundles = (fewest + more) * ranks
        yield f"fold into {fewest + more} iterations", lambda bundles=bundles: folded(problem, bundles)  # type: ignore[misc]


# Neighbouring groups to one rank: what BLAD pipelines.


def schedule_consecutive(
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
    """Deal groups 0, 1, 2, ... to ranks, ``per_rank`` neighbours to each before the next one has its turn.

    Args:
        times_s: (K,) seconds of each group; only their number matters to the rule.
        ranks: R.
        per_rank: L, most groups of a rank in an iteration; BLAD's two processes a GPU have 2.
        allreduce_s: seconds of an exchange; only the gap reads it.
        gap: not used by this rule.
        time_limit_s: not used by this rule.
        seed: not used by this rule: nothing is drawn.
        targets: not used by this rule.

    Returns:
        ceil(K / (R L)) iterations; in the last one some ranks may be idle.

    Raises:
        PlanError: a time is negative or not finite, or there is none.
        ConfigError: a knob has a value that is not allowed.

    References: DyGNeX section 5.1 (BLAD trains two consecutive snapshot groups on a GPU).
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
    in_turn = np.minimum(np.arange(problem.fewest * problem.share), problem.groups)
    return finished(in_turn.reshape(problem.fewest, problem.ranks, problem.per_rank), problem, since=since)


# Groups in time order, dealt to ranks in turn: the baseline PSG.


def schedule_round_robin(
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
    """Deal groups 0, 1, 2, ... to ranks in turn, ``per_rank`` rounds an iteration.

    Args:
        times_s: (K,) seconds of each group; only their number matters to the rule.
        ranks: R.
        per_rank: L, most groups of a rank in an iteration; the paper's PSG has 1.
        allreduce_s: seconds of an exchange; only the gap reads it.
        gap: not used by this rule.
        time_limit_s: not used by this rule.
        seed: not used by this rule: nothing is drawn.
        targets: not used by this rule.

    Returns:
        ceil(K / (R L)) iterations; in the last one some ranks may be idle.

    Raises:
        PlanError: a time is negative or not finite, or there is none.
        ConfigError: a knob has a value that is not allowed.

    References: DyGNeX section 2.3 (PSG, one group a GPU).
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
    in_turn = np.minimum(np.arange(problem.fewest * problem.share), problem.groups)
    slots = in_turn.reshape(problem.fewest, problem.per_rank, problem.ranks).transpose(0, 2, 1)
    return finished(slots, problem, since=since)
