"""Schedules of snapshot groups: PSG, BLAD, DyGNeX and ours, with the DyGNeX paper's numbers.

    python benchmarks/dygnex.py [PART ...] [--quick] [--json FILE] [--keep] [--only GRAPH ...]
                                [--models M ...] [--ranks R ...]

Parts (default: all):
epochs      (Table 4, Figure 4) an epoch of each system, by graph, model and number of single-threaded ranks, each
            pinned to its share of the cores. All systems of a row's block alternate in the same processes, after two
            warm-ups, and are scheduled by the same profile of PSG. BLAD differentiates each group separately and keeps
            all activations, which costs more than the shared backward pass of the others; "blad pairs" has its
            schedule and their backward pass. Ratios are PSG's time over the row's, turn by turn: above 1 the row is
            faster. With more ranks than cores no wall time is reported: an epoch then is the sum over iterations of
            the most loaded rank's processor seconds, without exchanges. Imbalance is the own time (without waiting) of
            the most loaded rank over the least loaded, per epoch (the paper's), and over the mean, per iteration
            (ours). "Over bound" is the schedule's makespan with the measured group times, over a lower bound for two
            groups per rank; "predicted" is the error of its profile.
profiling   (Figure 13) throughput of DyGNeX-G by the number of profiled epochs, each in fresh processes.
solving     (Tables 5 and 6) seconds of the greedy rule and of the integer programme, for 4 ranks.
simulation  (Figure 5) throughput of a rank on 4 to 1,024 ranks, both growth curves, with a bound.
targets     throughput of DyGNeX-G by the number of targets per iteration: the table of
            docs/dygnex_targets.md.
accuracy    (Figure 3) loss of the test split after training, four parts, compared with PSG's; same seeds for all.

Groups of four snapshots start at every snapshot. Training splits are cut to about 30 groups; the paper
has 27 and 47. Its GPUs, data and growth differ: only ratios are comparable.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from contenders import dygnex_paper as paper
from contenders import dygnex_text as words
from contenders import results
from contenders import schedule_tables as tables
from contenders.dygnex_plan import FULL_PLAN, MODELS, QUICK, QUICK_PLAN, WORKLOADS, Plan, Workload
from contenders.snapshot_groups import WARM_UPS, Contender, in_turn, trained

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.plans import Schedule
from dtdg_lab.datasets.names import list_datasets
from dtdg_lab.systems.snapshot_groups.schedulers.base import lower_bound_s
from dtdg_lab.testing.processes import run_ranks

REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "real"
PARTS = ("epochs", "profiling", "solving", "simulation", "targets", "accuracy")
HIDDEN, LAYERS, PER_RANK = 32, 2, 2  # two layers as in section 5.1
RUN_LIMIT_S = 10.0  # most that a run's scheduler searches, as the glossary has it
TIMEOUT_S = 3600.0
# what rows call it -> system and its settings
SYSTEMS: Mapping[str, Mapping[str, Any]] = {
    "psg": {"system": "psg"},
    "blad": {"system": "blad"},
    "blad pairs": {"system": "dygnex-g", "scheduler": "consecutive"},
    "dygnex-g": {"system": "dygnex-g"},
    "dygnex-l": {"system": "dygnex-l"},
    "fold": {"system": "dygnex-g", "scheduler": "fold"},
    "best_of": {"system": "dygnex-g", "scheduler": "best_of"},
    "esdg": {"system": "esdg"},
}


def built(name: str) -> bool:
    """Whether the lab has the system that a row needs."""
    return SYSTEMS[name]["system"] in catalogue.names("systems")


def schedules(name: str) -> bool:
    """Whether a built system schedules snapshot groups."""
    return "scheduling" in catalogue.system(SYSTEMS[name]["system"]).parts


def config(workload: Workload, name: str, *, model: str, ranks: int, **settings: Any) -> RunConfig:
    return RunConfig(
        dataset=workload.dataset, model=model, hidden=HIDDEN, layers=LAYERS, ranks=ranks, device="cpu", threads=1,
        **{**workload.options, **SYSTEMS[name], **settings},
    )  # fmt: skip


def cores() -> tuple[int, ...]:
    return tuple(sorted(os.sched_getaffinity(0)))


def spread(values: Iterable[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    return ordered[0], statistics.median(ordered), ordered[-1]


# epochs


def joined(by_rank: list[dict[str, Any]], *, clock: str) -> list[dict[str, Any]]:
    """A contender's epochs over all ranks: seconds, own seconds, imbalance, waste, and the time of each group."""
    epochs = []
    for ranks in zip(*(rank["epochs"] for rank in by_rank), strict=True):
        own = np.array([rank[clock] for rank in ranks])  # (R, iterations)
        loads, slowest = own.sum(axis=1), float(own.max(axis=0).sum())
        epochs.append({
            "seconds": max(rank["seconds"] for rank in ranks) if clock == "wall" else slowest,
            "imbalance": float(loads.max() / loads.min()),
            "iteration_imbalance": slowest / float(own.mean(axis=0).sum()),
            "slowest_s": slowest, "loss": ranks[0]["loss"], "iterations": own.shape[1],
            "groups": {group: (wall, cpu)[clock == "cpu"] for rank in ranks for group, wall, cpu in rank["groups"]},
        })  # fmt: skip
    return epochs


def replayed(described: dict[str, Any], epochs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The schedule with the medians of the times that its own groups then took: predicted, made, and least possible."""
    if not described:
        return {}
    times = np.array(
        [statistics.median(epoch["groups"][group] for epoch in epochs) for group in range(len(described["times_s"]))]
    )
    plan = Schedule(tuple(tuple(tuple(part) for part in row) for row in described["assignment"]), len(times))
    exchange_s = described.get("allreduce_s", 0.0)  # counted in what was predicted
    makespan = plan.makespan_s(times, allreduce_s=exchange_s)
    bound = lower_bound_s(times, described["parts"], per_rank=PER_RANK, allreduce_s=exchange_s)
    return {
        "groups": len(times), "largest_over_least_group": float(times.max() / times.min()), "makespan_s": makespan,
        "over_bound": makespan / bound, "predicted_s": described["makespan_s"], "timed_by": described["timed_by"],
        "prediction_error": described["makespan_s"] / makespan - 1, "solve_s": described["solve_s"],
        "gap": described["gap"],
        "notes": described["notes"], "targets": described.get("targets"),
    }  # fmt: skip


def epoch_rows(plan: Plan, workload: Workload, model: str, ranks: int) -> list[dict[str, Any]]:
    """Table 4 of one graph, model and number of ranks; the first row is PSG's."""
    names = [name for name in SYSTEMS if built(name)]
    read = {"profile_epochs": plan.profile_epochs, "schedule_limit_s": min(plan.limit_s, RUN_LIMIT_S)}
    contenders = tuple(
        Contender(
            name, config(workload, name, model=model, ranks=ranks, **(read if schedules(name) else {})), plan.turns
        )
        for name in names
    )
    clock = "wall" if ranks <= len(cores()) else "cpu"
    by_rank = run_ranks(in_turn, ranks, contenders, cores(), timeout_s=TIMEOUT_S)
    rows, timed = [], {}
    for number, name in enumerate(names):
        own = [rank[number] for rank in by_rank]
        timed[name] = epochs = joined(own, clock=clock)[WARM_UPS:]
        against = {
            f"over_{other}": spread(
                one["seconds"] / each["seconds"] for one, each in zip(timed[other], epochs, strict=True)
            )
            for other in ("psg", "blad")
            if other in timed
        }
        rows.append({
            "graph": workload.name, "model": model, "ranks": ranks, "system": name, "built": True, "clock": clock,
            "iterations": epochs[0]["iterations"], "epoch_s": spread(each["seconds"] for each in epochs), **against,
            **{what: spread(each[what] for each in epochs)
               for what in ("imbalance", "iteration_imbalance", "slowest_s")},
            "loss": epochs[-1]["loss"], **replayed(own[0]["schedule"], epochs),
        })  # fmt: skip
    missing = [{"graph": workload.name, "model": model, "ranks": ranks, "system": name, "built": False}
               for name in SYSTEMS if name not in names]  # fmt: skip
    return rows + missing


def summary_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over graphs and models, by number of ranks and system, beside the paper's."""
    found = []
    for ranks, name in dict.fromkeys((row["ranks"], row["system"]) for row in rows if row["built"]):
        own = [row for row in rows if (row["ranks"], row["system"]) == (ranks, name)]
        saved = {f"saved_{over}": statistics.mean(1 - 1 / row[over][1] for row in own)
                 for over in ("over_psg", "over_blad") if over in own[0]}  # fmt: skip
        means = {what: statistics.mean(row[what][1] for row in own) for what in ("imbalance", "iteration_imbalance")}
        table = {f"paper_saved_over_{other}": paper.saved(name, other)
                 for other in ("psg", "blad") if name in paper.TABLE_4 and name != other}  # fmt: skip
        if name in paper.SAVED_OVER_BLAD:
            table["paper_saved_over_blad"] = paper.SAVED_OVER_BLAD[name]
        found.append({"ranks": ranks, "system": name, "rows": len(own), **means, **saved, **table,
                      "paper_imbalance": paper.IMBALANCE.get(name)})  # fmt: skip
    return found


# profiling and accuracy


def profiling_rows(plan: Plan, workload: Workload, model: str, ranks: int) -> Iterable[dict[str, Any]]:
    """Figure 13: each number of profiled epochs in fresh processes, so that the first of them is as cold as a run's."""
    clock = "wall" if ranks <= len(cores()) else "cpu"
    for profiled in plan.profiles:
        runs = []
        for _ in range(plan.profile_runs):
            chosen = config(workload, "dygnex-g", model=model, ranks=ranks, profile_epochs=profiled)
            by_rank = run_ranks(
                in_turn, ranks, (Contender("dygnex-g", chosen, plan.turns),), cores(), timeout_s=TIMEOUT_S
            )
            own = [rank[0] for rank in by_rank]
            epochs = joined(own, clock=clock)[WARM_UPS:]
            again = replayed(own[0]["schedule"], epochs)
            epoch_s = statistics.median(each["seconds"] for each in epochs)
            runs.append({
                "over_bound": again["over_bound"], "error": again["prediction_error"],
                "throughput": again["groups"] / epoch_s,
            })  # fmt: skip
        yield {"graph": workload.name, "model": model, "ranks": ranks, "profile_epochs": profiled, "clock": clock,
               **{what: spread(run[what] for run in runs) for what in runs[0]}}  # fmt: skip


def accuracy_rows(plan: Plan, workload: Workload, model: str) -> list[dict[str, Any]]:
    """Figure 3: test loss of each system after equally long training; four parts on as many processes as cores, or two.

    Groups are scheduled by their sizes, so that the schedule and with it the model can be repeated.
    """
    parts, ranks = tables.RANKS, min(2, len(cores()))
    names = [name for name in SYSTEMS if built(name)]
    seeds = range(workload.seeds)
    runs = [(name, seed) for name in names for seed in seeds]
    read = {"group_times": "size", "schedule_limit_s": min(plan.limit_s, RUN_LIMIT_S)}
    configs = tuple(
        config(workload, name, model=model, ranks=ranks, parts=parts, seed=seed, epochs=plan.epochs,
               **(read if schedules(name) else {}))
        for name, seed in runs
    )  # fmt: skip
    found = dict(zip(runs, run_ranks(trained, ranks, configs, cores(), timeout_s=TIMEOUT_S)[0], strict=True))
    rows = []
    for name in names:
        own = [found[name, seed] for seed in seeds]
        apart = [one["loss"]["test"] / found["psg", seed]["loss"]["test"] - 1
                 for one, seed in zip(own, seeds, strict=True)]  # fmt: skip
        metrics = {}
        for metric, value in own[0]["metrics"]["test"].items():
            if value is not None and not metric.startswith("persistence_"):
                metrics[metric] = spread(one["metrics"]["test"][metric] for one in own)
        rows.append({
            "graph": workload.name, "model": model, "parts": parts, "system": name, "epochs": plan.epochs,
            "updates": own[0]["updates"], "seeds": len(own), "metrics": metrics, "apart_from_psg": spread(apart),
            **{f"{split}_loss": spread(one["loss"][split] for one in own) for split in ("train", "test")},
            "persistence_loss": own[0]["persistence"]["test"], "curves": [one["curve"] for one in own],
        })  # fmt: skip
    return rows


# the program


def epochs_part(plan: Plan) -> dict[str, Any]:
    print(f"\n{words.EPOCH_HEAD}")
    rows = []
    for ranks in plan.ranks:
        for workload in plan.workloads:
            for model in plan.models:
                rows += epoch_rows(plan, workload, model, ranks)
                print(*map(words.epoch_text, rows[-len(SYSTEMS) :]), sep="\n", flush=True)
    summary = summary_rows(rows)
    print(f"\nmeans over graphs and models, beside the paper's\n{words.SUMMARY_HEAD}")
    print(*map(words.summary_text, summary), sep="\n", flush=True)
    return {"epochs": rows, "summary": summary}


def profiling_part(plan: Plan) -> dict[str, Any]:
    rows = []
    print(f"\n{words.PROFILING_HEAD}")
    for row in profiling_rows(plan, plan.workloads[-1], plan.models[0], plan.ranks[0]):
        rows.append(row)
        print(words.profiling_text(row), flush=True)
    return {"profiling": rows}


def solving_part(plan: Plan) -> dict[str, Any]:
    greedy, ilp = [], []
    print(f"\n{tables.RANKS} ranks, groups of graphs that grow\n{tables.GREEDY_HEAD}")
    for curve in plan.curves:
        for row in tables.greedy_rows(plan.greedy_groups, curve):
            greedy.append(row)
            print(tables.greedy_text(row), flush=True)
    print(f"\nby: who proves the gap; limit: {plan.limit_s:g} s came first\n{tables.ILP_HEAD}")
    for curve in plan.curves:
        for row in tables.ilp_rows(plan.ilp_groups, plan.gaps, curve, limit_s=plan.limit_s):
            ilp.append(row)
            print(tables.ilp_text(row), flush=True)
    return {"greedy": greedy, "ilp": ilp}


def simulation_part(plan: Plan) -> dict[str, Any]:
    described, rows = tables.simulated_rows(snapshots=plan.snapshots, ranks=plan.simulated)
    print(f"\n{described}", *tables.simulated_text(rows), sep="\n", flush=True)
    return {"simulated": described, "simulation": rows}


def targets_part(plan: Plan) -> dict[str, Any]:
    rows = tables.target_rows(snapshots=plan.snapshots, ranks=plan.simulated[-2:])
    print("", *tables.target_text(rows), sep="\n", flush=True)
    return {"targets": rows}


def accuracy_part(plan: Plan) -> dict[str, Any]:
    rows = []
    print(f"\nafter {plan.epochs} epochs; the paper has test accuracies within {paper.ACCURACY_WITHIN:.0%}")
    print(words.ACCURACY_HEAD)
    for workload in (one for one in plan.workloads if one.seeds):
        rows += accuracy_rows(plan, workload, plan.models[0])
        print(*map(words.accuracy_text, rows[-sum(map(built, SYSTEMS)) :]), sep="\n", flush=True)
    return {"accuracy": rows}


DO = dict(
    zip(PARTS, (epochs_part, profiling_part, solving_part, simulation_part, targets_part, accuracy_part), strict=True)
)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="*", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="one small graph, few of everything: under a minute")
    results.add_arguments(parser)
    parser.add_argument("--only", nargs="+", metavar="GRAPH", help=", ".join(one.name for one in WORKLOADS))
    parser.add_argument("--models", nargs="+", metavar="M", choices=MODELS, help=", ".join(MODELS))
    parser.add_argument("--ranks", nargs="+", type=int, metavar="R", help="of parts epochs and profiling (2 4)")
    chosen = parser.parse_args(given)
    results.parts_on(parser, chosen.device)
    unknown = [part for part in chosen.part if part not in PARTS]
    if unknown:
        parser.error(f"no part is called {', '.join(unknown)}; parts: {', '.join(PARTS)}")
    names = [workload.name for workload in (QUICK if chosen.quick else WORKLOADS)]
    unknown = sorted(set(chosen.only or ()) - set(names))
    if unknown:
        parser.error(f"no graph is called {', '.join(unknown)}; graphs: {', '.join(names)}")
    return chosen


def planned(given: argparse.Namespace) -> Plan:
    """What is asked for, of graphs that are here; the others are named."""
    plan = QUICK_PLAN if given.quick else FULL_PLAN
    here = {known.name for known in list_datasets() if known.on_this_machine}
    asked = [one for one in plan.workloads if given.only is None or one.name in given.only]
    for workload in asked:
        if workload.dataset not in here:
            print(f"{workload.name}: not here ({workload.dataset} is in neither $DTDG_LAB_DATA nor {REAL_DATA})")
    return replace(
        plan, workloads=tuple(one for one in asked if one.dataset in here), models=tuple(given.models or plan.models),
        ranks=tuple(given.ranks or plan.ranks),
    )  # fmt: skip


def main() -> int:
    given = arguments()
    if REAL_DATA.is_dir():
        os.environ.setdefault("DTDG_LAB_DATA", str(REAL_DATA))
    plan = planned(given)
    parts = [part for part in PARTS if part in (given.part or PARTS)]
    if not plan.workloads and set(parts) - {"solving", "simulation", "targets"}:
        print("no graph is left to train on")
        return 2
    machine = results.machine()
    print(f"CPU, float32, one thread a process; {machine}; load {os.getloadavg()[0]:.1f} at the start")
    began, found = time.perf_counter(), {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DTDG_LAB_CACHE"] = folder  # nothing is found that was made before
        for part in parts:
            found |= DO[part](plan)
    print(f"took {time.perf_counter() - began:.0f} s; load {os.getloadavg()[0]:.1f} at the end")
    results.write(given, machine, found, plan=asdict(plan))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
