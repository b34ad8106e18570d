"""Runs of the device check, and what it finds in broken ones."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from outside_family.smoothed import SmoothedGCN
from torch import Tensor

import dtdg_lab as lab
from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.device_check import case_run
from dtdg_lab.device_check.case_run import CaseRun, run_case
from dtdg_lab.device_check.cases import CheckCase, make_case
from dtdg_lab.device_check.verdicts import References, Runs, loss_row, phase_rows
from dtdg_lab.distributed import group
from dtdg_lab.engine.strategy import Step, StepMarks, StepResult
from dtdg_lab.kernels.device_clock import HostClock
from dtdg_lab.systems.single.strategy import SingleStrategy
from dtdg_lab.testing import training
from tests.registrations import registered_apart

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _apart() -> Iterator[None]:
    with registered_apart():
        yield


class Unsteady(SmoothedGCN):
    """A model that computes something else each time it is made."""

    made = itertools.count()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.shift = 1e-3 * next(self.made)

    def spatial(self, layer: int, graph: Any, x: Tensor, state: Any) -> Tensor:
        return graph.gcn(x) * (1.0 + self.shift)


def case_of(model: str, system: str = "single") -> CheckCase:
    return make_case(catalogue.system(system), model)


def runs_of(case: CheckCase) -> Runs:
    return {config.to_json(): run_case(config, "cpu") for config in case.configs}


def test_a_run_has_losses_of_steps_and_evaluations_and_a_clock_that_sums() -> None:
    case = case_of("tgcn")
    runs = runs_of(case)
    assert {len(run.losses) for run in runs.values()} == {4}  # a step, and three splits
    assert all(run.result == "trained" and run.phase_gap < 1e-9 for run in runs.values())
    assert loss_row(case, "cpu", runs, References([case], runs)).state == "ok"


def test_a_model_that_computes_something_else_the_second_time_fails() -> None:
    lab.register(Unsteady, "model", "unsteady")
    case = case_of("unsteady")
    runs = runs_of(case)
    row = loss_row(case, "cpu", runs, References([case], runs))
    assert row.state == "failed" and "from float64 (1e-05 allowed)" in row.value


def test_a_step_that_raises_fails_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SingleStrategy, "compute", Mock(side_effect=ZeroDivisionError("no denominator")))
    run = run_case(case_of("tgcn").configs[0], "cpu")
    assert (run.result, run.reason) == ("failed", "ZeroDivisionError: no denominator")


def test_a_run_on_a_gpu_has_the_clock_of_that_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    devices: list[str] = []
    monkeypatch.setattr(group, "clock_of", lambda device, **_: devices.append(device) or HostClock())
    monkeypatch.setattr(training, "ResourceMonitor", Mock())
    monkeypatch.setattr(training, "assemble_trainer", Mock(side_effect=NotAvailableError("no GPU here")))
    assert run_case(case_of("tgcn").configs[0], "cuda:3") == CaseRun("refused", reason="no GPU here")
    assert devices == ["cuda:3"]


@pytest.mark.parametrize("is_lost", [False, True])
def test_an_error_that_spoils_a_gpu_ends_its_process(monkeypatch: pytest.MonkeyPatch, is_lost: bool) -> None:
    lost = RuntimeError("device-side assert triggered") if is_lost else None
    monkeypatch.setattr(case_run, "train_in_memory", Mock(side_effect=ValueError("bad index")))
    monkeypatch.setattr(torch.cuda, "synchronize", Mock(side_effect=lost))
    config = case_of("tgcn").configs[0]
    if is_lost:
        with pytest.raises(RuntimeError, match="device-side assert"):
            run_case(config, "cuda:0")
    else:
        assert run_case(config, "cuda:0") == CaseRun("failed", reason="ValueError: bad index")


def test_a_model_that_a_system_refuses_is_refused() -> None:
    run = run_case(case_of("gatlstm", "pipad").configs[0], "cpu")
    assert run.result == "refused" and "aggregates by attention" in run.reason


def test_a_strategy_whose_phases_do_not_sum_to_the_step_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    compute = SingleStrategy.compute

    def with_unrecorded_phase(strategy: SingleStrategy, step: Step, marks: StepMarks) -> StepResult:
        time.sleep(0.02)
        marks("shuffle")
        return compute(strategy, step, marks)

    monkeypatch.setattr(SingleStrategy, "compute", with_unrecorded_phase)
    case = case_of("tgcn")
    (row,) = phase_rows([case], "cpu", runs_of(case))
    assert row.state == "failed" and "mark only batch, transfer and exchanges" in row.remedy
