"""Exchanges with known results, alone and in a group that errs."""

from __future__ import annotations

from torch import Tensor

from dtdg_lab.device_check.exchanges import check_exchanges
from dtdg_lab.distributed.group import SoloGroup


class Forgetful(SoloGroup):
    """A group whose sums lack a number, and which gathers nothing."""

    def all_reduce(self, flat: Tensor) -> None:
        flat[7] = -1.0

    def gather_rows(self, rows: Tensor, counts: list[int]) -> Tensor:
        return rows[:0] if rows.shape[1] == 3 else rows


def test_exchanges_of_one_rank_are_exact() -> None:
    assert set(check_exchanges(SoloGroup(), "cpu").values()) == {""}


def test_wrong_numbers_and_shapes_are_found() -> None:
    differences = check_exchanges(Forgetful(), "cpu")
    assert differences["all-reduce"] == "1 of 1,048,576 numbers are wrong"
    assert differences["gather"] == "shape (0, 3) instead of (1, 3)"
    assert differences["all-to-all"] == differences["broadcast"] == ""
