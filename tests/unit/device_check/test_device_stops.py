"""Waits for the device, with torch's warnings in place of a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch

from dtdg_lab.config import catalogue
from dtdg_lab.device_check import device_stops
from dtdg_lab.device_check.cases import make_case
from dtdg_lab.device_check.device_stops import find_stops
from dtdg_lab.engine.strategy import Step, StepMarks, StepResult
from dtdg_lab.systems.single.strategy import SingleStrategy
from dtdg_lab.training.build import build

pytestmark = pytest.mark.usefixtures("one_thread")
CONFIG = make_case(catalogue.system("single"), "tgcn").configs[0]


@pytest.fixture(autouse=True)
def modes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The debug modes that were set, on a machine whose device is the CPU."""
    modes: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(device_stops, "build", lambda config, *args, **_: build(config.replace(device="cpu"), *args))
    yield modes


def test_a_step_that_does_not_wait_has_no_stops(modes: list[str]) -> None:
    assert find_stops(CONFIG, "cpu") == ()
    assert modes == ["warn", "default"]


def test_waits_of_later_steps_are_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    compute, calls = SingleStrategy.compute, []

    def waits(strategy: SingleStrategy, step: Step, marks: StepMarks) -> StepResult:
        calls.append(step)
        warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        if len(calls) > 1:
            torch.cuda.synchronize()
        return compute(strategy, step, marks)

    monkeypatch.setattr(SingleStrategy, "compute", waits)
    with pytest.warns(UserWarning, match="synchronizing"):  # of the first step, which is not watched
        stops = find_stops(CONFIG, "cpu")
    assert len(calls) == 2
    assert [place.partition(":")[0] for place in stops] == ["test_device_stops.py"] * 2


def test_the_mode_is_reset_after_an_error(monkeypatch: pytest.MonkeyPatch, modes: list[str]) -> None:
    compute, calls = SingleStrategy.compute, []

    def fails(strategy: SingleStrategy, step: Step, marks: StepMarks) -> StepResult:
        calls.append(step)
        if len(calls) > 1:
            raise RuntimeError("device lost")
        return compute(strategy, step, marks)

    monkeypatch.setattr(SingleStrategy, "compute", fails)
    with pytest.raises(RuntimeError, match="device lost"):
        find_stops(CONFIG, "cpu")
    assert modes == ["warn", "default"]
