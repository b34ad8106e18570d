"""A loss that is NaN ends a run, as one that is infinite does: comparisons with NaN are false."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import NotFiniteError
from dtdg_lab.datasets.names import load_for
from dtdg_lab.engine.strategy import StepResult
from dtdg_lab.systems.snapshot_groups.strategy import SnapshotGroupStrategy
from dtdg_lab.testing.training import RecordingRecorder, train_in_memory

SMALL = {"dataset": "growing", "generated_nodes": 40, "generated_edges": 160, "generated_snapshots": 20, "hidden": 4}


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_that_is_no_number_ends_the_run_before_its_step_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: float
) -> None:
    monkeypatch.setattr(SnapshotGroupStrategy, "compute", lambda *_: StepResult(loss, 1, 0))
    config, recorder = RunConfig(system="psg", **SMALL), RecordingRecorder()
    with pytest.raises(NotFiniteError, match=f"the loss is {loss} at step 0"):
        train_in_memory(config, load_for(config), tmp_path / "last.pt", recorder=recorder)
    assert recorder.tables["steps"] == []
