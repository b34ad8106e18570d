"""The whole device check: on the CPU, and with a pretended GPU."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from dtdg_lab.cli import main
from dtdg_lab.cluster.devices import DeviceReport, Gpu
from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import NotAvailableError, UnknownNameError
from dtdg_lab.device_check import check
from dtdg_lab.device_check.case_run import CaseRun
from dtdg_lab.device_check.check import check_devices
from dtdg_lab.device_check.device_stops import DeviceStops
from dtdg_lab.device_check.energy_use import EnergyUse
from dtdg_lab.device_check.peak_memory import PeakMemory
from dtdg_lab.device_check.report import format_check
from dtdg_lab.device_check.units import Broken, Unit


def test_some_systems_are_checked_at_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["env", "--check", "--device", "cpu", "--quick", "--systems", "psg", "esdg", "dynahb", "greendygnn"]
    assert main([*command, "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    states = {(row["device"], row["check"], row["state"]) for row in values["rows"]}
    kinds = ("losses", "phases", "memory")
    assert states >= {("cpu", kind, "ok") for kind in kinds} | {
        ("2 x cpu", kind, "ok") for kind in ("exchange", "group")
    }
    assert states & {("cpu", "energy", "ok"), ("cpu", "energy", "modelled")}
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
    pretend_report(monkeypatch, 0)
    with pytest.raises(NotAvailableError, match="torch finds no GPU"):
        check_devices("cuda")
    with pytest.raises(UnknownNameError):
        check_devices("cpu", systems=["pgs"])


def test_a_driver_too_old_for_torch_is_a_row_and_the_cpu_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch, 0, problem="the machine has 2 GPUs, but its driver is too old. Update the driver.")
    result = check_devices("all", systems=["psg"])
    (row,) = [row for row in result.rows if row.check == "devices"]
    assert (row.device, row.state) == ("cuda", "unavailable") and "driver is too old" in row.value
    assert result.failed == [] and "driver is too old" in format_check(result)
    assert {row.device for row in result.rows} == {"cpu", "2 x cpu", "cuda"}
    with pytest.raises(NotAvailableError, match="driver is too old"):
        check_devices("cuda", systems=["psg"])


def test_a_check_of_the_cpu_does_not_ask_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch, 0)
    monkeypatch.setattr(check, "report_devices", Mock(side_effect=RuntimeError("the driver is too old")))
    assert check_devices("cpu", systems=["psg"]).failed == []


def pretend_report(monkeypatch: pytest.MonkeyPatch, count: int, problem: str = "") -> None:
    gpus = tuple(Gpu(index, f"GPU-{index}", f"Card {index}", 1 << 34) for index in range(count))
    monkeypatch.setattr(check, "report_devices", lambda: DeviceReport("host", "cpu", 1 << 34, gpus, problem))


def pretend_gpus(
    monkeypatch: pytest.MonkeyPatch, count: int, shift: float = 0.0, problem: str = ""
) -> list[tuple[str, list[Unit]]]:
    """Pretend GPUs whose losses are shifted; return the executed units, with their devices."""
    executed = []

    def result_of(unit: Unit, device: str) -> Any:
        if unit.kind == "train":
            loss = 1.0 + shift * (device != "cpu")
            return {config.to_json(): CaseRun("trained", (loss,)) for config in unit.configs}
        results = {
            "stops": DeviceStops(),
            "memory": PeakMemory(100.0, 100.0),
            "energy": EnergyUse({"nvml": (1.0, "counter")}, ()),
        }
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
    pretend_report(monkeypatch, count, problem)
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


def test_a_case_that_ends_its_process_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch, 1)
    execute = check.execute

    def ended_once(units: Sequence[Unit], devices: Sequence[str], *, progress: str = "") -> list[Any]:
        results = execute(units, devices, progress=progress)
        ended = ("train", "psg wdgcn", "cuda:0")
        broken = Broken("process 0: device-side assert triggered")
        return [
            broken if (unit.kind, unit.name, unit.device) == ended else result
            for unit, result in zip(units, results, strict=True)
        ]

    monkeypatch.setattr(check, "execute", ended_once)
    (failed,) = check_devices("all", systems=["psg"]).failed
    assert (failed.device, failed.system, failed.model) == ("cuda:0", "psg", "wdgcn")
    assert "device-side assert" in failed.value


def test_a_large_group_is_compared_with_its_plan_on_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    executed = pretend_gpus(monkeypatch, 4)
    result = check_devices("cuda", systems=["psg"])
    (group,) = [row for row in result.rows if row.check == "group"]
    assert group.device == "4 x cuda" and "psg on one rank" in group.value
    plans = [config for _, units in executed[:1] for unit in units for config in unit.configs if config.parts == 4]
    assert [config.ranks for config in plans] == [1, 1]
    assert dataclasses.asdict(group)["state"] == "ok"


def test_a_plan_that_shares_rows_between_ranks_can_be_built_on_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    executed = pretend_gpus(monkeypatch, 4)
    check_devices("cuda", systems=["esdg-hybrid"])
    alone = [config for unit in executed[0][1] for config in unit.configs]
    assert {(config.ranks, config["row_ranks"]) for config in alone} == {(1, 1)}
    (together,) = [config for unit in executed[-1][1] for config in unit.configs]
    assert (together.ranks, together["row_ranks"]) == (4, 2)
