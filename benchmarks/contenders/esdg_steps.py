"""Steps of several runs, in turn on the same pinned processes, with every phase by both clocks; for benchmarks/esdg.py.

Imported by fresh processes (``dtdg_lab.testing.processes.run_ranks``), so that nothing here imports torch at once.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from contenders.snapshot_groups import pinned

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.distributed.all_to_all import ReadTimes
    from dtdg_lab.distributed.group import Group
    from dtdg_lab.training.build import RunComponents

WARM_UPS = 2
OWN = ("batch", "compute", "update")  # what a rank computes by itself


@dataclass(frozen=True, slots=True)
class Contender:
    """A run to be timed.

    Attributes:
        name: what rows call it.
        config: of the run.
        bytes_per_s: that a rank's rows leave at; as fast as they do where infinite.
    """

    name: str
    config: RunConfig
    bytes_per_s: float = float("inf")


class BothClocks:
    """Seconds of a step by phase: on the wall, and of this thread on its processor."""

    def __init__(self) -> None:
        self.wall: defaultdict[str, float] = defaultdict(float)
        self.cpu: defaultdict[str, float] = defaultdict(float)
        self._wall_s, self._cpu_s = time.perf_counter(), time.thread_time()

    def __call__(self, phase: str) -> None:
        wall_s, cpu_s = self._since()
        self.wall[phase] += wall_s
        self.cpu[phase] += cpu_s

    def exchange(self, times: ReadTimes) -> None:
        wall_s, cpu_s = self._since()
        wait_s = times().wait_s
        self.wall["wait"] += min(wait_s, wall_s)
        self.wall["communicate"] += max(0.0, wall_s - wait_s)
        self.cpu["communicate"] += cpu_s

    def block(self, number: int, way: str) -> None:
        """A block of time is no phase."""

    def _since(self) -> tuple[float, float]:
        before = self._wall_s, self._cpu_s
        self._wall_s, self._cpu_s = time.perf_counter(), time.thread_time()
        return self._wall_s - before[0], self._cpu_s - before[1]


def one_step(built: RunComponents, epoch: int) -> dict[str, Any]:
    """Train an epoch, which is one step, and tell what it took on this rank, what it sent and what it brought."""
    from dtdg_lab.engine.strategy import read_rows

    began_s, clocks = time.perf_counter(), BothClocks()
    built.gradients.zero()
    (work,) = built.strategy.epoch(epoch)
    computed = built.strategy.compute(work, clocks)
    clocks("compute")
    agreed = built.gradients.exchange(version=0, loss_sum=computed.loss_sum, groups=computed.groups)
    loss_sum, groups = agreed.sums()
    clocks.exchange(agreed.times)
    built.optimizer.step()
    clocks("update")
    seconds, rows = time.perf_counter() - began_s, read_rows(built.strategy.rows())
    exchanges, brought = rows.get("exchanges", []), rows.get("transfers", [])
    return {
        "seconds": seconds, "loss": loss_sum / groups,
        "own": {clock: sum(spent[phase] for phase in OWN)
                for clock, spent in (("wall", clocks.wall), ("cpu", clocks.cpu))},
        "transfer": {"wall": clocks.wall["transfer"], "cpu": clocks.cpu["transfer"]},
        "communicate": clocks.wall["communicate"], "wait": clocks.wall["wait"],
        "links": [tuple(link) for link in rows.get("links", [])],
        "exchanges": sum(row[3] for row in exchanges), "in_flight_s": sum(row[4] for row in exchanges),
        "exposed_s": sum(row[5] for row in exchanges),
        "brought": [sum(row[column] for row in brought) for column in range(3)],
    }  # fmt: skip


def in_turn(
    rank: int, ranks: int, address: str, contenders: Sequence[Contender], turns: int, cores: tuple[int, ...]
) -> list[list[dict[str, Any]]]:
    """Steps of all contenders on one rank, one of each a turn; those of warm-ups are left out."""
    from dtdg_lab.datasets.names import load_for
    from dtdg_lab.testing.processes import delayed_group
    from dtdg_lab.training.build import build

    group = pinned(rank, ranks, address, cores)
    runs = []
    for contender in contenders:
        slow = contender.bytes_per_s < float("inf")
        of: Group = delayed_group(group, 0.0, contender.bytes_per_s) if slow else group
        runs.append(build(contender.config, load_for(contender.config), of))
    for built in runs:
        _chosen(built, group)
    found: list[list[dict[str, Any]]] = [[] for _ in runs]
    for turn in range(WARM_UPS + turns):
        for built, own in zip(runs, found, strict=True):
            group.barrier()  # so that all begin at once
            step = one_step(built, turn)
            if turn >= WARM_UPS:
                own.append(step)
    group.barrier()
    group.close()
    return found


def _chosen(built: RunComponents, group: Group) -> None:
    """Epochs in which a strategy tries ways of its own, as a run makes them; none where it tries nothing."""
    from dtdg_lab.engine.capabilities import ObservesSteps, Replannable, StepOutcome

    strategy = built.strategy
    chosen = not (isinstance(strategy, Replannable) and strategy.epoch_changes)
    while not chosen:
        group.barrier()
        step = one_step(built, 0)
        assert isinstance(strategy, Replannable) and isinstance(strategy, ObservesSteps)
        strategy.on_step_end(StepOutcome(step["seconds"], step["communicate"], (), {}))
        chosen = bool(strategy.on_epoch_end())


def trained(
    rank: int, ranks: int, address: str, configs: Sequence[RunConfig], cores: tuple[int, ...]
) -> list[dict[str, Any]]:
    """The losses of each run's epochs, and what its test split scores at the end."""
    from dtdg_lab.datasets.names import load_for
    from dtdg_lab.training.build import build

    group = pinned(rank, ranks, address, cores)
    found = []
    for config in configs:
        built = build(config, load_for(config), group)
        losses = [one_step(built, epoch)["loss"] for epoch in range(config.epochs)]
        (test,) = built.evaluator.evaluate(built.model, ("test",), final=True)
        found.append({"losses": losses, "test_loss": test.loss, "metrics": dict(test.metrics)})
    group.close()
    return found


def joined(by_rank: Sequence[Sequence[Mapping[str, Any]]], *, clock: str) -> list[dict[str, Any]]:
    """Steps of one contender over all ranks, turn by turn.

    By the wall clock seconds are those of the slowest rank; by processors, those of its own work, without exchanges.
    """
    steps = []
    for ranks in zip(*by_rank, strict=True):
        own = [step["own"][clock] + step["transfer"][clock] for step in ranks]
        in_flight_s = sum(step["in_flight_s"] for step in ranks)
        steps.append({
            "seconds": max(step["seconds"] for step in ranks) if clock == "wall" else max(own),
            "communicate_s": max(step["communicate"] for step in ranks),
            "transfer_s": max(step["transfer"][clock] for step in ranks),
            "wait_s": max(step["wait"] for step in ranks),
            "hidden": 1 - sum(step["exposed_s"] for step in ranks) / in_flight_s if in_flight_s else None,
            "loss": ranks[0]["loss"], "bytes": sum(link[4] for step in ranks for link in step["links"]),
        })  # fmt: skip
    return steps


def medians(own: Sequence[Mapping[str, Any]], clock: str) -> tuple[float, float, float]:
    """A rank's seconds of computing, of bringing graphs and of exchanges."""
    return (
        median(step["own"][clock] for step in own), median(step["transfer"][clock] for step in own),
        median(step["communicate"] for step in own),
    )  # fmt: skip
