"""DyGNeX-L: the integer programme of the whole epoch, solved to a gap by OR-tools CP-SAT."""

from __future__ import annotations

import importlib.util
import time

from numpy.typing import ArrayLike

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.scheduling.best_of import best_slots
from dtdg_lab.scheduling.bounds import problem_bound_s, relative_gap
from dtdg_lab.scheduling.checks import Problem, checked
from dtdg_lab.scheduling.slots import Slots, finished, makespan_s


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
    """Minimise the epoch over all assignments; stop at a proven gap, or when time is over with the best found.

    Starts from the best heuristic (``best_of``), so it is never worse. Where the bound of ``bounds`` certifies that
    one already, nothing is searched.

    Args:
        times_s: (K,) predicted or measured seconds of each group.
        ranks: R.
        per_rank: L, most groups of a rank in an iteration.
        allreduce_s: seconds of the exchange that ends an iteration: alpha.
        gap: relative distance from the better of both bounds at which the search stops; 0 asks for the optimum.
        time_limit_s: seconds for all: heuristics, building the programme, and the search, which then returns its best;
            the notes say so, with the gap that is left. Building that takes more than half of what the heuristics left
            is given up, and the best heuristic stands.
        seed: of the search.
        targets: that DyGNeX-G tries in an iteration; 0 for as many as take about a second.

    Returns:
        A schedule with its gap. It is the same for the same input and seed where the search ends by its gap or by a
        proof: its strategies take turns on one thread. Where time ends it, what it has found depends on the machine.

    Raises:
        PlanError: a time is negative or not finite, or there is none.
        ConfigError: a knob has a value that is not allowed.
        NotAvailableError: OR-tools is not installed.

    References: DyGNeX section 4.2 and appendix C.

    Differs from the paper: CP-SAT in place of Gurobi; z_i >= each rank's load is enough for a maximum that is
    minimised, so the big-M rows (equations 26 and 27) are not needed; ranks are ordered by load within an iteration
    and iterations by duration, so that no schedule is searched twice; iterations may be empty and then cost nothing,
    and there are as many as a best schedule may need (``Problem.most``, at most the paper's ceil(n/G) where L >= 2).
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
    if importlib.util.find_spec("ortools") is None:
        raise NotAvailableError(
            "scheduler 'dygnex_ilp' needs OR-tools, which is not installed. Install it (pip install 'ortools>=9.10'), "
            "or choose 'best_of' or 'dygnex_greedy'."
        )
    until = since + time_limit_s
    bound_s = problem_bound_s(problem)
    slots, notes, tried = best_slots(problem, bound_s, until=until)
    start_gap = relative_gap(makespan_s(slots, problem), bound_s)
    if start_gap <= gap:
        notes = f"{notes} Certified by the bound: no search."
    elif time.perf_counter() >= until:
        notes = f"{notes} {_late(problem, start_gap)}"
    else:
        slots, bound_s, notes = _improved(problem, slots, bound_s, notes, until)
    return finished(slots, problem, since=since, notes=notes, bound_s=bound_s, targets=tried)


def _improved(problem: Problem, slots: Slots, bound_s: float, notes: str, until: float) -> tuple[Slots, float, str]:
    """Slots, bound and notes after the search, which starts from these."""
    from dtdg_lab.scheduling.dygnex_model import searched

    found = searched(problem, slots, until=until)
    if found is None:
        late = _late(problem, relative_gap(makespan_s(slots, problem), bound_s))
        return (
            slots,
            bound_s,
            f"{notes} CP-SAT was not started: its programme was too large to be built in time. {late}",
        )
    if found.slots is not None and makespan_s(found.slots, problem) < makespan_s(slots, problem):
        slots, notes = found.slots, "Best: CP-SAT."
    bound_s = max(bound_s, found.bound_s)
    if found.by_time:
        return slots, bound_s, f"{notes} {_late(problem, relative_gap(makespan_s(slots, problem), bound_s))}"
    return slots, bound_s, f"{notes} CP-SAT searched to the gap."


def _late(problem: Problem, gap: float) -> str:
    return f"Stopped by time_limit_s={problem.time_limit_s:g} at a gap of {100 * gap:.1f} %."
