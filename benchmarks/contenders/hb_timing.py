"""Steps of several systems in turn, a slowed rank, full reservoirs, and generators beside a load; benchmarks/dynahb.py.

Imported by fresh processes (``dtdg_lab.testing.processes.run_ranks``), so that nothing here imports torch at once.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from contenders.flare_steps import placed
from contenders.hb_run import RankRun

if TYPE_CHECKING:
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.systems.hybrid_batches.generators import Generators

WARM_UPS = 1
FIRST_S = 10.0  # most that is waited for a generator's first batch
SHARES = ("batch_s", "own_s", "cpu_s")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Contender:
    """A run whose steps are timed.

    Attributes:
        name: what rows call it.
        config: of the run.
        steps: of a turn.
    """

    name: str
    config: RunConfig
    steps: int


def some_steps(run: RankRun, steps: int = 0, *, seconds: float = float("inf")) -> Row:
    """Means over steps of this rank, as many as rank 0 makes in some seconds where they end sooner; collective."""
    described = list(run.train(steps=steps, seconds=run.seconds + seconds))
    sums = {name: sum(step[name] for step in described) for name in ("seconds", *SHARES)}
    return {"steps": len(described), **{name: spent / len(described) for name, spent in sums.items()},
            "each_s": [step["seconds"] for step in described]}  # fmt: skip


def in_turn(
    rank: int, ranks: int, address: str, contenders: Sequence[Contender], turns: int, cores: tuple[int, ...]
) -> list[Row]:
    """Steps of all contenders on one rank, some of each a turn; those of warm-ups are left out.

    Reservoirs are full before the first turn, or have been filled for a while; generators run in their own turn alone.
    """
    group = placed(rank, ranks, address, cores)
    runs = [RankRun(contender.config, group) for contender in contenders]
    found: list[Row] = [{"turns": []} for _ in runs]
    for run, own in zip(runs, found, strict=True):
        run.open()
        own["fill_s"], own["filled"] = run.fill(), run.filled()
        run.close()
        group.barrier()
    for turn in range(WARM_UPS + turns):
        for contender, run, own in zip(contenders, runs, found, strict=True):
            if run.filled() < 1:
                run.open()
            group.barrier()  # so that all begin at once
            described = some_steps(run, contender.steps)
            run.close()
            if turn >= WARM_UPS:
                own["turns"].append(described)
    for run, own in zip(runs, found, strict=True):
        own |= {"bytes_a_step": run.bytes_sent / run.steps, "sources": dict(run.sources)}
    group.barrier()
    group.close()
    return found


def joined(by_rank: Sequence[Row], *, clock: str) -> list[float]:
    """Seconds of a step, turn by turn: of the slowest rank; by processors, of its own work without exchanges."""
    name = "seconds" if clock == "wall" else "own_s"
    return [max(turn[name] for turn in turns) for turns in zip(*(own["turns"] for own in by_rank), strict=True)]


def slowed(
    rank: int, ranks: int, address: str, configs: Sequence[RunConfig], steps: int, slow: float, cores: tuple[int, ...]
) -> list[Row]:
    """Seconds of a step on each rank, as it is and with the last rank's steps ``slow`` times as long."""
    import torch

    group = placed(rank, ranks, address, cores)
    found = []
    for config in configs:
        row, slow_s = {}, 0.0
        for how in ("even", "slowed"):
            with RankRun(config, group, slowed=ranks - 1, slow_s=slow_s) as run:
                some_steps(run, steps)  # to warm up
                described = some_steps(run, steps)
            own = torch.zeros(ranks, dtype=torch.float64)
            own[rank] = statistics.median(described["each_s"])
            group.all_reduce(own)
            row[how] = own.tolist()
            slow_s = (slow - 1) * float(own[0])
        found.append(row)
    group.barrier()
    group.close()
    return found


def waiting(
    rank: int, ranks: int, address: str, configs: Sequence[RunConfig], seconds: float, cores: tuple[int, ...]
) -> list[Row]:
    """The share of steps that is waiting for batches, while reservoirs fill and after they have been full a while."""
    from dtdg_lab.systems.hybrid_batches.supply import LEVELS_EVERY_S

    group = placed(rank, ranks, address, cores)
    found = []
    for config in configs:
        with RankRun(config, group) as run:
            some_steps(run, seconds=seconds)  # to warm up, without reservoirs
            run.sources.clear()
            run.open()
            cold = some_steps(run, seconds=seconds)
            fill_s = run.fill()
            some_steps(run, seconds=seconds)  # what a batch brings when it is taken first is not brought again
            warm = some_steps(run, seconds=seconds)
            time.sleep(LEVELS_EVERY_S)  # the next step tells of reservoirs
            some_steps(run, 1)
            found.append({
                "cold": cold["batch_s"] / cold["seconds"], "warm": warm["batch_s"] / warm["seconds"],
                "cold_s": cold["seconds"], "warm_s": warm["seconds"], "fill_s": fill_s, "filled": run.filled(),
                "sources": dict(run.sources), "busy_s": run.spent["rsv"],
                "made": sum(described["made"] for described in run.levels.values()),
                "bytes": sum(described["bytes"] for described in run.levels.values()),
            })  # fmt: skip
    group.barrier()
    group.close()
    return found


def beside(
    rank: int, ranks: int, address: str, load: RunConfig, source: RunConfig, kinds: Sequence[str], turns: int,
    seconds: float, cores: tuple[int, ...],
) -> Row:  # fmt: skip
    """Steps of a run while generators of another one's batches never stop, in turn by kind; ``none`` is without.

    Args:
        rank: of one process.
        ranks: 1.
        address: where ranks meet.
        load: what is timed: batches that need no building.
        source: whose batches are generated.
        kinds: of generators.
        turns: of each.
        seconds: of a turn.
        cores: that all of it has.
    """
    from dtdg_lab.systems.hybrid_batches.generators import Generators

    group = placed(rank, ranks, address, cores)
    os.sched_setaffinity(0, cores)
    timed, made_of = RankRun(load, group), RankRun(source, group)
    parts = made_of.built.strategy.parts
    found: dict[str, list[Row]] = {kind: [] for kind in kinds}
    for turn in range(WARM_UPS + turns):
        for kind in kinds:
            generators = None
            if kind != "none":
                generators = Generators([part.source() for part in parts], kind=kind)
                _first_batch(generators)
            before, began_s, took_s = _made(generators), time.perf_counter(), []
            for step in timed.train(seconds=timed.seconds + seconds):
                took_s.append(step["seconds"])
                for part in parts:
                    part.reservoir.clear()
            made, spent_s = _made(generators) - before, time.perf_counter() - began_s
            if generators is not None:
                generators.check()
                generators.close()
            if turn >= WARM_UPS:
                found[kind].append({"step_s": statistics.median(took_s), "made_per_s": made / spent_s})
    group.close()
    return found


def _made(generators: Generators | None) -> int:
    return 0 if generators is None else sum(map(sum, generators.made))


def _first_batch(generators: Generators) -> None:
    end_s = time.perf_counter() + FIRST_S
    while not _made(generators) and time.perf_counter() < end_s:
        generators.check()
        time.sleep(0.01)
