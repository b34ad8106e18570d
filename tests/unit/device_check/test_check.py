"""The whole device check: on the CPU, and with a pretended GPU."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from dtdg_lab.cli import main
from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import NotAvailableError, UnknownNameError
from dtdg_lab.device_check import check
from dtdg_lab.device_check.case_run import CaseRun
from dtdg_lab.device_check.check import check_devices
from dtdg_lab.device_check.energy_use import EnergyUse
from dtdg_lab.device_check.peak_memory import PeakMemory
from dtdg_lab.device_check.units import Unit


def test_some_systems_are_checked_at_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["env", "--check", "--device", "cpu", "--quick", "--systems", "psg", "esdg", "dynahb", "greendygnn"]
    assert main([*command, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    states = {(row["device"], row["check"], row["state"]) for row in values["rows"]}
    kinds = ("losses", "phases", "memory", "energy")
    assert states >= {("cpu", kind, "ok") for kind in kinds} | {
        ("2 x cpu", kind, "ok") for kind in ("exchange", "group")
    }
    models = [row["model"] for row in values["rows"] if row["check"] == "losses" and row["system"] == "psg"]
    assert models == list(catalogue.names("models"))
    assert {row["system"] for row in values["rows"] if row["check"] == "group"} == {
        "psg",
        "esdg",
        "dynahb",
        "greendygnn",
    }


@pytest.mark.slow
def test_every_system_and_model_is_right_on_the_cpu() -> None:
    result = check_devices("cpu")
    assert result.failed == []
    cases = {(row.system, row.model) for row in result.rows if row.check == "losses"}
    assert len(cases) == len(catalogue.names("systems")) * len(catalogue.names("models"))
    assert {row.system for row in result.rows if row.check == "group"} >= {"esdg-hybrid", "dynahb"}


def test_options_of_the_check_need_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--quick"]) == 2
    assert "apply only to --check" in capsys.readouterr().err


def test_cuda_without_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(NotAvailableError, match="torch finds no GPU"):
        check_devices("cuda")
    with pytest.raises(UnknownNameError):
        check_devices("cpu", systems=["pgs"])


def pretend_gpus(monkeypatch: pytest.MonkeyPatch, count: int, shift: float = 0.0) -> list[tuple[str, list[Unit]]]:
    """Pretend GPUs whose losses are shifted; return the executed units, with their devices."""
    executed = []

    def result_of(unit: Unit, device: str) -> Any:
        if unit.kind == "train":
            loss = 1.0 + shift * (device != "cpu")
            return {config.to_json(): CaseRun("trained", (loss,)) for config in unit.configs}
        results = {"stops": (), "memory": PeakMemory(100.0, 100.0), "energy": EnergyUse({"nvml": (1.0, "counter")}, ())}
        return results[unit.kind]

    def execute(units: Sequence[Unit], devices: Sequence[str], *, progress: str = "") -> list[Any]:
        executed.append((",".join(devices), list(units)))
        return [result_of(unit, unit.device) for unit in units]

    def execute_together(units: Sequence[Unit], devices: Sequence[str], *, progress: str = "") -> list[Any]:
        executed.append((f"together {','.join(devices)}", list(units)))
        ranks = range(len(devices))
        return [
            [{"barrier": ""} if unit.kind == "exchange" else result_of(unit, devices[rank]) for rank in ranks]
            for unit in units
        ]

    monkeypatch.setattr(check, "execute", execute)
    monkeypatch.setattr(check, "execute_together", execute_together)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"Card {index}")
    return executed


def test_each_gpu_is_compared_with_the_cpu_and_all_form_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    executed = pretend_gpus(monkeypatch, 2)
    result = check_devices("cuda", systems=["psg", "esdg"])
    assert result.devices == {"cuda:0": "Card 0", "cuda:1": "Card 1"}
    assert [devices for devices, _ in executed][1:] == ["cuda:0,cuda:1", "together cuda:0,cuda:1"]
    assert {unit.kind for unit in executed[0][1]} == {"train"}  # the CPU trains, as it is compared with
    assert {row.device for row in result.rows} == {"cuda:0", "cuda:1", "2 x cuda"}
    assert result.failed == []
    assert {row.check for row in result.rows if row.device == "cuda:1"} >= {"losses", "synchronization", "memory"}


def test_a_gpu_with_other_losses_fails_in_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch, 1, shift=1e-4)
    result = check_devices("all", systems=["psg"])
    losses = [row for row in result.rows if row.check == "losses"]
    assert {(row.device, row.state) for row in losses} == {("cpu", "ok"), ("cuda:0", "failed")}
    assert main(["env", "--check", "--systems", "psg"]) == 1


def test_a_large_group_is_compared_with_its_plan_on_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    executed = pretend_gpus(monkeypatch, 4)
    result = check_devices("cuda", systems=["psg"])
    (group,) = [row for row in result.rows if row.check == "group"]
    assert group.device == "4 x cuda" and "psg on one rank" in group.value
    plans = [config for _, units in executed[:1] for unit in units for config in unit.configs if config.parts == 4]
    assert [config.ranks for config in plans] == [1, 1]
    assert dataclasses.asdict(group)["state"] == "ok"
