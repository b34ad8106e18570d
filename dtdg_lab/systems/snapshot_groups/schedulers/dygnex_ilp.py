"""DyGNeX-L, the integer programme of the whole epoch solved by OR-tools CP-SAT, and DyGNeX's choice of algorithm."""

from __future__ import annotations

import importlib.util
import math
import time
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.systems.snapshot_groups.schedulers.base import (
    Problem,
    Slots,
    finished,
    loads_s,
    makespan_s,
    problem_bound_s,
    relative_gap,
    scheduler,
)
from dtdg_lab.systems.snapshot_groups.schedulers.dygnex import schedule as schedule_greedy
from dtdg_lab.systems.snapshot_groups.schedulers.heuristics import best_slots


@scheduler(searches=True, most_groups=100)  # above, the paper uses the greedy algorithm
def schedule(problem: Problem) -> Schedule:
    """Minimise the epoch time over all assignments, until a proven gap or the time limit.

    The search starts from the best heuristic (``best_of``), so it is never worse. It is skipped if the lower bound
    already certifies that schedule.

    Options:
        per_rank: L, the maximum number of groups per rank and iteration.
        allreduce_s: seconds of the gradient all-reduce that ends an iteration: alpha.
        gap: relative distance from the better of both bounds at which the search stops; 0 for the optimum.
        time_limit_s: total seconds for heuristics, building the programme and the search, which then returns its best
            schedule; the notes give the remaining gap. If building takes more than half of the remaining time, it is
            aborted and the best heuristic is returned.
        seed: seed of the search.
        targets: number that DyGNeX-G tries per iteration; 0 limits them to about a second of work.

    Returns:
        A schedule with its gap. If the search ends by its gap or by a proof, the schedule depends on input and seed
            alone: the strategies take turns on one thread. If the time limit ends it, it also depends on the machine.

    Raises:
        NotAvailableError: OR-tools is not installed.

    References: DyGNeX section 4.2 and appendix C.

    Differs from the paper: CP-SAT replaces Gurobi. For a minimised maximum, z_i >= each rank's load suffices, so the
        big-M rows (equations 26 and 27) are not needed. Symmetry is broken: ranks are ordered by load within an
        iteration, and iterations by duration. Iterations may be empty and then cost nothing; their number is the
        maximum that an optimal schedule needs (``Problem.most``, at most the paper's ceil(n/G) if L >= 2).
    """
    if importlib.util.find_spec("ortools") is None:
        raise NotAvailableError(
            "scheduler 'dygnex_ilp' needs OR-tools, which is not installed. Install it (pip install 'ortools>=9.10'), "
            "or choose 'best_of' or 'dygnex_greedy'."
        )
    until = problem.until
    bound_s = problem_bound_s(problem)
    slots, notes, tried = best_slots(problem, bound_s, until=until)
    start_gap = relative_gap(makespan_s(slots, problem), bound_s)
    if start_gap <= problem.gap:
        notes = f"{notes} Certified by the bound: no search."
    elif time.perf_counter() >= until:
        notes = f"{notes} {_late(problem, start_gap)}"
    else:
        slots, bound_s, notes = _improved(problem, slots, bound_s, notes, until)
    return finished(slots, problem, notes=notes, bound_s=bound_s, targets=tried)


def _improved(problem: Problem, slots: Slots, bound_s: float, notes: str, until: float) -> tuple[Slots, float, str]:
    """Return slots, bound and notes after the search, which starts from the given slots."""
    solution = searched(problem, slots, until=until)
    if solution is None:
        late = _late(problem, relative_gap(makespan_s(slots, problem), bound_s))
        return (slots, bound_s, f"{notes} CP-SAT was not started: its programme was too large to build in time. {late}")
    if solution.slots is not None and makespan_s(solution.slots, problem) < makespan_s(slots, problem):
        slots, notes = solution.slots, "Best: CP-SAT."
    bound_s = max(bound_s, solution.bound_s)
    if solution.by_time:
        return (slots, bound_s, f"{notes} {_late(problem, relative_gap(makespan_s(slots, problem), bound_s))}")
    return slots, bound_s, f"{notes} CP-SAT searched to the gap."


def _late(problem: Problem, gap: float) -> str:
    return f"Stopped by time_limit_s={problem.time_limit_s:g} at a gap of {100 * gap:.1f} %."


# The integer programme of DyGNeX-L in OR-tools CP-SAT.


FINENESS = 10_000_000  # integer units in the mean epoch of a rank, since CP-SAT computes with integers


@dataclass(frozen=True, slots=True, eq=False)
class IlpSolution:
    """Result of a search.

    Attributes:
        slots: the best slots found; None if the time limit came first.
        bound_s: lower bound of the epoch time.
        by_time: True if the time limit stopped the search.
    """

    slots: Slots | None
    bound_s: float
    by_time: bool


def searched(problem: Problem, start: Slots, *, until: float) -> IlpSolution | None:
    """Search from these slots until the problem's gap is proven or the time is over.

    Times are rounded down to integer units, so a bound of the rounded problem bounds the real one.

    Args:
        problem: groups and ranks.
        start: initial slots.
        until: value of ``time.perf_counter()`` by which the search must end. Building may take half of the remaining
            time, since CP-SAT needs nearly as long to read the programme, without checking its limit.

    Returns:
        The solution; None if building took too long and was aborted.
    """
    from ortools.sat.python import cp_model

    unit_s = max(float(problem.times_s.sum()) / problem.ranks, problem.allreduce_s * problem.fewest) / FINENESS
    units = np.floor(problem.times_s / unit_s).astype(np.int64)
    alpha = math.floor(problem.allreduce_s / unit_s)
    now_s = time.perf_counter()
    programme = _build(cp_model, problem, start, units, alpha, until=now_s + (until - now_s) / 2)
    if programme is None:
        return None
    model, takes = programme
    solver = cp_model.CpSolver()
    # four strategies in turns on one thread: reproducible, unlike four threads, and better than one strategy
    solver.parameters.num_workers = 4
    solver.parameters.interleave_search = True
    solver.parameters.random_seed = problem.seed % (2**31)
    solver.parameters.max_time_in_seconds = max(until - time.perf_counter(), 0.01)
    # the solver's gap is relative to its solution, ours to the bound; slightly less, to allow for rounded times
    gap = max(0.0, problem.gap - 2 * problem.groups / FINENESS)
    solver.parameters.relative_gap_limit = gap / (1 + gap)
    status = solver.solve(model, _stop_at(cp_model, gap))
    bound_s = max(0.0, solver.best_objective_bound - 0.5) * unit_s * (1 - 1e-12)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return IlpSolution(None, bound_s, True)
    met = solver.objective_value <= (1 + gap) * solver.best_objective_bound
    return IlpSolution(_read(solver, takes, problem), bound_s, status != cp_model.OPTIMAL and not met)


def _stop_at(cp_model: Any, gap: float) -> Any:
    """Return a callback that ends the search within the gap; interleaved strategies would run to the time limit."""

    class Stop(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            if self.objective_value <= (1 + gap) * self.best_objective_bound:
                self.stop_search()

    return Stop()


def _build(
    cp_model: Any, problem: Problem, start: Slots, units: NDArray[np.int64], alpha: int, *, until: float
) -> tuple[Any, NDArray[Any]] | None:
    """Build the programme with its start hint; return it with its (K, iterations, R) variables, one per placement.

    Return None if building takes longer than ``until``.
    """
    model = cp_model.CpModel()
    groups, iterations, ranks = (range(problem.groups), range(problem.most), range(problem.ranks))
    takes = np.empty((problem.groups, problem.most, problem.ranks), object)
    hints = _hints(takes.shape, problem, start, units)
    for group in groups:
        if time.perf_counter() > until:
            return None
        variables = [model.new_bool_var("") for _ in range(takes[group].size)]
        takes[group] = np.array(variables, object).reshape(takes[group].shape)
        model.add_exactly_one(variables)
        for variable, value in zip(variables, hints[group].ravel().tolist(), strict=True):
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
            model.add(loads[i][j - 1] >= loads[i][j])  # ranks by load, so that loads[i][0] is the iteration's time
    for i in iterations[1:]:
        model.add(loads[i - 1][0] >= loads[i][0])  # iterations by duration, empty ones last
        model.add_implication(used[i], used[i - 1])
    epoch = cp_model.LinearExpr.sum([row[0] for row in loads]) + alpha * cp_model.LinearExpr.sum(used)
    rounded = Problem(units.astype(np.float64), problem.ranks, problem.per_rank, float(alpha))
    model.add(epoch >= math.ceil(problem_bound_s(rounded) - 0.5))
    model.minimize(epoch)
    return model, takes


def _hints(shape: tuple[int, ...], problem: Problem, start: Slots, units: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the placement of each group in the start slots, in the order that breaks the symmetry."""
    rounded = Problem(units.astype(np.float64), problem.ranks, problem.per_rank)
    loads = loads_s(start, rounded)
    is_used = (start < problem.groups).any(axis=(1, 2))
    hints = np.zeros(shape, bool)
    for i, row in enumerate(np.lexsort((~is_used, -loads.max(axis=1)))[: int(is_used.sum())].tolist()):
        for j, rank in enumerate(np.argsort(-loads[row], kind="stable").tolist()):
            for group in start[row, rank]:
                if group < problem.groups:
                    hints[group, i, j] = True
    return hints


def _read(solver: Any, takes: NDArray[Any], problem: Problem) -> Slots:
    """Return the slots of the solver's solution."""
    slots = np.full((problem.most, problem.ranks, problem.per_rank), problem.groups)
    filled = np.zeros(slots.shape[:2], np.int64)
    for group, i, j in np.ndindex(takes.shape):
        if solver.boolean_value(takes[group, i, j]):
            slots[i, j, filled[i, j]] = group
            filled[i, j] += 1
    return slots


# DyGNeX's choice: the integer programme for few groups, the greedy algorithm for many.


ILP_BELOW = 100  # groups


@scheduler(searches=True, chooses=True)
def schedule_auto(problem: Problem) -> Schedule:
    """Run DyGNeX-L below 100 groups, otherwise DyGNeX-G; the notes name it.

    Options:
        per_rank: L, the maximum number of groups per rank and iteration.
        allreduce_s: seconds of the gradient all-reduce that ends an iteration; DyGNeX-L takes it into account.
        gap: relative gap at which DyGNeX-L stops.
        time_limit_s: time limit of DyGNeX-L.
        seed: seed of DyGNeX-L.
        targets: number that DyGNeX-G tries per iteration; 0 limits them to about a second of work.

    Raises:
        NotAvailableError: OR-tools is missing for fewer than 100 groups, or numba for more.

    References: DyGNeX appendix G.
    """
    few = problem.groups < ILP_BELOW
    arguments = {field.name: getattr(problem, field.name) for field in fields(problem) if field.init}
    plan = (schedule if few else schedule_greedy)(**arguments)
    reason = f"DyGNeX-L, below {ILP_BELOW} groups." if few else f"DyGNeX-G, from {ILP_BELOW} groups."
    return replace(plan, notes=f"{reason} {plan.notes}".strip())
