"""Runs that are steered in this process: requests made once a run has made some steps, as a user would make them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from dtdg_lab.cluster.local import train
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.testing.training import RecordingRecorder, Script, ScriptedControl, Trained
from dtdg_lab.training import control
from dtdg_lab.training.assembly import assemble_trainer
from dtdg_lab.training.control import LocalControl
from dtdg_lab.training.recording import FinishedStep, StepRecorder
from dtdg_lab.training.resource_monitor import ResourceMonitor
from tests import factories

SMALL = {**factories.SMALL, "generated_nodes": 30, "generated_edges": 120, "hidden": 5, "epochs": 3}
NOTHING: Script = MappingProxyType({})
LATER_S = 0.05  # after a pause has been asked for, what comes with it


def small(system: str, **settings: Any) -> RunConfig:
    """A run of this system that takes a second."""
    parts = {} if system == "single" else {"parts": 2}
    return RunConfig(system=system, **{**SMALL, **parts, **settings})


def steered(config: RunConfig, folder: Path, script: Mapping[int, Any]) -> StoredRun:
    """Train in this process, and ask for things.

    Args:
        config: of one rank.
        folder: of runs.
        script: steps made -> a request, which rules after one more step; or several, the first of which pauses the run,
            so that the others come in the pause.
    """
    made: list[LocalControl] = []
    step = StepRecorder.step

    class Kept(LocalControl):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    def noted(self: StepRecorder, finished: FinishedStep) -> None:
        step(self, finished)
        asked = script.get(finished.position.step + 1)
        if isinstance(asked, Mapping):
            made[0].request(dict(asked))
        elif asked is not None:
            made[0].request(asked[0])
            threading.Timer(LATER_S, lambda: [made[0].request(each) for each in asked[1:]]).start()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control, "LocalControl", Kept)
        patch.setattr(StepRecorder, "step", noted)
        return train(config, runs_dir=folder, progress=False)


def trained(config: RunConfig, checkpoint: Path, *, script: Script = NOTHING, begin: Path | None = None) -> Trained:
    """Train in memory, from a checkpoint of another run where one is given."""
    recorder, group = RecordingRecorder(), SoloGroup()
    resource_monitor = ResourceMonitor(config, "cpu", 0, 1, recorder)
    try:
        trainer = assemble_trainer(
            config,
            load_for(config),
            group,
            recorder=recorder,
            control=ScriptedControl(script),
            checkpoint=checkpoint,
            resource_monitor=resource_monitor,
            begin=begin,
        )
        outcome = trainer.run()
    finally:
        resource_monitor.close()
    parameters = {name: of.detach().clone() for name, of in trainer.components.model.named_parameters()}
    return Trained(
        outcome, recorder, parameters, trainer.components.optimizer.state_dict(), trainer.live_settings.config
    )


def losses(run: StoredRun) -> dict[tuple[int, int], Any]:
    """(rank, step) -> all that must repeat of a step."""
    table = run.table("steps")
    return {(row.rank, row.step): (row.epoch, row.iteration, row.loss, row.global_loss) for row in table.itertuples()}


def scores(run: StoredRun) -> dict[tuple[int, str], Any]:
    """(step, part of the sequence) -> its loss."""
    return {(row.step, row.split): row.loss for row in run.table("evaluations").itertuples()}


def events(run: StoredRun, kind: str) -> list[tuple[int, dict[str, Any]]]:
    """Steps and data of rank 0's events of a kind."""
    return [(event["step"], event["data"]) for event in run.events if event["kind"] == kind and event["rank"] == 0]
