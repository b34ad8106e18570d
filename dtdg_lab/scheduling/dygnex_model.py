"""The integer programme of DyGNeX-L in OR-tools CP-SAT."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.scheduling.bounds import problem_bound_s
from dtdg_lab.scheduling.checks import Problem
from dtdg_lab.scheduling.slots import Slots, loads_s

FINENESS = 10_000_000  # whole units in the mean epoch of one rank: CP-SAT counts in integers


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a search brought.

    Attributes:
        slots: the best it found; None where time was over before anything.
        bound_s: no epoch is shorter.
        by_time: it was stopped by its time limit.
    """

    slots: Slots | None
    bound_s: float
    by_time: bool


def searched(problem: Problem, start: Slots, *, until: float) -> Found | None:
    """Search from these slots until the problem's gap is proven or time is over.

    Times are rounded down to whole units, so that the bound of the rounded problem is one of the real one.

    Args:
        problem: groups and ranks.
        start: slots to start from.
        until: time of ``time.perf_counter()`` at which all must be over. Building may take half of what is left, since
            CP-SAT takes nearly as long again to read what was built, and does not look at its limit meanwhile.

    Returns:
        None where building took longer than that, and was given up.
    """
    from ortools.sat.python import cp_model

    unit_s = max(float(problem.times_s.sum()) / problem.ranks, problem.allreduce_s * problem.fewest) / FINENESS
    units = np.floor(problem.times_s / unit_s).astype(np.int64)
    alpha = math.floor(problem.allreduce_s / unit_s)
    now = time.perf_counter()
    built = _built(cp_model, problem, start, units, alpha, until=now + (until - now) / 2)
    if built is None:
        return None
    model, takes = built
    solver = cp_model.CpSolver()
    # four strategies in turns on one thread: repeatable, unlike four threads, and better than one strategy
    solver.parameters.num_workers = 4
    solver.parameters.interleave_search = True
    solver.parameters.random_seed = problem.seed % (2**31)
    solver.parameters.max_time_in_seconds = max(until - time.perf_counter(), 0.01)
    # the solver's gap is relative to what it has found, ours to the bound; a little less, for the rounded times
    gap = max(0.0, problem.gap - 2 * problem.groups / FINENESS)
    solver.parameters.relative_gap_limit = gap / (1 + gap)
    status = solver.solve(model, _stop_at(cp_model, gap))
    bound_s = max(0.0, solver.best_objective_bound - 0.5) * unit_s * (1 - 1e-12)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Found(None, bound_s, True)
    met = solver.objective_value <= (1 + gap) * solver.best_objective_bound
    return Found(_read(solver, takes, problem), bound_s, status != cp_model.OPTIMAL and not met)


def _stop_at(cp_model: Any, gap: float) -> Any:
    """Ends the search at the first solution within the gap: with strategies in turns CP-SAT goes on to its limit."""

    class Stop(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            if self.objective_value <= (1 + gap) * self.best_objective_bound:
                self.stop_search()

    return Stop()


def _built(
    cp_model: Any, problem: Problem, start: Slots, units: NDArray[np.int64], alpha: int, *, until: float
) -> tuple[Any, NDArray[Any]] | None:
    """The programme with its start, and its variables (K, iterations, R): whether a group is computed there.

    None where that takes longer than ``until``.
    """
    model = cp_model.CpModel()
    groups, iterations, ranks = range(problem.groups), range(problem.most), range(problem.ranks)
    takes = np.empty((problem.groups, problem.most, problem.ranks), object)
    wanted = _wanted(takes.shape, problem, start, units)
    for group in groups:
        if time.perf_counter() > until:
            return None
        own = [model.new_bool_var("") for _ in range(takes[group].size)]
        takes[group] = np.array(own, object).reshape(takes[group].shape)
        model.add_exactly_one(own)
        for variable, value in zip(own, wanted[group].ravel().tolist(), strict=True):
            model.add_hint(variable, value)
    total = int(units.sum())
    loads = [[model.new_int_var(0, total, "") for _ in ranks] for _ in iterations]
    used = [model.new_bool_var("") for _ in iterations]
    for i in iterations:
        if time.perf_counter() > until:
            return None
        for j in ranks:
            column = takes[:, i, j].tolist()
            model.add(cp_model.LinearExpr.weighted_sum(column, units.tolist()) == loads[i][j])
            model.add(cp_model.LinearExpr.sum(column) <= problem.per_rank * used[i])
        for j in ranks[1:]:
            model.add(loads[i][j - 1] >= loads[i][j])  # ranks by load, so that loads[i][0] is the iteration
    for i in iterations[1:]:
        model.add(loads[i - 1][0] >= loads[i][0])  # iterations by duration, those without a group last
        model.add_implication(used[i], used[i - 1])
    epoch = cp_model.LinearExpr.sum([row[0] for row in loads]) + alpha * cp_model.LinearExpr.sum(used)
    rounded = Problem(units.astype(np.float64), problem.ranks, problem.per_rank, float(alpha))
    model.add(epoch >= math.ceil(problem_bound_s(rounded) - 0.5))
    model.minimize(epoch)
    return model, takes


def _wanted(shape: tuple[int, ...], problem: Problem, start: Slots, units: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Where these slots have each group, in the order that breaks the symmetry."""
    rounded = Problem(units.astype(np.float64), problem.ranks, problem.per_rank)
    loads = loads_s(start, rounded)
    held = (start < problem.groups).any(axis=(1, 2))
    wanted = np.zeros(shape, bool)
    for i, row in enumerate(np.lexsort((~held, -loads.max(axis=1)))[: int(held.sum())].tolist()):
        for j, rank in enumerate(np.argsort(-loads[row], kind="stable").tolist()):
            for group in start[row, rank]:
                if group < problem.groups:
                    wanted[group, i, j] = True
    return wanted


def _read(solver: Any, takes: NDArray[Any], problem: Problem) -> Slots:
    """The slots that the solver found."""
    slots = np.full((problem.most, problem.ranks, problem.per_rank), problem.groups)
    filled = np.zeros(slots.shape[:2], np.int64)
    for group, i, j in np.ndindex(takes.shape):
        if solver.boolean_value(takes[group, i, j]):
            slots[i, j, filled[i, j]] = group
            filled[i, j] += 1
    return slots
