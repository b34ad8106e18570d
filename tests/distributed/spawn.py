"""Functions that tests run on ranks: module-level, so that fresh processes can import them by name."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dtdg_lab.comm.averaging import ModelAverager, Round
from dtdg_lab.comm.group import ProcessGroup, reach_store
from dtdg_lab.core.errors import RunFailedError
from dtdg_lab.testing.processes import join_group


def start_of(rank: int, size: int = 1000, dtype: torch.dtype = torch.float64) -> Tensor:
    """Parameters a rank starts with, different on each."""
    return torch.randn(size, generator=torch.Generator().manual_seed(rank), dtype=dtype)


def one_step(parameters: Tensor, rank: int) -> None:
    """A step of local training: towards a target of the rank's own."""
    parameters.sub_(0.01 * (parameters - rank))


def average_at_own_pace(
    rank: int, ranks: int, address: str, steps: dict[int, int], step_s: dict[int, float], every_s: float
) -> dict[str, Any]:
    """Train with averaging; returns what the rank saw. ``step_s`` is time asleep inside a step, as work would be."""
    group = join_group(rank, ranks, address)
    parameters = start_of(rank)
    averager = ModelAverager(
        parameters, group=dist.new_group(), store=group.store, every_s=every_s, limit_s=20.0, name="pace"
    )
    work_s, step_took_s = [], []
    for _ in range(steps[rank]):
        began = time.perf_counter()
        time.sleep(step_s[rank])
        one_step(parameters, rank)
        worked = time.perf_counter()
        averager.control()
        work_s.append(worked - began)
        step_took_s.append(time.perf_counter() - began)
    before_finish = parameters.clone()
    averager.finish()
    averager.finish()  # a second call does nothing
    group.close()
    return {
        "rounds": averager.rounds,
        "bytes_sent": averager.bytes_sent,
        "work_s": sorted(work_s)[len(work_s) // 2],
        "step_s": sorted(step_took_s)[len(step_took_s) // 2],
        "control_share": (sum(step_took_s) - sum(work_s)) / sum(work_s),
        "before_finish": before_finish,
        "parameters": parameters,
    }


def replay_at_own_pace(
    rank: int, ranks: int, address: str, steps: dict[int, int], logs: list[list[Round]]
) -> tuple[Tensor, list[Round]]:
    """The same training fed with the logged rounds, at another pace (none)."""
    group = join_group(rank, ranks, address)
    parameters = start_of(rank)
    averager = ModelAverager(
        parameters, group=dist.new_group(), store=group.store, every_s=0.1, limit_s=20.0, replay=logs[rank]
    )
    with averager:
        for _ in range(steps[rank]):
            one_step(parameters, rank)
            averager.control()
    group.close()
    return parameters, averager.rounds


def pair(rank: int, ranks: int, address: str, steps: int) -> dict[str, Any]:
    """Three small cases on one pair of processes, since starting them costs most."""
    group = join_group(rank, ranks, address)
    results = {
        "by hand": mean_by_hand(group),
        "every step": average_after_every_step(group, steps),
        "early end": blocking_with_an_early_end(group),
    }
    group.close()
    return results


def average_after_every_step(group: ProcessGroup, steps: int) -> tuple[Tensor, Tensor, int]:
    """Plain SGD averaged after every step, and the same with gradients averaged before every step."""
    rank, ranks = group.rank, group.size
    data = start_of(100 + rank, 40).reshape(10, 4)
    averaged, synchronous = start_of(7, 4), start_of(7, 4)
    parts = [averaged[:1], averaged[1:].view(3, 1)]  # a list of tensors is averaged in place
    averager = ModelAverager(
        parts, group=dist.new_group(), store=group.store, every_s=0.0, limit_s=20.0, name="average_after_every_step"
    )
    for _ in range(steps):
        averaged.sub_(0.05 * _gradient(averaged, data))
        averager.control()
        gradient = _gradient(synchronous, data)
        dist.all_reduce(gradient)
        synchronous.sub_(0.05 * gradient / ranks)
    rounds = len(averager.rounds)
    averager.finish()
    return averaged, synchronous, rounds


def _gradient(parameters: Tensor, data: Tensor) -> Tensor:
    """Of the mean of (data @ parameters - 1) ** 2 / 2 over rows."""
    return data.T @ (data @ parameters - 1.0) / len(data)


def blocking_with_an_early_end(group: ProcessGroup) -> tuple[int, Tensor]:
    """Period 0 with unequal numbers of steps: rank 0 ends first, the others go on averaging."""
    rank = group.rank
    parameters = torch.full((3,), float(rank), dtype=torch.float64)
    averager = ModelAverager(
        parameters,
        group=dist.new_group(),
        store=group.store,
        every_s=0.0,
        limit_s=20.0,
        name="blocking_with_an_early_end",
    )
    with averager:
        for _ in range(2 if rank == 0 else 5):
            parameters += 1.0
            averager.control()
    return len([one for one in averager.rounds if one.weight]), parameters


def mean_by_hand(group: ProcessGroup) -> tuple[list[float], list[float]]:
    """One round by the book: join at (1 and 3), step by +10 meanwhile, apply, then end."""
    rank = group.rank
    parameters = torch.tensor([1.0, 3.0][rank]).reshape(1)
    averager = ModelAverager(
        parameters,
        group=dist.new_group(),
        store=group.store,
        every_s=1.0,
        limit_s=20.0,
        name="mean_by_hand",
        replay=[Round(1, 1, 2)],
    )
    averager.control()
    parameters += 10.0 * (rank + 1)
    averager.control()
    after_round = parameters.tolist()
    averager.finish()
    return after_round, parameters.tolist()


def die_while_averaging(
    rank: int, ranks: int, address: str, victim: int, when: str, limit_s: float
) -> tuple[str, float]:
    """``victim`` kills itself in a round (after joining it) or while the others are in finish().

    Returns the survivor's error and the second on the machine's clock at which it was raised.
    """
    group = join_group(rank, ranks, address)
    parameters = start_of(rank, 200_000, torch.float32)
    averager = ModelAverager(parameters, group=dist.new_group(), store=group.store, every_s=0.05, limit_s=limit_s)
    try:
        for step in range(10_000):
            time.sleep(0.002)
            if rank == victim and step == 100:
                _kill_self(averager, group.store, in_round=when == "round")
            if when == "finish" and rank != victim and step == 50:
                break
            averager.control()
        averager.finish()
    except RunFailedError as error:
        return str(error), time.monotonic()
    raise AssertionError(f"rank {rank} saw no failure")


def _kill_self(averager: ModelAverager, store: Any, *, in_round: bool) -> None:
    while in_round and averager._work is None:  # the next round is joined, and nobody has finished it without us
        averager._apply_if_complete()
        averager._serve()
    store.set("killed_ns", str(time.monotonic_ns()))
    os.kill(os.getpid(), signal.SIGKILL)


def killed_at(rank: int, ranks: int, address: str, *args: Any) -> tuple[str, float]:
    """As :func:`die_while_averaging`, with seconds since the kill."""
    reason, raised_s = die_while_averaging(rank, ranks, address, *args)
    return reason, raised_s - int(reach_store(address, ranks).get("killed_ns")) * 1e-9


def fail_while_averaging(rank: int, ranks: int, address: str) -> str:
    """Rank 1 raises inside the block; the others must name its reason."""
    group = join_group(rank, ranks, address)
    parameters = start_of(rank)
    try:
        with ModelAverager(
            parameters, group=dist.new_group(), store=group.store, every_s=0.05, limit_s=2.0
        ) as averager:
            for step in range(10_000):
                time.sleep(0.002)
                if rank == 1 and step == 60:
                    raise ValueError("loss is NaN")
                averager.control()
    except (RunFailedError, ValueError) as error:
        return str(error)
    raise AssertionError(f"rank {rank} saw no failure")
