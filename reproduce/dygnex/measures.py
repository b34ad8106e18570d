"""What DyGNeX claims beside trainings: simulated clusters, solving, profiling, tasks, a linear model of times."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.rng import generator
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.engine.strategy import StepMarks, read_rows
from dtdg_lab.graphs.split import split
from dtdg_lab.reproduction.training import CellTrainer
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.systems.snapshot_groups.forecast import simulate_schedules
from dtdg_lab.systems.snapshot_groups.growing_times import group_times, snapshot_times
from dtdg_lab.systems.snapshot_groups.linear_times import fit
from dtdg_lab.systems.snapshot_groups.schedulers.base import solve
from dtdg_lab.training.build import build

Settings = Mapping[str, Any]
Numbers = dict[str, Any]
SIMULATED = (
    "throughput",
    "bound_throughput",
    "imbalance",
    "iteration_imbalance",
    "iterations",
    "over_bound",
    "targets",
)


def simulate_throughput(settings: Settings, seed: int) -> Numbers:
    """Simulate an epoch of a growing graph's groups, and return the throughput of a rank relative to one rank alone.

    Args:
        settings: ``curve``, ``ranks`` and ``scheduler``; optionally further arguments of ``lab.estimate.schedules``.
        seed: seed of the noise of snapshot times.

    References: Figure 5.
    """
    chosen = {name: value for name, value in settings.items() if name != "device"}
    cases = {f"{name}s": (chosen.pop(name),) for name in ("curve", "scheduler")}
    (row,) = simulate_schedules(ranks=(chosen.pop("ranks"),), seed=seed, **cases, **chosen).rows
    return {name: row[name] for name in SIMULATED}


# solving

WINDOW = 4  # snapshots of a group
REPEATS, LONG_S = 3, 2.0  # what took longer is not solved again


def solve_groups(settings: Settings, seed: int) -> Numbers:
    """Schedule the groups of a growing graph some times, and return the median seconds and the proven gap.

    Args:
        settings: ``curve``, ``groups``, ``scheduler`` and ``ranks``; optionally further arguments of a scheduler.
        seed: seed of the noise of snapshot times, and of the scheduler.

    References: Tables 5 and 6.
    """
    chosen = {name: value for name, value in settings.items() if name != "device"}
    snapshots = int(chosen.pop("groups")) + WINDOW - 1
    times_s = group_times(snapshot_times(snapshots, chosen.pop("curve"), seed=seed), window=WINDOW)
    scheduler, ranks = chosen.pop("scheduler"), int(chosen.pop("ranks"))
    seconds: list[float] = []
    while len(seconds) < REPEATS and (not seconds or seconds[-1] < LONG_S):
        schedule = solve(scheduler, times_s, ranks, seed=seed, **chosen)
        seconds.append(schedule.seconds)
    return {
        "solve_s": median(seconds),
        "gap": schedule.gap,
        "targets": schedule.targets,
        "is_certified": float("no search" in schedule.notes),
    }


# uneven tasks


def uneven_tasks(settings: Settings, seed: int) -> Numbers:
    """Count the edges that each part of an epoch computes, and return the largest difference from the first part's.

    Args:
        settings: of the graphs; ``parts``; ``graphs``, their (nodes, last edges, snapshots); and ``assigned``: ``esdg``
            (part j computes snapshot j of each group of as many snapshots as parts), or a scheduler of groups.
        seed: seed of the graphs.

    References: Figure 1; section 5.1 (ESDG).
    """
    chosen = dict(settings)
    parts, assigned, sizes = int(chosen.pop("parts")), str(chosen.pop("assigned")), chosen.pop("graphs")
    differences = []
    for nodes, edges, snapshots in sizes:
        graph_settings = {"generated_nodes": nodes, "generated_edges": edges, "generated_snapshots": snapshots}
        config = RunConfig(system="psg", model="tgcn", seed=seed, **chosen, **graph_settings)
        graph = load_for(config)
        train = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[config.protocol]).train
        loads = part_edges(np.asarray(graph.num_edges, np.float64)[train.start : train.stop], parts, assigned)
        differences.append(float(np.abs(loads / loads[0] - 1).max()))
    return {"edge_difference": max(differences), "mean_edge_difference": float(np.mean(differences))}


def part_edges(edges: NDArray[np.float64], parts: int, assigned: str) -> NDArray[np.float64]:
    """Return the edges that each part computes in an epoch, (P,).

    Args:
        edges: (T,) of each snapshot.
        parts: P.
        assigned: see :func:`uneven_tasks`.
    """
    if assigned == "esdg":
        groups = len(edges) - parts + 1
        return np.array([edges[part : part + groups].sum() for part in range(parts)])
    of_groups = group_times(edges, window=WINDOW)
    return solve(assigned, of_groups, parts).loads(of_groups).sum(axis=0)


# profiling


def train_profiled(settings: Settings, seed: int) -> Numbers:
    """Train in fresh processes, and return what an epoch takes once it is scheduled, and what came before.

    ``overhead_share`` is what profiled epochs take beyond scheduled ones, with solving, in the whole;
    ``profile_share`` is all of both.

    Args:
        settings: of a run.
        seed: its seed.

    References: Figure 13, appendix G.
    """
    with tempfile.TemporaryDirectory(prefix="dtdg-lab-dygnex-") as folder, CellTrainer(Path(folder)) as trainer:
        return trainer.read_run(RunConfig(**settings, seed=seed), profiled_numbers, stop={})


def profiled_numbers(run: StoredRun) -> Numbers:
    """Return the numbers of :func:`train_profiled` from an ended run."""
    steps, options = run.table("steps"), run.config.flat
    epochs_s = steps.groupby(["epoch", "rank"])["time_s"].sum().groupby("epoch").max().to_numpy(float)
    is_timed = options.get("group_times") == "profile"
    profiled = int(options["profile_epochs"]) if is_timed else 0
    solve_s = float(run.summary["schedule_s"] or 0.0) if is_timed else 0.0
    epoch_s, before_s, total_s = float(np.median(epochs_s[profiled:])), epochs_s[:profiled].sum(), epochs_s.sum()
    return {
        "epoch_s": epoch_s,
        "groups_per_s": run.summary["groups"] / epoch_s if run.summary["groups"] else None,
        "over_bound": run.summary["over_bound"],
        "solve_s": solve_s,
        "overhead_share": float((before_s - profiled * epoch_s + solve_s) / (total_s + solve_s)),
        "profile_share": float((before_s + solve_s) / (total_s + solve_s)),
        "total_s": float(total_s + solve_s),
    }


# the linear model (equation 31)


def linear_model_error(settings: Settings, seed: int) -> Numbers:
    """Time every group of a run, and return relative errors of the linear model on groups that it was not fitted to.

    ``interpolated``: fitted to a random half of the groups, by the seed. ``extrapolated``: fitted to the smaller half
    of the groups, by nodes plus edges. ``constant``: error of the median time, on the groups of ``interpolated``.

    Args:
        settings: settings of a RunConfig of one rank; ``profile_epochs`` is the number of timed epochs, of which the
            first is dropped.
        seed: seed of the model and of the random half.

    References: Appendix H, equation 31, Figure 14.
    """
    config = RunConfig(**{"system": "psg", "group_times": "size", **settings, "seed": seed})
    nodes, edges, snapshots, times_s = time_groups(config)
    sizes = nodes, edges, snapshots
    shuffled = generator(seed, "linear model/half").permutation(len(times_s))
    by_size = np.argsort(nodes + edges, kind="stable")
    half = len(times_s) // 2
    interpolated = _errors(sizes, times_s, shuffled[:half], shuffled[half:])
    extrapolated = _errors(sizes, times_s, by_size[:half], by_size[half:])
    others_s = times_s[shuffled[half:]]
    constant = np.abs(np.median(times_s[shuffled[:half]]) / others_s - 1)
    errors = {"interpolated": interpolated, "extrapolated": extrapolated, "constant": constant}
    return {
        **{f"{name}_error": float(values.mean()) for name, values in errors.items()},
        **{f"{name}_worst_error": float(values.max()) for name, values in errors.items()},
        "groups": len(times_s),
        "largest_over_least_s": float(times_s.max() / times_s.min()),
        "median_s": float(np.median(times_s)),
    }


Sizes = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def time_groups(
    config: RunConfig,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Train some epochs of one rank, and return nodes, edges, snapshots and median seconds of each group."""
    graph = load_for(config)
    components = build(config, graph, SoloGroup())
    strategy, epochs = components.strategy, []
    for epoch in range(config["profile_epochs"]):
        times_s: dict[int, float] = {}
        for step in strategy.epoch(epoch):
            components.gradients.zero()
            strategy.compute(step, StepMarks())
            components.optimizer.step()
            for group, start_ns, end_ns, _ in read_rows(strategy.rows())["groups"]:
                times_s[group] = (end_ns - start_ns) * 1e-9
        epochs.append([times_s[group] for group in sorted(times_s)])
    groups = strategy.scheduling.groups
    load = np.concatenate([[0], np.cumsum(np.asarray(graph.num_edges, dtype=np.int64))])
    snapshots = groups.stop - groups.start
    medians_s = np.median(epochs[1:] or epochs, axis=0)
    return snapshots * graph.num_nodes, load[groups.stop] - load[groups.start], snapshots, medians_s


def _errors(
    sizes: Sizes, times_s: NDArray[np.float64], fitted: NDArray[np.int64], others: NDArray[np.int64]
) -> NDArray[np.float64]:
    nodes, edges, snapshots = (size[fitted] for size in sizes)
    linear = fit(nodes, edges, times_s[fitted], snapshots)
    nodes, edges, snapshots = (size[others] for size in sizes)
    return linear.errors(nodes, edges, times_s[others], snapshots)
