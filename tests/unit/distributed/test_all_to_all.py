"""Exchanges of one rank with itself, and what is refused before anything is sent."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.core.plans import HaloPlan
from dtdg_lab.distributed.all_to_all import NO_TIME, GroupMembers, start_rows
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.engine.exchange.exchanger import Exchanger, Route
from dtdg_lab.kernels.device_clock import HostClock


def plan_of(*, send: list[int], send_counts: list[int], receive_counts: list[int], part: int = 0) -> HaloPlan:
    return HaloPlan(part, np.array(send), np.array(send_counts), np.array(receive_counts))


NOBODY = plan_of(send=[], send_counts=[0], receive_counts=[0])


def test_one_rank_pulls_nothing_and_marks_nothing() -> None:
    exchanger, x = Exchanger(SoloGroup()), torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    rows = exchanger.pull(x, NOBODY, 0)
    torch.cat([x, rows]).sum().backward()
    assert rows.shape == (0, 3)
    assert rows.dtype == torch.float64
    assert x.grad is not None
    assert torch.equal(x.grad, torch.ones_like(x))
    assert exchanger.drain() == []


def test_one_rank_gathers_its_own_rows() -> None:
    group, x = SoloGroup(), torch.randn(4, 2, requires_grad=True)
    assert torch.equal(Exchanger(group).gather(x, [4]), x)
    assert (group.bytes_sent, group.bytes_received) == (0, 0)


def test_one_rank_has_nothing_in_flight() -> None:
    group, rows = SoloGroup(), torch.randn(3, 2, requires_grad=True)
    pending = group.start_exchange(rows, [3], [3], tag=(1, 2))
    arrived = pending.wait()
    assert torch.equal(arrived.rows, rows)
    assert not arrived.rows.requires_grad
    assert arrived.times() == NO_TIME
    assert pending.wait().rows is arrived.rows
    assert (group.bytes_sent, group.bytes_received) == (0, 0)


def test_one_rank_splits_into_itself() -> None:
    group = SoloGroup()
    assert group.split(1) == (group, group)
    for row_ranks in (0, 2, -1):
        with pytest.raises(PlanError, match=rf"1 rank\(s\).*row_ranks={row_ranks}.*divisor of 1"):
            group.split(row_ranks)


def test_one_rank_broadcasts_to_itself() -> None:
    group, array = SoloGroup(), np.arange(6).reshape(2, 3)
    got = group.broadcast_array(array)
    got[0, 0] = 7  # a copy
    assert array[0, 0] == 0
    assert group.broadcast_text("träge") == "träge"
    with pytest.raises(ConfigError, match="NoneType"):
        group.broadcast_array(None)
    with pytest.raises(ConfigError, match=r"float32 of shape \(2,\).*uint8, int32, int64, float64"):
        group.broadcast_array(np.zeros(2, dtype=np.float32))


@pytest.mark.parametrize(
    ("send_counts", "receive_counts", "reason"),
    [
        ([3, 0], [3, 0], "2 counts to send"),
        ([2], [2], "do not fit 3 rows"),
        ([3], [2], "sends itself 3 rows but expects 2"),
        ([3], [-1], "none be below 0"),
    ],
)
def test_counts_that_do_not_fit_are_refused(send_counts: list[int], receive_counts: list[int], reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        SoloGroup().start_exchange(torch.zeros(3, 2), send_counts, receive_counts)


def test_numbers_of_two_bytes_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(PlanError, match=r"torch\.float16.*float32 or float64"):
        start_rows(torch.zeros(1, 2, dtype=torch.float16), [1], [1], GroupMembers(0, [0], lambda: 0, HostClock()))


def test_a_plan_for_other_ranks_or_rows_is_refused() -> None:
    two = plan_of(send=[1], send_counts=[0, 1], receive_counts=[0, 0])
    with pytest.raises(PlanError, match=r"2 part\(s\).*1 rank\(s\).*on_ranks"):
        Exchanger(SoloGroup()).pull(torch.zeros(3, 2), two, 0)
    with pytest.raises(PlanError, match=r"2 or more own rows.*1 own rows"):
        Exchanger(SoloGroup()).pull(torch.zeros(1, 2), two, 0)


def test_counts_of_a_gather_that_do_not_fit_are_refused() -> None:
    for counts in ([2], [3, 1], []):
        with pytest.raises(PlanError, match="rank 0 has 3 rows"):
            Exchanger(SoloGroup()).gather(torch.zeros(3, 2), counts)


def test_a_route_is_a_copy_of_its_plan() -> None:
    route = Route.of(plan_of(send=[4, 0], send_counts=[0, 2], receive_counts=[0, 3]))
    assert route.send.tolist() == [4, 0]
    assert (route.send_counts, route.receive_counts, route.least_rows) == ((0, 2), (0, 3), 5)
    assert Route.of(NOBODY).least_rows == 0
