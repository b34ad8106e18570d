"""Epochs over snapshot groups by several schedules, in turn on the same pinned processes; for benchmarks/dygnex.py.

Imported by fresh processes (``dtdg_lab.testing.processes.run_ranks``), so that nothing here imports torch at once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contenders.vertex_parts import Phases

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.distributed.group import Group
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.training.build import RunComponents

WARM_UPS = 2


@dataclass(frozen=True, slots=True)
class Contender:
    """A system to be timed.

    Attributes:
        name: what rows call it.
        config: of the run.
        turns: epochs timed.
    """

    name: str
    config: RunConfig
    turns: int


def share(rank: int, ranks: int, cores: Sequence[int]) -> set[int]:
    """A rank's share of the cores: a run of them, the same number for all; one, shared, where ranks are more."""
    each = max(1, len(cores) // ranks)
    first = rank * each if ranks <= len(cores) else rank % len(cores)
    return set(cores[first : first + each])


def pinned(rank: int, ranks: int, address: str, cores: Sequence[int]) -> Group:
    """Bind this process to its share of the cores, then join the others: threads that start later are bound as well."""
    from dtdg_lab.testing.processes import join_group

    os.sched_setaffinity(0, share(rank, ranks, cores))
    return join_group(rank, ranks, address)


def one_epoch(built: RunComponents, epoch: int) -> dict[str, Any]:
    """Train an epoch and tell a rank's own seconds in each iteration, by the wall clock and by its processor.

    Own are forward, backward and update, without what is waited for and exchanged.
    """
    from dtdg_lab.engine.strategy import read_rows

    wall, cpu, lost, count, wait_s, times = [], [], 0.0, 0, 0.0, []
    began = time.perf_counter()
    for work in built.strategy.epoch(epoch):
        built.gradients.zero()
        start_s, start_cpu, phases = time.perf_counter(), time.process_time(), Phases()
        computed = built.strategy.compute(work, phases)
        own_s = time.perf_counter() - start_s - phases.wait_s - phases.rows_s
        own_cpu = time.process_time() - start_cpu
        agreed = built.gradients.exchange(version=0, loss_sum=computed.loss_sum, groups=computed.groups)
        start_s, start_cpu = time.perf_counter(), time.process_time()
        built.optimizer.step()
        wall.append(own_s + time.perf_counter() - start_s)
        cpu.append(own_cpu + time.process_time() - start_cpu)
        wait_s += agreed.times().wait_s + phases.wait_s
        loss_sum, groups = agreed.sums()
        lost, count = lost + loss_sum, count + groups
        rows = read_rows(built.strategy.rows()).get("groups", [])
        times += [(group, (end_ns - start_ns) * 1e-9, cpu_s) for group, start_ns, end_ns, cpu_s in rows]
        if getattr(built.strategy, "scheduling", None) is not None:
            built.strategy.scheduling.observe(rows)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "wall": wall, "cpu": cpu, "wait_s": wait_s, "loss": lost / count, "groups": times}


def profiled(config: RunConfig, graph: DynamicGraph, group: Group, plan: dict[str, Any]) -> RunComponents:
    """Build a run, and time its groups as the run does, unless a plan of the same groups brings their times."""
    from dtdg_lab.training.build import build

    built = build(config, graph, group, plan=plan)
    if getattr(built.strategy, "scheduling", None) is None or config["group_times"] == "size":
        return built
    for epoch in range(0 if plan else config["profile_epochs"]):
        one_epoch(built, epoch)
        built.strategy.on_epoch_end()
    source = built.strategy.scheduling.event().write()["source"]
    if source != config["group_times"]:
        raise RuntimeError(f"{config.system} is scheduled by {source}, not by {config['group_times']}")
    return built


def in_turn(
    rank: int, ranks: int, address: str, contenders: tuple[Contender, ...], cores: tuple[int, ...]
) -> list[dict[str, Any]]:
    """Epochs of all contenders on one rank, one of each a turn; all are scheduled by the first one's profile."""
    from dtdg_lab.datasets.names import load_for

    group = pinned(rank, ranks, address, cores)
    graph, plan, runs, found = load_for(contenders[0].config), {}, [], []
    for contender in contenders:
        built = profiled(contender.config, graph, group, plan)
        plan = plan or built.strategy.state_dict()
        described = (
            {} if getattr(built.strategy, "scheduling", None) is None else built.strategy.scheduling.event().write()
        )
        runs.append(built)
        found.append({"schedule": described, "epochs": []})
    for turn in range(WARM_UPS + max(contender.turns for contender in contenders)):
        for contender, built, own in zip(contenders, runs, found, strict=True):
            if turn < WARM_UPS + contender.turns:
                _meet(group)  # so that all begin at once
                own["epochs"].append(one_epoch(built, turn))
    _meet(group)
    group.close()
    return found


def trained(
    rank: int, ranks: int, address: str, configs: tuple[RunConfig, ...], cores: tuple[int, ...]
) -> list[dict[str, Any]]:
    """Each run trained to its end and scored: training and validation split at each quarter, the test split once."""
    from dtdg_lab.datasets.names import load_for

    group = pinned(rank, ranks, address, cores)
    found = []
    for config in configs:
        built = profiled(config, load_for(config), group, {})
        marks = {config.epochs * quarter // 4 for quarter in (1, 2, 3)} - {0}
        curve = []
        for epoch in range(config.epochs):
            one_epoch(built, epoch)
            if epoch + 1 in marks:
                scores = built.evaluator.evaluate(built.model, ("train", "validation"))
                curve.append({"epoch": epoch + 1, **{score.split: score.loss for score in scores}})
        final = built.evaluator.evaluate(built.model, ("train", "validation", "test"), final=True)
        found.append({
            "updates": len(built.strategy.epoch(0)), "curve": curve,
            "loss": {score.split: score.loss for score in final},
            "metrics": {score.split: dict(score.metrics) for score in final},
            "persistence": {score.split: score.persistence_loss for score in final},
        })  # fmt: skip
    group.close()
    return found


def _meet(group: Group) -> None:
    """Wait for all ranks."""
    import torch

    group.all_reduce(torch.zeros(1))
