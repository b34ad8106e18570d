"""What two ranks exchange, in one process: the other rank has the same as this one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from dtdg_lab.distributed import group as of_group
from dtdg_lab.distributed.all_to_all import NothingPending, PendingRows
from dtdg_lab.distributed.gradients import FlatGradients
from dtdg_lab.distributed.group import ProcessGroup, SoloGroup
from dtdg_lab.engine.exchange.exchanger import Exchanger, Route


class Pair(SoloGroup):
    def __init__(self) -> None:
        super().__init__()
        self.size = 2

    def all_reduce(self, flat: Tensor) -> None:
        flat.mul_(2)

    def start_exchange(
        self, rows: Tensor, send_counts: Sequence[int], receive_counts: Sequence[int], *, tag: Sequence[int] = ()
    ) -> PendingRows:
        return NothingPending(rows)


def test_a_gradient_is_the_mean_over_the_groups_of_all_ranks() -> None:
    parameter = nn.Parameter(torch.zeros(3))
    gradients = FlatGradients([parameter], Pair())
    gradients.gradients.fill_(1.5)
    assert gradients.exchange(version=0, loss_sum=2.0, groups=2).sums() == (4.0, 4)
    assert parameter.grad is not None and parameter.grad.tolist() == [0.75] * 3


def test_rows_on_a_link_are_counted_in_rows_and_bytes() -> None:
    exchanger = Exchanger(Pair())
    exchanger.start(torch.zeros(4, 5), [1, 3], [1, 2], 0, "forward")
    assert exchanger.drain() == [(0, "forward", 1, 3, 3 * 5 * 4)]


def test_gradients_of_a_row_sent_to_several_ranks_add_up() -> None:
    route = Route(torch.tensor([0, 1, 0]), (2, 1), (0, 0), 2)
    assert route.sum_by_row(torch.tensor([[1.0], [2.0], [4.0]]), (2, 1)).tolist() == [[5.0], [2.0]]


def test_an_all_reduce_sends_a_buffer_twice_but_for_the_own_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_group.dist, "all_reduce", lambda flat, group: None)
    group = ProcessGroup(0, 4, None, "cpu")
    group.all_reduce(torch.zeros(6, dtype=torch.float64))
    assert group.bytes_sent == group.bytes_received == 2 * 6 * 8 * 3 // 4
