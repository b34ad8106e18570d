"""In a step, the host does not wait for its device: one rank of every kind of system, and every model."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.engine.strategy import Step
from dtdg_lab.testing.training import RecordingRecorder, ScriptedControl
from dtdg_lab.training.assembly import assemble_trainer
from dtdg_lab.training.loop import Trainer
from dtdg_lab.training.resource_monitor import ResourceMonitor
from tests.frozen.short_runs import CASES, NO_LOSSES, NO_RUN, config_of
from tests.simulated_tensors import DEVICE, SimulatedClock, WaitCounter, simulated_device
from tests.thinning import thinned

STEPS = 3  # the run is stopped after the next step
CHOOSES_SIZES = ("dynahb, synchronous",)  # its next size arrives a step later on the device
# a system of each kind of strategy
KINDS = ("psg", "esdg", "hypergraph-vertex", "dbov", "flaredtdg", "dynagraph", "dgl-default")
RUNS = [(case, CASES[case]["model"]) for case in CASES if (case, 1) not in NO_RUN]
OTHER_MODELS = [(case, model) for case in KINDS for model in catalogue.names("models") if model != CASES[case]["model"]]


def train(case: str, model: str, device: str, folder: Path) -> list[float | None]:
    """Return the losses of a run's first steps."""
    config, recorder = config_of(case, 1, model=model), RecordingRecorder()
    monitor = ResourceMonitor(config, "cpu", 0, 1, recorder)
    try:
        assemble_trainer(
            config,
            load_for(config),
            SoloGroup(clock=SimulatedClock() if device == DEVICE else None),
            recorder=recorder,
            control=ScriptedControl({STEPS: {"stop": True}}),
            checkpoint=folder / "last.pt",
            resource_monitor=monitor,
            device=device,
        ).run()
    finally:
        monitor.close()
    return recorder.column("steps", "global_loss")


@pytest.mark.parametrize(
    ("case", "model"), thinned([*RUNS, *OTHER_MODELS], [RUNS.index((case, CASES[case]["model"])) for case in KINDS])
)
def test_the_host_does_not_wait_in_a_step(
    case: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_step, waits = Trainer._train_step, list[Counter[tuple[str, str]]]()
    with simulated_device() as counter:

        def counted(trainer: Trainer, step: Step) -> Any:
            counter.waits.clear()
            loss = train_step(trainer, step)
            waits.append(counter.waits.copy())
            return loss

        monkeypatch.setattr(Trainer, "_train_step", counted)
        try:
            losses = train(case, model, DEVICE, tmp_path)
        except UnsupportedError as refusal:
            if (case, model) in RUNS:
                raise
            pytest.skip(str(refusal))  # not every system takes every model
    steady = waits[len(waits) // 2 :]  # the first steps bring what stays on the device
    assert {wait for step in steady for wait in step} == set()
    if case not in NO_LOSSES and case not in CHOOSES_SIZES:
        monkeypatch.undo()
        expected = train(case, model, "cpu", tmp_path)  # a step less, because a stop arrives a step late on the device
        assert losses[: len(expected)] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("wait", "operation"),
    [
        ("reads a number", lambda x: float(x.sum())),
        ("reads a number", lambda x: bool(x[0, 0] > 0)),
        ("reads a size", lambda x: x[x > 0]),
        ("reads a size", lambda x: x.nonzero()),
        ("reads a size", lambda x: x.masked_select(x > 0)),
        ("reads a size", lambda x: torch.unique(x)),
        ("reads a size", lambda x: torch.repeat_interleave((x[0] > 0).long())),
        ("copies to the host", lambda x: x.cpu()),
        ("copies to the host", lambda x: x.tolist()),
        ("uploads", lambda x: torch.tensor([1.0, 2.0], device=x.device)),
        ("uploads", lambda x: x.new_tensor([1.0])),
        ("uploads", lambda x: torch.zeros(3).to(x.device)),
        ("uploads", lambda x: x[torch.tensor([0, 1])]),
    ],
)
def test_every_kind_of_wait_is_noted(wait: str, operation: Any) -> None:
    with WaitCounter() as counter:
        x = torch.randn(4, 3, device=DEVICE)
        operation(x)
        assert {what for what, _ in counter.waits} == {wait}


def test_computing_on_the_device_is_no_wait_and_gives_the_cpu_s_bits() -> None:
    model, x = torch.nn.Linear(3, 2), torch.randn(4, 3)

    def train(model: torch.nn.Module, x: torch.Tensor) -> None:
        optimizer = torch.optim.Adam(model.parameters())
        model(x).tanh().sum().backward()
        optimizer.step()

    with WaitCounter() as counter:
        there, x_there = deepcopy(model).to(DEVICE), x.to(DEVICE)
        counter.waits.clear()
        train(there, x_there)
        assert not counter.waits
        trained = [parameter.detach().cpu() for parameter in there.parameters()]
    train(model, x)
    assert all(map(torch.equal, trained, model.parameters()))
