"""Epochs of windows, trainings and peaks of memory on the same pinned processes; for benchmarks/flaredtdg.py.

Imported by fresh processes (``dtdg_lab.testing.processes.run_ranks``), so that nothing here imports torch at once.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from contenders.esdg_steps import OWN, BothClocks
from contenders.flare_backward import BackwardClock
from contenders.flare_naive import naive_remapping
from contenders.snapshot_groups import pinned, share

if TYPE_CHECKING:
    from contenders.flare_plan import Limits
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.distributed.group import Group
    from dtdg_lab.engine.strategy import Step
    from dtdg_lab.training.build import RunComponents
    from dtdg_lab.training.memory import MemoryTrace

WARM_UPS = 1
WHOLE_WINDOWS = 2  # steps with a whole window whose memory is probed
MOST_SAMPLES = 1_000_000  # none is merged with one of the next step
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Contender:
    """A run whose epochs are timed.

    Attributes:
        name: what rows call it.
        config: of the run.
        bytes_per_s: that a rank's rows leave at; as fast as they do where infinite.
        delay_s: that an exchange of rows takes at least.
        naive: whether decayed snapshots are induced and relabelled anew in every step.
    """

    name: str
    config: RunConfig
    bytes_per_s: float = float("inf")
    delay_s: float = 0.0
    naive: bool = False


def placed(rank: int, ranks: int, address: str, cores: tuple[int, ...]) -> Group:
    """The ranks, each on its share of the cores; one rank is by itself, as in a run."""
    if ranks > 1:
        return pinned(rank, ranks, address, cores)
    import torch

    from dtdg_lab.distributed.group import SoloGroup

    os.sched_setaffinity(0, share(rank, ranks, cores))
    torch.set_num_threads(1)
    return SoloGroup()


def step(built: RunComponents, work: Step, clocks: BothClocks) -> float:
    """One step with its update, and its loss."""
    built.gradients.zero()
    computed = built.strategy.compute(work, clocks)
    clocks("compute")
    agreed = built.gradients.exchange(version=0, loss_sum=computed.loss_sum, groups=computed.groups)
    clocks.exchange(agreed.times)
    built.optimizer.step()
    clocks("update")
    loss_sum, groups = agreed.sums()
    return loss_sum / max(groups, 1)


def epoch_of(built: RunComponents, number: int, *, steps: int = 0) -> Row:
    """Train an epoch, or its first steps: what it took on this rank, sent and cut out."""
    from dtdg_lab.engine.strategy import read_rows

    began_s, clocks = time.perf_counter(), BothClocks()
    built.strategy.rows()
    works = built.strategy.epoch(number)
    clocks("batch")
    with BackwardClock() as backward:
        losses = [step(built, work, clocks) for work in works[: steps or None]]
    seconds, rows = time.perf_counter() - began_s, read_rows(built.strategy.rows())
    exchanges, batches = rows.get("exchanges", []), rows.get("batches", [])
    tasks = [row for row in rows.get("tasks", []) if row[3] and row[4]]  # both times are known
    behind = [row for row in exchanges if row[1] == "backward"]
    return {
        "seconds": seconds, "steps": len(losses), "losses": losses,
        "own": {clock: sum(spent[phase] for phase in OWN)
                for clock, spent in (("wall", clocks.wall), ("cpu", clocks.cpu))},
        "batch_s": clocks.wall["batch"], "compute_s": clocks.wall["compute"], "update_s": clocks.wall["update"],
        "transfer": {"wall": clocks.wall["transfer"], "cpu": clocks.cpu["transfer"]},
        "communicate_s": clocks.wall["communicate"] + clocks.wall["wait"],
        "backward_s": backward.seconds - sum(row[5] for row in behind),
        "bytes": sum(row[4] for row in rows.get("links", [])),
        "in_flight_s": sum(row[4] for row in exchanges), "exposed_s": sum(row[5] for row in exchanges),
        "shrink_s": sum(row[6] for row in batches), "rows": sum(row[4] for row in batches),
        "prediction_error": median(abs(row[3] / row[4] - 1) for row in tasks) if tasks else None,
    }  # fmt: skip


def in_turn(
    rank: int, ranks: int, address: str, contenders: Sequence[Contender], turns: int, steps: int, cores: tuple[int, ...]
) -> list[list[Row]]:
    """Epochs of all contenders on one rank, one of each a turn; those of warm-ups are left out."""
    from dtdg_lab.datasets.names import load_for
    from dtdg_lab.testing.processes import delayed_group
    from dtdg_lab.training.build import build

    group = placed(rank, ranks, address, cores)
    runs = []
    for contender in contenders:
        far = contender.delay_s or contender.bytes_per_s < float("inf")
        of: Group = delayed_group(group, contender.delay_s, contender.bytes_per_s) if far else group
        runs.append(build(contender.config, load_for(contender.config), of))
    found: list[list[Row]] = [[] for _ in runs]
    for turn in range(WARM_UPS + turns):
        for contender, built, own in zip(contenders, runs, found, strict=True):
            group.barrier()  # so that all begin at once
            with naive_remapping(contender.naive):
                epoch = epoch_of(built, turn, steps=steps)
            if turn >= WARM_UPS:
                own.append(epoch)
    group.barrier()
    group.close()
    return found


def joined(by_rank: Sequence[Sequence[Mapping[str, Any]]], *, clock: str) -> list[Row]:
    """Epochs of one contender over all ranks, turn by turn.

    By the wall clock seconds are those of the slowest rank; by processors, those of its own work, without exchanges.
    """
    epochs = []
    for ranks in zip(*by_rank, strict=True):
        own = [epoch["own"][clock] + epoch["transfer"][clock] for epoch in ranks]
        in_flight_s, exposed_s = (sum(epoch[what] for epoch in ranks) for what in ("in_flight_s", "exposed_s"))
        errors = [epoch["prediction_error"] for epoch in ranks if epoch["prediction_error"] is not None]
        epochs.append({
            "seconds": max(epoch["seconds"] for epoch in ranks) if clock == "wall" else max(own),
            "steps": ranks[0]["steps"], "losses": ranks[0]["losses"],
            "exposed_s": max(epoch["exposed_s"] for epoch in ranks),
            "hidden": 1 - exposed_s / in_flight_s if in_flight_s else None,
            "bytes": sum(epoch["bytes"] for epoch in ranks), "rows": sum(epoch["rows"] for epoch in ranks),
            "shrink_s": max(epoch["shrink_s"] for epoch in ranks),
            "prediction_error": median(errors) if errors else None,
        })  # fmt: skip
    return epochs


def trained(
    rank: int, ranks: int, address: str, configs: Sequence[RunConfig], limits: Limits, cores: tuple[int, ...]
) -> list[Row]:
    """Each run trained until its validation loss stays; then the test split, once, by the parameters that were best."""
    from dtdg_lab.datasets.names import load_for
    from dtdg_lab.training.build import build

    group = placed(rank, ranks, address, cores)
    found = []
    for config in configs:
        built = build(config, load_for(config), group)
        described = _until_it_stays(built, group, limits)
        (test,) = built.evaluator.evaluate(built.model, ("test",), final=True)
        found.append({**described, "mse": test.loss, "persistence": test.persistence_loss, "mean": test.mean_loss})
    group.close()
    return found


def _until_it_stays(built: RunComponents, group: Group, limits: Limits) -> Row:
    """Train; the model then has the parameters of the best evaluation. Evaluations are not in the seconds."""
    best, kept, curve = float("inf"), copy.deepcopy(built.model.state_dict()), []
    spent_s, updates, seen, epoch, at, without = 0.0, 0, 0, 0, (0.0, 0), 0
    while without < limits.evaluations and spent_s < limits.seconds:
        described = epoch_of(built, epoch)
        epoch, updates = epoch + 1, updates + described["steps"]
        spent_s += _agreed(group, described["seconds"])
        if updates < seen + limits.updates and spent_s < limits.seconds:
            continue
        seen = updates
        (validation,) = built.evaluator.evaluate(built.model, ("validation",))
        curve.append((spent_s, updates, validation.loss))
        without += 1
        if validation.loss is not None and validation.loss < best:
            best, kept, at, without = validation.loss, copy.deepcopy(built.model.state_dict()), (spent_s, updates), 0
    built.model.load_state_dict(kept)
    return {
        "validation": best, "converged_s": at[0], "converged_updates": at[1], "updates": updates, "epochs": epoch,
        "seconds": spent_s, "stays": without >= limits.evaluations, "curve": curve,
    }  # fmt: skip


def _agreed(group: Group, seconds: float) -> float:
    """The mean of all ranks, the same on each: they end together."""
    import torch

    both = torch.tensor([seconds, 1.0], dtype=torch.float64)
    group.all_reduce(both)
    return float(both[0] / both[1])


def peaks(rank: int, ranks: int, address: str, config: RunConfig, cores: tuple[int, ...]) -> Row:
    """Most bytes of tensors in use at once, from an epoch's first step until windows have been whole; nothing updated.

    The epoch is the second one: what the first one makes and a run keeps, such as operators of whole snapshots, is no
    step's. What steps leave for the next ones, such as the state they carry, is counted. ``whole_bytes`` is of steps
    whose window is whole, or of all where no step says how long it is.
    """
    from dtdg_lab.core.units import peak_rss_bytes
    from dtdg_lab.datasets.names import load_for
    from dtdg_lab.engine.strategy import StepMarks
    from dtdg_lab.training.build import build
    from dtdg_lab.training.memory import trace_memory

    group = placed(rank, ranks, address, cores)
    graph = load_for(config)
    built = build(config, graph, group)
    window, batches = config["window"], []

    def some_steps(marks: StepMarks, epoch: int = 1) -> None:
        for number, work in enumerate(built.strategy.epoch(epoch)):
            marks.block(number, "step")
            built.gradients.zero()
            built.strategy.compute(work, StepMarks())
            batches.extend(built.strategy.rows().get("batches", []))
            if sum(len(batch[3]) == window for batch in batches) >= WHOLE_WINDOWS:
                break

    some_steps(StepMarks(), 0)
    batches.clear()
    trace = trace_memory(some_steps, limit=MOST_SAMPLES)
    group.barrier()
    group.close()
    by_step = peak_of_steps(trace)
    whole = [number for number, batch in enumerate(batches) if len(batch[3]) == window] or range(len(by_step))
    return {
        "peak_bytes": trace.peak_bytes, "whole_bytes": max(by_step[number] for number in whole), "steps": len(by_step),
        "rss_bytes": peak_rss_bytes(), "rows": max((batch[4] for batch in batches), default=None),
        "nodes": graph.num_nodes, "snapshots": graph.num_snapshots,
        "feature_bytes": 4 * graph.num_snapshots * graph.num_nodes * graph.num_features,
    }  # fmt: skip


def cell(
    rank: int, ranks: int, address: str, configs: Sequence[RunConfig], limits: Limits, cores: tuple[int, ...]
) -> tuple[list[Row], Row]:
    """Trainings on one rank, and the memory that the first of them takes."""
    return trained(rank, ranks, address, configs, limits, cores), peaks(rank, ranks, address, configs[0], cores)


def peak_of_steps(trace: MemoryTrace) -> list[int]:
    """Most bytes in use in each step of a trace whose blocks are steps; what was in use when it began counts."""
    begun = [second for second, _, _ in trace.blocks]
    peaks_, step_ = [0] * len(begun), 0
    for second, live in zip(trace.seconds, trace.bytes, strict=True):
        while step_ + 1 < len(begun) and second >= begun[step_ + 1]:
            step_ += 1
        peaks_[step_] = max(peaks_[step_], live)
    return peaks_
