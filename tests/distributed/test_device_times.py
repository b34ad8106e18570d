"""Times of steps on simulated devices whose work and collectives take known seconds, on two processes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import RunFailedError
from dtdg_lab.core.plans import HaloPlan
from dtdg_lab.distributed.averager import NO_CONTROL
from dtdg_lab.distributed.gradients import FlatGradients
from dtdg_lab.distributed.group import ProcessGroup
from dtdg_lab.distributed.model_averaging import ModelAverager
from dtdg_lab.engine.exchange.exchanger import Exchanger, PendingExchange, Route, RowArrival, RowDeparture
from dtdg_lab.engine.exchange.overlap import SpatialTasks
from dtdg_lab.engine.exchange.pausable import pause
from dtdg_lab.models.base import make_model
from dtdg_lab.models.tgcn import TGCN
from dtdg_lab.testing.processes import join_group, run_ranks
from dtdg_lab.testing.simulated_device import SimulatedDevice
from dtdg_lab.training.build import build
from dtdg_lab.training.clock import PhaseClock, seconds_by_phase
from tests.distributed.groups import take_step
from tests.factories import small_config, small_graph

HEADER_S, ROWS_S = 0.0, 0.1  # a small collective tells that all have begun; then rows travel
OTHER = (1, 0)  # the other of two ranks


def on_devices(function: Callable[..., Any], *given: Any, collectives_s: tuple[float, ...] = (HEADER_S, ROWS_S)) -> Any:
    """Return what ``function(group, device, *given)`` returns on two ranks, each with a simulated device."""
    return run_ranks(_on_device, 2, function, collectives_s, *given)


def _on_device(
    rank: int, ranks: int, address: str, function: Callable[..., Any], collectives_s: Any, *given: Any
) -> Any:
    def last_begins(began_s: float) -> float:
        last = torch.tensor([began_s], dtype=torch.float64)
        dist.all_reduce(last, op=dist.ReduceOp.MAX)
        return float(last)

    device = SimulatedDevice(collectives_s, last_begins=last_begins)
    group = join_group(rank, ranks, address, clock=device)
    result = function(group, device, *given)
    group.barrier()
    group.close()
    return result


def _to_the_other(rank: int, rows: int = 2) -> Route:
    counts = [0, 0]
    counts[OTHER[rank]] = rows
    return Route(torch.arange(rows), tuple(counts), tuple(counts), rows)


def _halo_step(group: ProcessGroup, device: SimulatedDevice, computes_s: tuple[float, float], beside_s: float) -> Any:
    """A pull of two rows: own work before it, and work beside it that needs no rows."""
    clock, exchanger = PhaseClock(device), Exchanger(group)
    exchanger.marks = clock
    clock.start()
    device.compute(computes_s[group.rank])
    sent = torch.full((2, 3), float(group.rank))
    started = exchanger.start(sent, *[_to_the_other(group.rank).send_counts] * 2, 0, "forward")
    device.compute(beside_s)
    rows = exchanger.finish(started).rows
    device.compute(0.01)
    clock("compute")
    waits = device.waits
    seconds = seconds_by_phase(clock.intervals())
    ((*_, exchanges, in_flight_s, exposed_s),) = exchanger.times.drain()()
    return rows.unique().tolist(), waits, seconds, (exchanges, in_flight_s, exposed_s)


def test_an_exchange_appears_as_waiting_and_communication_and_computing_as_it_was() -> None:
    fast, slow = on_devices(_halo_step, (0.03, 0.05), 0.0)
    for rank, (rows, waits, *_) in enumerate((fast, slow)):
        assert rows == [OTHER[rank]]
        assert waits == 0, "nothing in a step waits for the device"
    assert fast[2] == pytest.approx({"compute": 0.04, "wait": 0.02, "communicate": 0.1}, abs=1e-6)
    assert slow[2] == pytest.approx({"compute": 0.06, "wait": 0.0, "communicate": 0.1}, abs=1e-6)
    assert fast[3] == pytest.approx((1, 0.12, 0.12), abs=1e-6)
    assert slow[3] == pytest.approx((1, 0.1, 0.1), abs=1e-6)


def test_work_beside_an_exchange_hides_as_much_of_it() -> None:
    fast, slow = on_devices(_halo_step, (0.03, 0.05), 0.08)
    assert fast[2] == pytest.approx({"compute": 0.12, "wait": 0.0, "communicate": 0.04}, abs=1e-6)
    assert slow[2] == pytest.approx({"compute": 0.14, "wait": 0.0, "communicate": 0.02}, abs=1e-6)
    assert fast[3] == pytest.approx((1, 0.12, 0.04), abs=1e-6)
    assert slow[3] == pytest.approx((1, 0.1, 0.02), abs=1e-6)


def _sums_of_gradients(group: ProcessGroup, device: SimulatedDevice) -> Any:
    """Three steps of 20 and 50 ms; the control values of a step are known in the next."""
    parameter = nn.Parameter(torch.zeros(3))
    gradients, clock = FlatGradients([parameter], group), PhaseClock(device)
    agreed, means, seconds, waits, before = [], [], [], [], None
    for step in range(3):
        clock.start()
        gradients.zero()
        gradients.gradients.fill_(1.0 + group.rank)
        device.compute((0.02, 0.05)[group.rank])
        clock("compute")
        loss = torch.tensor(2.0 * (step + 1), dtype=torch.float64)
        stops = group.rank == 1 and step == 1
        exchanged = gradients.exchange(version=step + 1, loss_sum=loss, groups=1, stops=stops)
        clock.exchange(exchanged.times)
        clock("update")
        waits.append(device.waits)
        agreed.append(exchanged.agreed)
        means.append(parameter.grad.tolist())
        if before is not None:
            seconds.append(seconds_by_phase(before[0].intervals(device)) | {"sums": before[1].sums()})
        before = (clock.phases, exchanged)
    return agreed, means, seconds, waits


def test_a_sum_of_gradients_is_timed_by_the_device_and_its_control_values_come_a_step_later() -> None:
    for rank, (agreed, means, seconds, waits) in enumerate(on_devices(_sums_of_gradients)):
        assert agreed == [None, (1, 0, False), (2, 0, True)]
        assert means == [[1.5] * 3] * 3
        assert waits[0] == 0 and waits[-1] <= 4, "the host waits for the step before only"
        for step, measured in enumerate(seconds):
            assert measured.pop("sums") == (4.0 * (step + 1), 2)
            wait_s = (0.03, 0.0)[rank]
            wanted = {"compute": 0.05 - wait_s, "wait": wait_s, "communicate": 0.1, "update": 0.0}
            assert measured == pytest.approx(wanted, abs=1e-6)


def _averaged_steps(group: ProcessGroup, device: SimulatedDevice, steps: tuple[int, int]) -> list[float]:
    """Seconds of steps of 10 ms on rank 0 and 100 ms on rank 1, which average beside them."""
    parameter, clock = torch.zeros(4), PhaseClock(device)
    torch_group, store = group.second_group()
    averager = ModelAverager(
        parameter,
        group=torch_group,
        store=store,
        every_s=0.02,
        limit_s=60.0,
        newest_state=lambda: NO_CONTROL,
        clock=device,
    )
    seconds = []
    for _ in range(steps[group.rank]):
        clock.start()
        device.compute((0.01, 0.1)[group.rank])
        clock("compute")
        clock("update")
        averager.control()
        clock("communicate")
        seconds.append(sum(seconds_by_phase(clock.intervals()).values()))
        time.sleep(0.002 * (1, 10)[group.rank])
    averager.finish()
    assert len(averager.applied_rounds()) > 1
    return seconds


def test_a_fast_rank_keeps_its_pace_while_a_tenfold_straggler_averages_with_it() -> None:
    fast, slow = on_devices(_averaged_steps, (80, 8), collectives_s=(0.05,))
    assert max(fast) <= 1.1 * 0.01
    assert max(slow) <= 1.1 * 0.1


def _overlapped(group: ProcessGroup, device: SimulatedDevice, order: list[int]) -> Any:
    """Two windows' snapshots: 20 ms before a pull and 30 ms after it, each."""
    exchanger, clock = Exchanger(group), PhaseClock(device)
    exchanger.marks = clock
    tasks = SpatialTasks(make_model(TGCN, 2, 3, 1, outputs=1, seed=0), device)

    def part() -> Tensor:
        device.compute(0.02)
        flight = PendingExchange(exchanger, _to_the_other(group.rank), 0)
        departed = RowDeparture.apply(torch.ones(2, 2, requires_grad=True), flight)
        pause(flight)
        rows: Tensor = RowArrival.apply(departed, flight)
        device.compute(0.03)
        return rows

    clock.start()
    done = tasks.run([part, part], order, learning=True)
    clock("compute")
    waits = device.waits
    return [task.stamps().seconds(device) for task in done], seconds_by_phase(clock.intervals()), waits


@pytest.mark.parametrize(
    ("order", "exposed_s"),
    [([0, 0, 1, 1], 0.2), ([0, 1, 0, 1], 0.08 + 0.07)],
    ids=["in turn", "overlapped"],
)
def test_overlapped_snapshots_are_timed_by_stretches_and_flights(order: list[int], exposed_s: float) -> None:
    for tasks, seconds, waits in on_devices(_overlapped, order):
        assert waits == 0
        for compute_s, in_flight_s in tasks:
            assert compute_s == pytest.approx([0.02, 0.03], abs=1e-6)
            assert len(in_flight_s) == 1 and in_flight_s[0] >= 0.1 - 1e-6
        assert seconds["compute"] == pytest.approx(0.1, abs=1e-6)
        assert seconds["wait"] + seconds["communicate"] == pytest.approx(exposed_s, abs=1e-6)


def _mismatch(group: ProcessGroup, device: SimulatedDevice) -> str:
    exchanger, clock = Exchanger(group), PhaseClock(device)
    exchanger.marks = clock
    clock.start()
    exchanger.finish(exchanger.start(torch.zeros(0, 3), [0, 0], [0, 0], group.rank, "forward"))
    clock("compute")
    with pytest.raises(RunFailedError) as failed:
        clock.intervals()
    assert math.isfinite(device.host_s)
    return str(failed.value)


def test_ranks_in_different_exchanges_are_refused_although_the_exchange_never_ends() -> None:
    for message in on_devices(_mismatch, collectives_s=(HEADER_S, math.inf)):
        assert "All ranks must make the same exchanges" in message


def test_a_halo_plan_gives_the_same_rows_and_gradients_on_a_device_as_on_the_cpu() -> None:
    queued, at_once = (run_ranks(_pulled, 2, is_queued) for is_queued in (True, False))
    assert queued == at_once


def _pulled(rank: int, ranks: int, address: str, is_queued: bool) -> Any:
    group = join_group(rank, ranks, address, clock=SimulatedDevice() if is_queued else None)
    x = torch.arange(8.0).reshape(4, 2).add(10 * rank).requires_grad_()
    send = torch.tensor([0, 2, 3]).numpy()
    counts = torch.tensor([[0, 3], [3, 0]]).numpy()[rank]
    rows = Exchanger(group).pull(x, HaloPlan(rank, send, counts, counts), 0)
    (rows.square().sum() + x.sum()).backward()
    result = rows.tolist(), x.grad.tolist()
    group.barrier()
    group.close()
    return result


TRAINED = [
    {"system": "adgnn-t"},
    {"system": "flaredtdg", "chunker": "hash"},
    {"system": "flaredtdg", "chunker": "hash", "model": "evolvegcn-h"},
    {"system": "esdg", "partitioner": None},
    {"system": "psg", "partitioner": None},
]


@pytest.mark.parametrize("settings", TRAINED, ids=lambda settings: "-".join(map(str, settings.values())))
def test_queued_steps_on_two_ranks_have_the_bits_of_steps_that_wait(settings: dict[str, Any]) -> None:
    config = small_config(**{"parts": 2, "ranks": 2, "partitioner": "round_robin", **settings})
    queued, at_once = (run_ranks(_trained, 2, config, is_queued) for is_queued in (True, False))
    assert queued == at_once


def _trained(
    rank: int, ranks: int, address: str, config: RunConfig, is_queued: bool
) -> list[tuple[float, list[float]]]:
    group = join_group(rank, ranks, address, clock=SimulatedDevice() if is_queued else None)
    built, steps = build(config, small_graph(), group), []
    for work in built.strategy.epoch(0):
        step = take_step(built, group, work)
        assert all(row.exposed_s <= row.in_flight_s for row in step.rows.get("exchanges", []))
        steps.append((step.loss, step.gradient.tolist()))
    built.close()
    group.barrier()
    group.close()
    return steps
