"""Energy of a rank reaches its records and the policy of its cache, with its source."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dtdg_lab.energy.rank_readers import readers_for
from dtdg_lab.testing.training import RecordingRecorder
from dtdg_lab.training import resource_monitor
from dtdg_lab.training.resource_monitor import ResourceMonitor
from tests.energy_doubles import Powercap
from tests.remote_training import remote_config, train_remote


@pytest.mark.parametrize("is_counted", [True, False])
def test_a_cache_policy_gets_measured_joules_or_modelled_ones_and_records_which(
    is_counted: bool, powercap: Powercap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = powercap.root if is_counted else tmp_path / "no powercap"
    monkeypatch.setattr(resource_monitor, "readers_for", partial(readers_for, rapl_root=root))
    with powercap.drawing(50.0):
        # steps of 8 ms or more: the counter moves every millisecond
        trained = train_remote(remote_config("threshold", slow_rank=0, slow_ms=8.0, epochs=3), tmp_path)
    decisions = trained.recorder.tables["cache_decisions"]
    source = "counter" if is_counted else "modelled"
    assert {row["energy_source"] for row in decisions} - {None} == {source}
    assert decisions[-1]["energy_source"] == source
    assert set(trained.recorder.column("steps", "energy_source")) == ({None} if is_counted else {"modelled"})


def test_strategies_that_do_not_read_energy_query_no_counter(
    powercap: Powercap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = remote_config("fixed")
    monkeypatch.setattr(resource_monitor, "readers_for", partial(readers_for, rapl_root=powercap.root))
    monkeypatch.setattr(ResourceMonitor, "readings", lambda monitor: pytest.fail("it was read"))
    train_remote(config, tmp_path)


@pytest.mark.parametrize(("uuid", "device"), [("bbbb-2", "GPU-bbbb-2"), (None, 0)])
def test_a_gpu_is_read_by_its_uuid_since_cuda_may_number_gpus_by_speed(
    uuid: str | None, device: str | int, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = SimpleNamespace() if uuid is None else SimpleNamespace(uuid=uuid)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    asked = []

    def noted(*devices: str, **settings: Any) -> Any:
        asked.append(settings["device_index"])
        return [], []

    monkeypatch.setattr(resource_monitor, "readers_for", noted)
    ResourceMonitor(remote_config(), "cuda:0", 0, 1, RecordingRecorder()).close()
    assert asked == [device]


@pytest.mark.parametrize(("is_shared", "kind"), [(True, "cpu"), (False, "cuda")])
def test_the_energy_of_a_shared_gpu_is_unknown(is_shared: bool, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid="bbbb-2"))
    kinds = []

    def noted(kind: str, **settings: Any) -> Any:
        kinds.append(kind)
        return [], []

    monkeypatch.setattr(resource_monitor, "readers_for", noted)
    recorder = RecordingRecorder()
    monitor = ResourceMonitor(remote_config(), "cuda:0", 0, 2, recorder, shares_gpu=is_shared)
    monitor.close()
    assert kinds == [kind] and any("ranks share GPUs" in note for note in monitor.notes) == is_shared
    (row,) = [row for row in recorder.tables["energy"] if row["device"] == "gpu"]
    assert row["joules"] is None
