"""Waits for the device, with torch's warnings and events in place of a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import dtdg_lab
from dtdg_lab.config import catalogue
from dtdg_lab.device_check import device_stops
from dtdg_lab.device_check.cases import make_case
from dtdg_lab.device_check.device_stops import DeviceStops, find_stops
from dtdg_lab.engine.strategy import Step, StepMarks, StepResult
from dtdg_lab.kernels.device_clock import WaitingClock, recorded_event
from dtdg_lab.kernels.uploads import CudaCopies
from dtdg_lab.systems.single.strategy import SingleStrategy
from dtdg_lab.training.clock import PhaseClock
from dtdg_lab.training.recording import StepRecorder

pytestmark = pytest.mark.usefixtures("one_thread")
CONFIG = make_case(catalogue.system("single"), "tgcn").configs[0]
STEPS = 4


class PretendEvent:
    """An event of a device that has always passed."""

    def __init__(self, **_: Any) -> None:
        self.passed = 0

    def record(self, stream: Any = None) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        self.passed += 1


@pytest.fixture(autouse=True)
def modes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The debug modes that were set, on a machine whose device is the CPU."""
    modes: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "Event", PretendEvent)
    yield modes


def call_in_steps(monkeypatch: pytest.MonkeyPatch, wait: Callable[[int], None]) -> None:
    """Let each step of the strategy call a function with the number of the step."""
    compute, numbers = SingleStrategy.compute, iter(range(100))

    def waits(strategy: SingleStrategy, step: Step, marks: StepMarks) -> StepResult:
        if isinstance(marks, PhaseClock):  # not a probe of the memory
            wait(next(numbers))
        return compute(strategy, step, marks)

    monkeypatch.setattr(SingleStrategy, "compute", waits)


def files_of(stops: DeviceStops) -> list[str]:
    return [place.partition(":")[0] for place in stops.places]


def test_a_step_that_does_not_wait_has_no_stops(modes: list[str]) -> None:
    assert find_stops(CONFIG, "cpu") == DeviceStops()
    assert modes == ["warn", "default"] * 2


def test_waits_of_later_steps_are_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(number: int) -> None:
        if number > 1:
            warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
            torch.cuda.synchronize()

    call_in_steps(monkeypatch, wait)
    assert files_of(find_stops(CONFIG, "cpu")) == ["test_device_stops.py"] * 2


def test_a_wait_in_the_first_steps_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    call_in_steps(monkeypatch, lambda number: torch.cuda.synchronize() if number < 2 else None)
    assert find_stops(CONFIG, "cpu").places == ()


def test_waits_in_the_trainer_are_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    record = StepRecorder.step

    def waits(recorder: StepRecorder, finished: Any) -> None:
        record(recorder, finished)
        WaitingClock("cuda:0").stamp()

    monkeypatch.setattr(StepRecorder, "step", waits)
    assert files_of(find_stops(CONFIG, "cpu")) == ["kernels/device_clock.py"]


@pytest.mark.parametrize("steps_ago", [0, 1])
def test_only_an_event_of_the_same_step_is_waited_for(monkeypatch: pytest.MonkeyPatch, steps_ago: int) -> None:
    events: list[Any] = []

    def wait(number: int) -> None:
        events.append(recorded_event(None))  # type: ignore[arg-type]
        if number >= steps_ago:
            events[number - steps_ago].synchronize()

    call_in_steps(monkeypatch, wait)
    assert files_of(find_stops(CONFIG, "cpu")) == ([] if steps_ago else ["test_device_stops.py"])
    assert [event.passed for event in events] == [1] * (len(events) - steps_ago) + [0] * steps_ago


def test_a_full_buffer_of_uploads_may_wait_for_its_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    copies, events = object.__new__(CudaCopies), list[Any]()

    def wait(number: int) -> None:
        events.append(recorded_event(None))  # type: ignore[arg-type]
        copies.wait_here(events[-1])

    call_in_steps(monkeypatch, wait)
    assert find_stops(CONFIG, "cpu").places == ()
    assert [event.passed for event in events] == [1] * STEPS


def test_a_package_within_pythons_own_folder_is_not_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    above = Path(dtdg_lab.__file__).parents[1]
    monkeypatch.setattr(device_stops, "_FOREIGN", (*device_stops._FOREIGN, above))
    call_in_steps(monkeypatch, lambda number: WaitingClock("cuda:0").stamp() and None)
    assert files_of(find_stops(CONFIG, "cpu")) == ["kernels/device_clock.py"]


def test_a_model_that_a_system_refuses_has_a_reason() -> None:
    stops = find_stops(make_case(catalogue.system("pipad"), "gatlstm").configs[1], "cpu")
    assert stops.places == () and "aggregates by attention" in stops.reason


def test_the_mode_is_reset_after_an_error(monkeypatch: pytest.MonkeyPatch, modes: list[str]) -> None:
    def fail(number: int) -> None:
        if number == 2:
            raise RuntimeError("device lost")

    call_in_steps(monkeypatch, fail)
    with pytest.raises(RuntimeError, match="device lost"):
        find_stops(CONFIG, "cpu")
    assert modes == ["warn", "default"]
