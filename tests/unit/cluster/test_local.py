"""Training in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from dtdg_lab.cluster import local
from dtdg_lab.cluster.devices import DeviceReport
from dtdg_lab.cluster.local import train
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunFailedError
from dtdg_lab.runs.stored_run import open_run
from dtdg_lab.systems.snapshot_groups.strategy import SnapshotGroupStrategy

CONFIG = RunConfig(system="psg", dataset="growing", generated_nodes=60, generated_edges=120, epochs=1)


def test_a_lack_of_memory_is_explained_with_a_setting_that_lowers_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compute(self: SnapshotGroupStrategy, *given: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(SnapshotGroupStrategy, "compute", compute)
    with pytest.raises(RunFailedError, match=r"CUDA out of memory\. group_window=\d lowers the predicted memory"):
        train(CONFIG, runs_dir=tmp_path, progress=False)
    (folder,) = tmp_path.iterdir()
    summary = open_run(folder).summary
    assert summary["status"] == "failed" and "lab.train(config.replace(group_window=" in summary["reason"]


def test_a_run_that_is_interrupted_by_hand_is_stored_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compute, steps = SnapshotGroupStrategy.compute, iter(range(9))

    def interrupted(self: SnapshotGroupStrategy, *given: Any) -> Any:
        if next(steps) == 2:
            raise KeyboardInterrupt
        return compute(self, *given)

    monkeypatch.setattr(SnapshotGroupStrategy, "compute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(CONFIG, runs_dir=tmp_path, progress=False)
    (folder,) = tmp_path.iterdir()
    summary = open_run(folder).summary
    assert summary["status"] == "interrupted" and summary["reason"].startswith(
        "interrupted by SIGINT at step 2: its process"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_requested_gpu_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"device='cuda' needs GPUs, but the machine has 0 usable GPUs for 1 rank"):
        train(CONFIG.replace(device="cuda"), runs_dir=tmp_path, progress=False)


def test_a_run_on_the_cpu_beside_gpus_that_torch_cannot_use_warns_and_notes_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unusable = DeviceReport("a", "A processor", 1 << 30, problem="the driver is too old.")
    monkeypatch.setattr(local, "report_devices", lambda: unusable)
    with pytest.warns(UserWarning, match="Ranks compute on CPUs, since .* the driver is too old"):
        run = train(CONFIG, runs_dir=tmp_path, progress=False)
    assert "the driver is too old" in json.loads((run.path / "environment.json").read_text())["device_note"]


def test_a_run_that_asks_for_the_cpu_looks_for_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "report_devices", mock.Mock(side_effect=AssertionError("it was asked")))
    assert train(CONFIG.replace(device="cpu"), runs_dir=tmp_path, progress=False).status == "finished"
