"""Counts of a registered model follow its code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from outside_family.smoothed import SmoothedGCN
from torch import nn

from dtdg_lab.config.registration import register
from dtdg_lab.systems.workload import parameters
from tests.registrations import registered_apart


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    with registered_apart():
        yield


def test_parameters_of_a_cell_that_runs_again_are_counted_again() -> None:
    counts = []
    for extra in (1, 3):

        class Mine(SmoothedGCN):
            def __init__(self, *sizes: int, extra: int = extra, **named: Any) -> None:
                super().__init__(*sizes, **named)
                self.extra = nn.Parameter(torch.zeros(extra))

        Mine.__module__ = "__main__"
        register(Mine, "model", "mine")
        counts.append(parameters("mine", (2, 4, 1, 1), ()))
    assert counts[1] - counts[0] == 2


def test_counting_parameters_draws_no_random_number() -> None:
    before = torch.random.get_rng_state()
    parameters("tgcn", (2, 5, 1, 1), ())
    assert torch.equal(before, torch.random.get_rng_state())
