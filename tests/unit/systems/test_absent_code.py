"""Families answer for runs whose code only a folder describes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from outside_family.smoothed import SmoothedGCN

from dtdg_lab.config.extensions import add_absent, extension_of
from dtdg_lab.config.options import Option
from dtdg_lab.config.registration import REGISTERED, register
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.dashboard.choices import is_generated
from dtdg_lab.dashboard.pages.data import is_here, why_not
from dtdg_lab.datasets.generators.synthetic import Growing
from dtdg_lab.studies.same_losses import same_losses
from dtdg_lab.systems.snapshot_groups.schedulers.base import scheduler
from tests.registrations import registered_apart

KEEPS = Option(name="keeps", owner="models", kind=int, default=0, low=0, high=1, meaning="Whether nodes have a state.")


class Keeping(SmoothedGCN):
    """A model that remembers only where an option says so."""

    def __init__(self, *sizes: int, keeps: int = 0, **named: Any) -> None:
        super().__init__(*sizes, **named)
        self.remembers = keeps

    def step(self, layer: int, x: Any, *state: Any) -> Any:
        """Add the state, if there is any."""
        h = self.convolve[layer](x)
        return (h + state[0], h + state[0]) if state else (h,)


@scheduler
def in_order(problem: Any) -> Schedule:
    """Schedule one group after another."""
    rows = [((group,), *((),) * (problem.ranks - 1)) for group in range(problem.groups)]
    return Schedule(tuple(rows), problem.groups)


RING = Growing(name="ring")


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    with registered_apart():
        yield


def add_described(*what: Any, **more: Any) -> None:
    """Register something elsewhere, and let this process know its description."""
    with registered_apart():
        register(*what, **more)
        described = [extension_of(record) for record in REGISTERED]
    add_absent(described)


def test_a_run_of_decayed_windows_opens_without_its_model() -> None:
    add_described(SmoothedGCN, "model", "smoothed-elsewhere")
    assert RunConfig(system="flaredtdg", model="smoothed-elsewhere", loss_at="last").model == "smoothed-elsewhere"


def test_decayed_windows_ask_what_a_model_remembers_with_its_options() -> None:
    register(Keeping, "model", "keeping", options=[KEEPS])
    config = RunConfig(system="flaredtdg", model="keeping", loss_at="last", keeps=1)
    with pytest.raises(UnsupportedError, match="carries no state"):
        config.replace(keeps=0)


def test_runs_of_an_absent_scheduler_are_not_said_to_have_the_same_losses() -> None:
    add_described(in_order, "scheduler")
    config = RunConfig(system="psg", dataset="growing", scheduler="in_order", ranks=2)
    assert same_losses(config) is None


def test_the_dashboard_says_of_an_absent_data_set_that_it_is_not_registered() -> None:
    add_described(RING, "data set", "ring")
    config = RunConfig(dataset="ring")
    assert not is_generated("ring") and not is_here(config) and why_not(config) == "not registered here"
