"""Functions that tests run on ranks: module-level, so that fresh processes can import them by name."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from dtdg_lab.core.errors import ConfigError, RunFailedError
from dtdg_lab.distributed.averager import ControlState, Round
from dtdg_lab.distributed.group import Group, ProcessGroup
from dtdg_lab.distributed.model_averaging import ModelAverager, averager_for
from dtdg_lab.distributed.store import reach_store
from dtdg_lab.testing.processes import join_group


def start_of(rank: int, size: int = 1000, dtype: torch.dtype = torch.float64) -> Tensor:
    """Parameters a rank starts with, different on each."""
    return torch.randn(size, generator=torch.Generator().manual_seed(rank), dtype=dtype)


def one_step(parameters: Tensor, rank: int, choice: int = 0) -> None:
    """A step of local training: towards a target of the rank's own, as fast as a choice says."""
    parameters.sub_(0.005 * (1 + choice % 3) * (parameters - rank))


def averager_of(group: ProcessGroup, parameters: Tensor | list[Tensor], **options: Any) -> ModelAverager:
    """As tests want it: with a limit of its own, and nothing asked for unless said."""
    return ModelAverager(
        parameters,
        group=dist.new_group(),
        store=group.store,
        **{"every_s": 1.0, "limit_s": 20.0, "newest_state": ControlState, "name": "test"} | options,
    )


def average_at_own_pace(
    group: Group, steps: dict[int, int], step_s: dict[int, float], every_s: float
) -> dict[str, Any]:
    """Train with averaging; returns what the rank saw. ``step_s`` is time asleep inside a step, as work would be."""
    parameters = start_of(group.rank)

    def asked() -> ControlState:
        assert group.rank == 0, "only rank 0 is asked"
        return ControlState(averager.step // 40, averager.step // 15)

    averager = averager_of(group, parameters, every_s=every_s, newest_state=asked, name="pace")
    work_s, step_took_s, received = [], [], []
    for _ in range(steps[group.rank]):
        began = time.perf_counter()
        time.sleep(step_s[group.rank])
        one_step(parameters, group.rank, averager.agreed.choice)
        worked = time.perf_counter()
        averager.control()
        work_s.append(worked - began)
        step_took_s.append(time.perf_counter() - began)
        received.append(averager.agreed)
    before_finish = parameters.clone()
    averager.finish()
    averager.finish()  # a second call does nothing
    group.barrier()
    together_s = [_step_together(group, step_s[group.rank]) for _ in range(8)]
    return {
        "rounds": averager.rounds,
        "bytes_sent": averager.bytes_sent,
        "work_s": sorted(work_s)[len(work_s) // 2],
        "step_s": sorted(step_took_s)[len(step_took_s) // 2],
        "together_s": sorted(together_s)[len(together_s) // 2],
        "control_share": (sum(step_took_s) - sum(work_s)) / sum(work_s),
        "heard": received,
        "agreed": averager.agreed,
        "before_finish": before_finish,
        "parameters": parameters,
    }


def _step_together(group: ProcessGroup, step_s: float) -> float:
    """Seconds of a step with an all-reduce, which averaging stands in for."""
    began = time.perf_counter()
    time.sleep(step_s)
    group.all_reduce(torch.zeros(1000, dtype=torch.float64))
    return time.perf_counter() - began


def replay_at_own_pace(
    group: Group, steps: dict[int, int], logs: list[list[Round]]
) -> tuple[Tensor, list[Round], list[ControlState]]:
    """The same training fed with the logged rounds, at another pace (none); whoever asks for a word is wrong."""
    parameters, received = start_of(group.rank), []
    with averager_of(group, parameters, newest_state=_nobody_asks, replay=logs[group.rank]) as averager:
        for _ in range(steps[group.rank]):
            one_step(parameters, group.rank, averager.agreed.choice)
            averager.control()
            received.append(averager.agreed)
    return parameters, averager.rounds, received


def _nobody_asks() -> ControlState:
    raise AssertionError("a replay asks nobody")


def follow_words(group: Group, changes: int) -> dict[str, Any]:
    """Rank 0 makes a change in every step of its own; all step, by what they hear, until they know of the last one."""
    parameters = start_of(group.rank, 50)

    def asked() -> ControlState:
        return ControlState(min(averager.step, changes), averager.step % 9)

    averager = averager_of(group, parameters, every_s=0.002, newest_state=asked)
    seen, applied = 0, 0
    while averager.agreed.version < changes:
        one_step(parameters, group.rank, averager.agreed.choice)
        averager.control()
        applied += averager.agreed.version - seen
        seen = averager.agreed.version
        time.sleep(0.001)
    averager.finish()
    return {
        "words": [(one.number, one.control_state) for one in averager.taken()],
        "applied": applied,
        "end": parameters,
    }


def pause_and_stop(group: Group) -> dict[str, Any]:
    """A period of a minute: a pause, a shorter period while paused, going on, and a stop, all at rank 0's word.

    Versions: 1 pauses, 2 goes on, 3 stops. Returns the seconds between asking for each and knowing of it, and the log.
    """
    parameters = start_of(group.rank)
    asked_s: dict[int, float] = {}
    knew_s: dict[int, float] = {}
    wanted = [0]

    def ask(version: int) -> None:
        wanted[0] = version
        asked_s[version] = time.monotonic()

    averager = averager_of(group, parameters, every_s=60.0, newest_state=lambda: ControlState(wanted[0], 7 * wanted[0]))
    periods_s = set()
    idle_rounds = paused_step = 0
    while averager.agreed.version < 3:
        time.sleep(0.001)
        knew_s.setdefault(averager.agreed.version, time.monotonic())
        periods_s.add(averager.every_s)
        if averager.agreed.version == 1:
            paused_step = averager.step
            averager.idle()
            idle_rounds = len(averager.rounds)
            if group.rank == 0 and idle_rounds == 1:
                averager.every_s = 0.01
            if group.rank == 0 and idle_rounds == 20:
                averager.every_s = 60.0
                ask(2)
            continue
        one_step(parameters, group.rank, averager.agreed.choice)
        averager.control()
        if group.rank == 0 and averager.step in (30, paused_step + 30):
            ask(1 if averager.agreed.version == 0 else 3)
    knew_s.setdefault(3, time.monotonic())
    step = averager.step
    averager.finish()
    return {
        "asked_s": asked_s,
        "knew_s": knew_s,
        "paused_step": paused_step,
        "periods_s": periods_s,
        "step": step,
        "rounds": averager.taken(),
        "left": averager.taken(),
        "parameters": parameters,
    }


def one_after_another(group: Group) -> dict[str, Any]:
    """Three averagers of one group, as a run has them whose model is built anew; the last without a step between."""
    parameters = start_of(group.rank)
    start, step, logs, ends = ControlState(), 0, [], []
    kept = []
    for number, steps in enumerate((20, 30, 0)):
        word = ControlState(start.version + 1, number)
        averager = averager_for(
            group,
            parameters,
            every_s=0.01,
            newest_state=lambda word=word: word,
            name=f"a{number}",
            start=start,
            step=step,
        )
        with averager:
            for _ in range(steps):
                time.sleep(0.001)
                one_step(parameters, group.rank, averager.agreed.choice)
                averager.control()
        kept.append(group.beside())
        start, step = averager.agreed, averager.step
        logs.append(averager.taken())
        ends.append((averager.agreed, averager.step, parameters.clone()))
    counted = (group.bytes_sent, group.bytes_received)
    same = all(one[0] is kept[0][0] and one[1] is kept[0][1] for one in kept)
    return {"logs": logs, "ends": ends, "counted": counted, "same": same, "own_store": kept[0][1] is not group.store}


def replay_of_another(rank: int, ranks: int, address: str) -> str:
    """Rounds of a run with other steps."""
    group = join_group(rank, ranks, address)
    try:
        with averager_of(
            group, start_of(rank), newest_state=_nobody_asks, limit_s=1.0, replay=[Round(1, 4, 5)]
        ) as averager:
            for _ in range(2 if rank == 0 else 5):
                averager.control()
    except (ConfigError, RunFailedError) as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"rank {rank} followed it")


def pair(group: Group, steps: int) -> dict[str, Any]:
    """Three small cases on one pair of processes, since starting them costs most."""
    results = {
        "by hand": mean_by_hand(group),
        "every step": average_after_every_step(group, steps),
        "early end": blocking_with_an_early_end(group),
    }
    return results


def average_after_every_step(group: ProcessGroup, steps: int) -> tuple[Tensor, Tensor, int]:
    """Plain SGD averaged after every step, and the same with gradients averaged before every step."""
    rank, ranks = group.rank, group.size
    data = start_of(100 + rank, 40).reshape(10, 4)
    averaged, synchronous = start_of(7, 4), start_of(7, 4)
    parts = [averaged[:1], averaged[1:].view(3, 1)]  # a list of tensors is averaged in place
    averager = averager_of(group, parts, every_s=0.0, name="average_after_every_step")
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
    averager = averager_of(group, parameters, every_s=0.0, name="blocking_with_an_early_end")
    with averager:
        for _ in range(2 if rank == 0 else 5):
            parameters += 1.0
            averager.control()
    return len([one for one in averager.rounds if one.weight and not one.is_last]), parameters


def mean_by_hand(group: ProcessGroup) -> tuple[list[float], list[float]]:
    """One round by the book: join at (1 and 3), step by +10 meanwhile, apply, then end."""
    rank = group.rank
    parameters = torch.tensor([1.0, 3.0][rank]).reshape(1)
    averager = averager_of(group, parameters, name="mean_by_hand", replay=[Round(1, 1, 2)])
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
    averager = averager_of(group, parameters, every_s=0.05, limit_s=limit_s)
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


def fail_while_averaging(rank: int, ranks: int, address: str) -> tuple[str, float]:
    """Rank 1 raises inside the block; the others must name its reason. Returns it and when it was known, in seconds.

    The limit is a run's, a minute: beats alone would tell of it after seven seconds.
    """
    group = join_group(rank, ranks, address)
    parameters = start_of(rank)
    try:
        with averager_of(group, parameters, every_s=0.05, limit_s=60.0) as averager:
            for step in range(10_000):
                time.sleep(0.002)
                if rank == 1 and step == 60:
                    raise ValueError("loss is NaN")
                averager.control()
    except (RunFailedError, ValueError) as error:
        raised_s = time.monotonic()
        time.sleep(0.5)  # the connection stays: nobody hears of the failure from the network
        return str(error), raised_s
    raise AssertionError(f"rank {rank} saw no failure")


def lose_a_rank_of_a_run(rank: int, ranks: int, address: str) -> tuple[str, float]:
    """Rank 1 is killed in a round; the other says when it knows, by the network's account alone."""
    group = join_group(rank, ranks, address)
    averager = averager_for(group, start_of(rank), every_s=0.05, newest_state=ControlState, name="run")
    assert isinstance(averager, ModelAverager)
    try:
        for step in range(10_000):
            time.sleep(0.002)
            if rank == 1 and step == 50:
                _kill_self(averager, group.store, in_round=True)
            averager.control()
    except RuntimeError as error:  # as engines catch it, to name the dead
        assert isinstance(error, RunFailedError)
        return str(error), time.monotonic() - int(group.store.get("killed_ns")) * 1e-9
    raise AssertionError(f"rank {rank} saw no failure")
