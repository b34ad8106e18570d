"""Full-batch epochs of systems that divide nodes, taken in turn on the same processes; for benchmarks/partitions.py.

Imported by fresh processes (``dtdg_lab.testing.processes.run_ranks``), so that nothing here imports torch at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.distributed.all_to_all import ReadTimes
    from dtdg_lab.distributed.group import Group

WARM_UPS = 2


@dataclass(frozen=True, slots=True)
class Contender:
    """A system to be timed.

    Attributes:
        name: what rows call it.
        config: of the run; its ``ranks`` are 1 or as many as there are processes. Alone, rank 0 runs it while the
            others wait.
        turns: epochs timed.
    """

    name: str
    config: RunConfig
    turns: int


class Phases:
    """Seconds of an epoch that were waiting for others and moving rows; the rest is computing."""

    def __init__(self) -> None:
        self._last_s = time.perf_counter()
        self.wait_s = self.rows_s = 0.0

    def __call__(self, phase: str) -> None:
        self._last_s = time.perf_counter()

    def block(self, number: int, way: str) -> None:
        """Nothing: a step is timed as a whole."""

    def exchange(self, times: ReadTimes) -> None:
        now_s = time.perf_counter()
        wait_s = min(times().wait_s, now_s - self._last_s)
        self.wait_s += wait_s
        self.rows_s += now_s - self._last_s - wait_s
        self._last_s = now_s


def epoch_of(config: RunConfig, group: Group) -> tuple[Callable[[], dict[str, Any]], dict[str, Any]]:
    """One full-batch epoch as a call, and what is known before the first: seconds of building, predicted bytes."""
    from dtdg_lab.datasets.names import load_for
    from dtdg_lab.training.build import build

    graph = load_for(config)
    began = time.perf_counter()
    built = build(config, graph, group)
    facts: dict[str, Any] = {"build_s": time.perf_counter() - began, "predicted_bytes": 0}
    if built.partition is not None:
        (predicted,) = (of.write()["predicted"] for of in built.strategy.plan_events() if of.kind == "partition")
        facts["predicted_bytes"] = sum(_total(predicted[way]) for way in ("forward", "backward"))

    def epoch() -> dict[str, Any]:
        from dtdg_lab.engine.strategy import read_rows

        phases, sent = Phases(), group.bytes_sent
        began, cpu_s = time.perf_counter(), time.process_time()
        built.gradients.zero()
        (work,) = built.strategy.epoch(0)
        computed = built.strategy.compute(work, phases)
        agreed = built.gradients.exchange(version=0, loss_sum=computed.loss_sum, groups=computed.groups)
        loss_sum, groups = agreed.sums()
        built.optimizer.step()
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
        links = read_rows(built.strategy.rows()).get("links", [])
        return {
            "seconds": seconds,
            "cpu_s": cpu_s,
            "wait_s": phases.wait_s + agreed.times().wait_s,
            "rows_s": phases.rows_s,
            "loss": loss_sum / groups,
            "rows_bytes": sum(link[-1] for link in links),
            "all_bytes": group.bytes_sent - sent,
            "vertex_snapshots": computed.vertex_snapshots,
        }

    return epoch, facts


def _total(layers: list[list[list[int]]]) -> int:
    return sum(sum(sum(row) for row in layer) for layer in layers)


def in_turn(rank: int, ranks: int, address: str, contenders: tuple[Contender, ...]) -> list[dict[str, Any]]:
    """Epochs of all contenders on one rank, one of each a turn: ``{}`` for those that another rank runs alone."""
    from dtdg_lab.distributed.group import SoloGroup
    from dtdg_lab.testing.processes import join_group

    together = join_group(rank, ranks, address)
    epochs: list[Callable[[], dict[str, Any]] | None] = []
    found: list[dict[str, Any]] = []
    for contender in contenders:
        alone = contender.config.ranks == 1
        if alone and rank:
            epochs.append(None)
            found.append({})
            continue
        epoch, facts = epoch_of(contender.config, SoloGroup() if alone else together)
        epochs.append(epoch)
        found.append({**facts, "epochs": []})
    for turn in range(WARM_UPS + max(contender.turns for contender in contenders)):
        for contender, epoch, own in zip(contenders, epochs, found, strict=True):
            if turn >= WARM_UPS + contender.turns:
                continue
            _meet(together)  # so that all begin at once, and nobody computes while another is timed alone
            if epoch is not None:
                own["epochs"].append(epoch())
    _meet(together)
    together.close()
    return found


def memory(rank: int, ranks: int, address: str, config: RunConfig) -> dict[str, int]:
    """Peak of resident memory of one rank above what it held after import and loading, over two epochs."""
    from dtdg_lab.datasets.names import load_for
    from dtdg_lab.distributed.group import SoloGroup
    from dtdg_lab.testing.processes import join_group

    group: Any = join_group(rank, ranks, address) if ranks > 1 else SoloGroup()
    load_for(config)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak to what is held now
    held = resident_bytes("VmRSS")
    epoch, _ = epoch_of(config, group)
    for _ in range(2):
        epoch()
    answer = {"peak_bytes": resident_bytes("VmHWM") - held, "held_bytes": held, "file_bytes": resident_bytes("RssFile")}
    group.barrier()  # both leave together
    group.close()
    return answer


def resident_bytes(field: str) -> int:
    """A figure of this process in /proc; Linux alone has it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}; this benchmark reads memory on Linux only")


def _meet(group: Group) -> None:
    """Wait for all ranks."""
    import torch

    group.all_reduce(torch.zeros(1))
