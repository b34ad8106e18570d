"""Heuristic schedulers: round robin, consecutive, fold, and the best of several improved by swaps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.snapshot_groups.schedulers.base import (
    Problem,
    Slots,
    finished,
    makespan_s,
    problem_bound_s,
    relative_gap,
    scheduler,
)
from dtdg_lab.systems.snapshot_groups.schedulers.dygnex import greedy, targets_of
from dtdg_lab.systems.snapshot_groups.schedulers.longest_first import longest_first_slots

# Fold: pair the largest with the smallest, and place similar sums together.


@scheduler
def schedule_fold(problem: Problem) -> Schedule:
    """Sort groups, pair the largest with the smallest, sort the pairs by their sums, and assign them in runs of R.

    On a growing graph the sums are nearly equal, so ranks hardly wait. It takes O(K log K): milliseconds for 10,000
    groups.

    Options:
        per_rank: L, the maximum number of groups per rank and iteration. With 1 it equals ``longest_first``. With 3 or
            more, each further run of groups, the largest first, goes to the bundles with the smallest sums.
        allreduce_s: seconds of an all-reduce; only the gap uses it, since ``per_rank`` fixes the number of iterations.

    Returns:
        ceil(K / (R L)) iterations. If K does not fill them, the largest groups are not paired. Ties are broken by the
            lower group. The schedule is optimal if K <= 2 R and L = 2.

    References: ours.
    """
    return finished(folded(problem, problem.fewest * problem.ranks), problem)


def folded(problem: Problem, bundles: int) -> Slots:
    """Return (ceil(bundles / R), R, L) slots of groups in bundles, at least ceil(K / L), assigned in runs of R."""
    groups, per_bundle = problem.groups, problem.per_rank
    lengths_s = np.append(problem.times_s, 0.0)
    longest_first = np.full(bundles * per_bundle, groups)
    longest_first[:groups] = np.argsort(-problem.times_s, kind="stable")
    rounds = longest_first.reshape(per_bundle, bundles)
    members = rounds.T.copy()
    sums = lengths_s[rounds[0]]
    for number, groups_of_round in enumerate(rounds[1:], start=1):
        smallest_first = np.argsort(sums, kind="stable")
        members[smallest_first, number] = groups_of_round
        sums[smallest_first] += lengths_s[groups_of_round]
    iterations = -(-bundles // problem.ranks)
    slots = np.full((iterations * problem.ranks, per_bundle), groups)
    slots[:bundles] = members[np.argsort(-sums, kind="stable")]
    return slots.reshape(iterations, problem.ranks, per_bundle)


# Merge iterations that are at most half full: this is never slower, and saves an all-reduce.


def merged(slots: Slots, problem: Problem) -> Slots:
    """Return slots with at most one iteration of R groups or fewer, and no empty one, if L >= 2.

    Two iterations of at most R groups each are merged: one group per rank, then the longest on the shortest. No rank
    takes longer than both iterations did.
    """
    groups, ranks = problem.groups, problem.ranks
    slots = slots[(slots < groups).any(axis=(1, 2))]
    if problem.per_rank == 1:
        return slots
    few = (slots < groups).sum(axis=(1, 2)) <= ranks
    iterations = list(slots[~few])
    waiting = [row[row < groups] for row in slots[few]]
    while len(waiting) > 1:
        both = np.concatenate([waiting.pop(), waiting.pop()])
        if len(both) <= ranks:
            waiting.append(both)
        else:
            iterations.append(_stacked(both, problem))
    return np.array(iterations + [_stacked(rest, problem) for rest in waiting])


def _stacked(groups: NDArray[np.int64], problem: Problem) -> NDArray[np.int64]:
    """Return an iteration (R, L) of at most 2 R groups: the longest one per rank, the others on the shortest."""
    longest_first = groups[np.argsort(-problem.times_s[groups], kind="stable")]
    ranks = problem.ranks
    row = np.full((ranks, problem.per_rank), problem.groups)
    row[: min(len(groups), ranks), 0] = longest_first[:ranks]
    rest = longest_first[ranks:]
    row[ranks - len(rest) :, 1] = rest[::-1]
    return row


# Local search: swap a group of a straggler with a shorter one elsewhere, while that shortens the epoch.


WORK = 4_000_000  # maximum number of examined slots: about a tenth of a second


def swapped(slots: Slots, problem: Problem, *, until: float) -> Slots:
    """Improve slots by the best swap of each straggler's groups in turn; an empty slot counts as a group of 0 s.

    The work is limited by a number of slots, so equal inputs give equal slots. ``until``, a value of
    ``time.perf_counter()``, only matters on a much slower machine.
    """
    slots = slots.copy()
    times_s = np.append(problem.times_s, 0.0)[slots]  # (iterations, R, L)
    work, better = 0, True
    while better and work < WORK:
        better = False
        for iteration in np.argsort(-times_s.sum(axis=2).max(axis=1), kind="stable").tolist():
            for position in range(problem.per_rank):
                work += times_s.size
                if work > WORK or time.perf_counter() > until:
                    return slots
                better |= _swap(slots, times_s, iteration, position)
    return slots


def _swap(slots: Slots, times_s: NDArray[np.float64], iteration: int, position: int) -> bool:
    """Swap the straggler's group at a position with the best other group; return True if it helped."""
    loads = times_s.sum(axis=2)
    longest = loads.max(axis=1)
    rank = int(loads[iteration].argmax())
    second = float(np.delete(loads[iteration], rank).max(initial=0.0))
    less = times_s[iteration, rank, position] - times_s  # (iterations, R, L): reduction of the straggler's load
    shortened = np.maximum(second, longest[iteration] - less)  # time of this iteration after the swap
    raised = loads[:, :, None] + less
    change = shortened - longest[iteration] + np.maximum(raised - longest[:, None, None], 0.0)
    change[iteration] = np.maximum(shortened[iteration], raised[iteration]) - longest[iteration]
    change[less <= 0] = 0.0
    change[iteration, rank] = 0.0
    best = int(change.argmin())
    if change.flat[best] >= -1e-12 * longest.sum():
        return False
    first, second_slot = ((iteration, rank, position), np.unravel_index(best, change.shape))
    for array in (slots, times_s):
        array[first], array[second_slot] = array[second_slot], array[first]
    return True


# The shortest makespan of several heuristics.


FOLDS = 12  # maximum number of numbers of bundles to try
NEAR = 1e-3  # relative distance from the bound below which only DyGNeX-G is still tried


@scheduler(searches=True)
def schedule_best_of(problem: Problem) -> Schedule:
    """Take the best of fold with several numbers of iterations, longest first and DyGNeX-G, improved by swaps.

    Options:
        per_rank: L, the maximum number of groups per rank and iteration.
        allreduce_s: seconds of the gradient all-reduce that ends an iteration; more iterations must be worth it.
        time_limit_s: seconds after which no further heuristic is tried; the notes then say so.
        targets: number that DyGNeX-G tries per iteration; 0 limits them to about a second of work.

    Returns:
        A schedule never worse than fold and DyGNeX-G, and at most 0.1 % worse than the other heuristics. Exceptions are
            listed as untried in the notes: time ran out, or a package is missing. Equal inputs give equal schedules,
            unless time ran out.

    References: ours; see each heuristic for its own.
    """
    bound_s = problem_bound_s(problem)
    slots, notes, tried = best_slots(problem, bound_s, until=problem.until)
    return finished(slots, problem, notes=notes, bound_s=bound_s, targets=tried)


def best_slots(problem: Problem, bound_s: float, *, until: float) -> tuple[Slots, str, int | None]:
    """Return the best slots, their heuristic's name, and the number of targets of DyGNeX-G; None if it did not run."""
    best_s, best, winner, untried = float("inf"), None, "", []
    for name, make in _heuristics(problem):
        if best is not None and time.perf_counter() > until:
            untried.append(name)
            continue
        slots = merged(make(), problem)
        slots_s = makespan_s(slots, problem)
        if slots_s < best_s:
            best_s, best, winner = slots_s, slots, name
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


def _improved(slots: Slots, winner: str, problem: Problem, bound_s: float, until: float) -> tuple[Slots, str]:
    """Return slots and name after swaps; unchanged if near the bound, or if swaps do not help."""
    if relative_gap(makespan_s(slots, problem), bound_s) <= NEAR:
        return slots, winner
    better = swapped(slots, problem, until=until)
    if makespan_s(better, problem) < makespan_s(slots, problem):
        return better, f"{winner}, improved by swaps"
    return slots, winner


def _heuristics(problem: Problem) -> Iterator[tuple[str, Callable[[], Slots]]]:
    """Yield the names and functions of the fast heuristics, the fastest first."""
    ranks, fewest = problem.ranks, problem.fewest
    yield "fold", lambda: folded(problem, fewest * ranks)
    pairs = -(-problem.groups // problem.per_rank)
    if pairs < fewest * ranks:
        yield "fold without lone groups", lambda: folded(problem, pairs)
    yield "longest first", lambda: longest_first_slots(problem)
    for iterations in range(fewest + 1, fewest + min(FOLDS, problem.most - fewest) + 1):
        bundles = iterations * ranks
        yield (f"fold into {iterations} iterations", lambda bundles=bundles: folded(problem, bundles))  # type: ignore[misc]


# Consecutive groups on the same rank, as pipelined by BLAD.


@scheduler(uses_times=False)
def schedule_consecutive(problem: Problem) -> Schedule:
    """Assign groups 0, 1, 2, ... to ranks, ``per_rank`` consecutive ones to each rank in turn.

    Options:
        per_rank: L, the maximum number of groups per rank and iteration; BLAD's two processes per GPU have 2.
        allreduce_s: seconds of an all-reduce; only the gap uses it.

    Returns:
        ceil(K / (R L)) iterations; in the last one some ranks may be idle.

    References: DyGNeX section 5.1 (BLAD trains two consecutive snapshot groups on a GPU).
    """
    in_turn = np.minimum(np.arange(problem.fewest * problem.share), problem.groups)
    return finished(in_turn.reshape(problem.fewest, problem.ranks, problem.per_rank), problem)


# Groups in time order, assigned to ranks in turn: the baseline PSG.


@scheduler(uses_times=False)
def schedule_round_robin(problem: Problem) -> Schedule:
    """Assign groups 0, 1, 2, ... to ranks in turn, ``per_rank`` rounds per iteration.

    Options:
        per_rank: L, the maximum number of groups per rank and iteration; the paper's PSG has 1.
        allreduce_s: seconds of an all-reduce; only the gap uses it.

    Returns:
        ceil(K / (R L)) iterations; in the last one some ranks may be idle.

    References: DyGNeX section 2.3 (PSG, one group a GPU).
    """
    in_turn = np.minimum(np.arange(problem.fewest * problem.share), problem.groups)
    slots = in_turn.reshape(problem.fewest, problem.per_rank, problem.ranks).transpose(0, 2, 1)
    return finished(slots, problem)
