"""Rows of benchmarks/dynahb.py that are trainings: what each variant reaches, and when it reaches what all do."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from contenders import hb_paper as paper
from contenders.esdg_plan import Workload
from contenders.hb_plan import (
    FEWEST_DECISIONS,
    Limits,
    Plan,
    Variants,
    config,
    variants_of_ablation,
    variants_of_batch_policies,
    variants_of_dqn,
    variants_of_sizes,
    variants_of_stragglers,
    variants_of_systems,
    wall_ranks,
)
from contenders.hb_training import LAST_LINE, trained
from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.systems.hybrid_batches.simulator import LANDSCAPES, TARGET, run_controllers
from dtdg_lab.testing.processes import RanksError, run_ranks

TIMEOUT_S = 7200.0
RIVAL, OURS = "dbos", "dynahb"
NEAR = 1 + paper.LOSS_APART
Row = dict[str, Any]


def spread(values: Iterable[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    return ordered[0], statistics.median(ordered), ordered[-1]


def attempted(measure: Callable[[], Row]) -> Row:
    """What was measured, or why there is nothing: ``failed`` says so in the row."""
    try:
        return measure()
    except RanksError as error:
        described = error.__cause__
        if described is None:
            return {"failed": f"a process died (out of memory?) or took more than {TIMEOUT_S:.0f} s"}
        if not isinstance(described, (LabError, MemoryError)):
            raise
    except LabError as error:
        described = error
    return {"failed": f"{type(described).__name__}: {described}"[:LAST_LINE]}


def missing(chosen: Mapping[str, Any]) -> str:
    """Why the lab has no such system; empty where it has."""
    return "" if chosen["system"] in catalogue.names("systems") else "not built"


def training_rows(
    plan: Plan, workload: Workload, model: str, variants: Variants, cores: tuple[int, ...], *,
    ranks: int = 0, limits: Limits | None = None, **settings: Any,
) -> list[Row]:  # fmt: skip
    """Each variant trained with every seed; lists have one entry a seed.

    Args:
        plan: says how.
        workload: the graph.
        model: which.
        variants: systems with settings, by what rows call them.
        cores: of all ranks together.
        ranks: R; as many as have cores of their own where 0.
        limits: of a training; the plan's where None.
        settings: of all of them.
    """
    ranks, limits = ranks or wall_ranks(plan, cores), limits or plan.limits
    known = {"learning_rate": limits.learning_rate, **settings}
    failed = {name: why for name, chosen in variants.items() if (why := missing(chosen))}
    configs: dict[str, list[RunConfig]] = {}
    for name, chosen in variants.items():
        try:
            if name not in failed:
                configs[name] = [config(workload, chosen, model, ranks=ranks, parts=plan.parts, seed=seed, **known)
                                 for seed in range(plan.seeds)]  # fmt: skip
        except LabError as error:
            failed[name] = f"{type(error).__name__}: {error}"[:LAST_LINE]
    found = _trained(configs, limits, ranks, cores, together=plan.together)
    row = {"graph": workload.name, "model": model, "ranks": ranks, "parts": plan.parts}
    return judged(
        [{**row, "system": name, **({"failed": failed[name]} if name in failed else found[name])} for name in variants]
    )


def _trained(
    configs: Mapping[str, Sequence[RunConfig]], limits: Limits, ranks: int, cores: tuple[int, ...], *, together: bool
) -> dict[str, Row]:
    """What the seeds of each variant gave, in processes of its own or in the same as the others."""

    def measure(names: Sequence[str]) -> Row:
        chosen = [each for name in names for each in configs[name]]
        described = iter(run_ranks(trained, ranks, chosen, limits, cores, timeout_s=TIMEOUT_S)[0])
        return {name: by_seed([next(described) for _ in configs[name]]) for name in names}

    found: dict[str, Row] = {}
    for names in [list(configs)] if together else [[name] for name in configs]:
        described = attempted(lambda names=names: measure(names))
        found |= dict.fromkeys(names, described) if "failed" in described else described
    return found


def by_seed(found: Sequence[Row]) -> Row:
    """What trainings gave, as lists by seed; the baselines, which no seed changes, once."""
    failed = [each for each in found if "failed" in each]
    if failed:
        return failed[0]
    same = {name: found[0][name] for name in ("persistence", "mean")}
    return same | {name: [each[name] for each in found] for name in found[0] if name not in same}


def judged(rows: Sequence[Row]) -> list[Row]:
    """Rows of one graph and model with when they reached two losses that all are asked for.

    ``common`` is the lowest loss that every training of every row reached; ``near`` is 5.085 % above the lowest of all
    rows' medians, as much as the paper's batches end above the full one. Seconds are by seed, None where it was not
    reached; ``over_rival`` is the rival's median seconds over the row's, ``over_rivals`` the same by seed: 0 where the
    row alone never reached it, infinite where the rival alone never did, None where neither did.
    """
    alive = [row for row in rows if "failed" not in row]
    if not alive:
        return list(rows)
    common = max(max(row["validation"]) for row in alive)
    near = NEAR * min(statistics.median(row["validation"]) for row in alive)
    for row in alive:
        row["common"], row["near"] = common, near
        for name, loss in (("common", common), ("near", near)):
            row[f"{name}_s"] = [reached(curve, loss) for curve in row["curve"]]
    rival = next((row for row in alive if row["system"] == RIVAL), None)
    for row in alive:
        for name in ("common", "near"):
            own = middle(row[f"{name}_s"])
            theirs = None if rival is None else middle(rival[f"{name}_s"])
            row[f"{name}_over_rival"] = theirs / own if own and theirs else None
            row[f"{name}_over_rivals"] = [] if rival is None else [
                over(theirs, own) for theirs, own in zip(rival[f"{name}_s"], row[f"{name}_s"], strict=False)
            ]  # fmt: skip
    return list(rows)


def reached(curve: Sequence[tuple[float, int, float]], loss: float) -> float | None:
    """Seconds of training until the first evaluation of a trained model that is no higher than a loss."""
    return next((seconds for seconds, steps, found in curve if steps and found <= loss), None)


def over(theirs: float | None, own: float | None) -> float | None:
    """How many times as long somebody else took, where None is never."""
    if own is None:
        return None if theirs is None else 0.0
    return float("inf") if theirs is None else theirs / own


def middle(values: Sequence[float | None]) -> float | None:
    """The median, where those that never came are longest; None where it is one of them."""
    ordered = sorted(float("inf") if value is None else value for value in values)
    found = statistics.median_high(ordered)
    return None if found == float("inf") else found


# parts of the benchmark


def convergence_rows(plan: Plan, workload: Workload, model: str, cores: tuple[int, ...]) -> list[Row]:
    """Table 2 and Figure 6."""
    return training_rows(plan, workload, model, variants_of_systems(plan.systems), cores)


def growth_rows(plan: Plan, workload: Workload, cores: tuple[int, ...]) -> list[Row]:
    """The speed-up over snapshot batches by the size of the graph."""
    return training_rows(plan, workload, plan.models[0], variants_of_systems(plan.systems or (RIVAL, OURS)), cores)


def straggler_rows(plan: Plan, workload: Workload, cores: tuple[int, ...]) -> list[Row]:
    """Averaging against gradients, with no rank slowed and with one."""
    ranks, model = wall_ranks(plan, cores), plan.models[0]
    if ranks < 2:
        row = {"graph": workload.name, "model": model, "ranks": ranks, "parts": plan.parts, "system": "-"}
        return [{**row, "failed": "two ranks with cores of their own are needed"}]
    return training_rows(plan, workload, model, variants_of_stragglers(ranks, plan.slow_ms), cores, ranks=ranks)


def scaling_rows(plan: Plan, ranks: int, cores: tuple[int, ...]) -> list[Row]:
    """Figure 9b: convergence on more ranks, a part for each."""
    if ranks > len(cores):
        failed = f"{ranks} ranks on {len(cores)} cores: no wall time; part ranks has their own work"
        return [{"graph": plan.timed.name, "model": plan.models[0], "ranks": ranks, "system": OURS, "failed": failed}]
    ours = {OURS: variants_of_systems()[OURS]}
    return training_rows(replace(plan, parts=ranks), plan.timed, plan.models[0], ours, cores, ranks=ranks)


def classification_rows(plan: Plan, cores: tuple[int, ...]) -> list[Row]:
    """Table 5: accuracy on nodes that are left out of training."""
    return training_rows(plan, plan.classified, plan.models[0], variants_of_systems(plan.systems), cores)


def fraction_rows(plan: Plan, fraction: float, stored: Workload, cores: tuple[int, ...]) -> list[Row]:
    """Table 9: the first snapshots of a graph."""
    rows = training_rows(plan, stored, plan.models[0], variants_of_systems(plan.systems), cores)
    return [{**row, "fraction": fraction} for row in rows]


def ablation_rows(plan: Plan, cores: tuple[int, ...]) -> list[Row]:
    """Figure 8; ``over_base`` is the first row's median seconds to the common loss over the row's."""
    rows = training_rows(plan, plan.timed, plan.models[0], variants_of_ablation(), cores)
    base = None if "failed" in rows[0] else middle(rows[0]["common_s"])
    for row in rows:
        own = None if "failed" in row else middle(row["common_s"])
        row["over_base"] = base / own if base and own else None
    return rows


def dqn_rows(plan: Plan, workload: Workload, cores: tuple[int, ...]) -> list[Row]:
    """Table 10."""
    return training_rows(plan, workload, plan.models[0], variants_of_dqn(), cores, limits=plan.adjusting)


def size_rows(plan: Plan, workload: Workload, cores: tuple[int, ...]) -> list[Row]:
    """Table 8."""
    return training_rows(plan, workload, plan.models[0], variants_of_sizes(), cores, limits=plan.adjusting)


def batch_policy_rows(plan: Plan, workload: Workload, cores: tuple[int, ...]) -> list[Row]:
    """Controllers beside every size by itself: ``regret_s`` is a row's seconds to the near loss above the best size's.

    The best size in hindsight is the one whose median over seeds is shortest. ``decisions`` are those before the near
    loss, by seed; ``few`` says that in the median they were fewer than fifty, so that the row compares nothing.
    """
    limits = plan.adjusting
    rows = training_rows(replace(plan, together=True), workload, plan.models[0], variants_of_batch_policies(plan),
                         cores,
                         limits=limits)  # fmt: skip
    for row in (row for row in rows if "failed" not in row and any(row["decided_s"])):
        ends = [float("inf") if each is None else each for each in row["near_s"]]
        row["decisions"] = [sum(at <= end for at in of) for of, end in zip(row["decided_s"], ends, strict=True)]
        row["few"] = statistics.median(row["decisions"]) < FEWEST_DECISIONS
    alive = [row for row in rows if "failed" not in row]
    times = {row["system"]: middle(row["near_s"]) for row in alive}
    fixed = {name: seconds for name, seconds in times.items() if " x " in name and seconds is not None}
    best = min(fixed, key=lambda name: fixed[name]) if fixed else None
    for row in alive:
        own = times[row["system"]]
        row["best_fixed"] = best
        row["regret_s"] = None if own is None or best is None else own - fixed[best]
    return rows


def landscape_rows(name: str) -> list[Row]:
    """Controllers on one simulated training, over the best fixed size in hindsight; the same on every machine."""
    simulator = LANDSCAPES[name]
    best, best_s = simulator.best_fixed(TARGET)
    fixed = [simulator.fixed_s_to(action, TARGET) / best_s for action in range(len(simulator.sizes))]
    row = {"landscape": name, "best_s": best_s, "best": simulator.sizes[best]}
    sizes = {"best fixed size": [min(fixed)], "middle fixed size": [fixed[len(fixed) // 2]], "all fixed sizes": fixed}
    found = [{**row, "controller": controller, "over_best": values} for controller, values in sizes.items()]
    for controller, runs in run_controllers(simulator, TARGET).items():
        over_best = [None if run.seconds is None else run.seconds / best_s for run in runs]
        decisions = [len(run.decisions) for run in runs]
        found.append({**row, "controller": controller, "over_best": over_best, "decisions": decisions})
    return found


def configs_of_systems(
    plan: Plan, workload: Workload, model: str, *, ranks: int, parts: int, **settings: Any
) -> tuple[dict[str, RunConfig], dict[str, str]]:
    """Configs of the systems that there are, and why there is none of the others."""
    here, failed = {}, {}
    for name, chosen in variants_of_systems().items():
        why = missing(chosen)
        if why:
            failed[name] = why
            continue
        try:
            here[name] = config(workload, chosen, model, ranks=ranks, parts=parts, **settings)
        except LabError as error:
            failed[name] = f"{type(error).__name__}: {error}"[:LAST_LINE]
    return here, failed
