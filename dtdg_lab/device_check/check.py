"""The device check: its work on every device, and the verdicts."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dtdg_lab.cluster.devices import report_devices
from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.device_check.case_run import CaseRun
from dtdg_lab.device_check.cases import ONE_RANK, CheckCase, group_configs, list_cases, make_case, systems_of
from dtdg_lab.device_check.check_row import CheckRow, unavailable_row
from dtdg_lab.device_check.peak_memory import memory_configs
from dtdg_lab.device_check.units import Broken, Unit, execute, execute_together
from dtdg_lab.device_check.verdicts import (
    References,
    energy_rows,
    exchange_rows,
    group_row,
    loss_row,
    memory_row,
    phase_rows,
    process_rows,
    stops_row,
)

Devices = Literal["cpu", "cuda", "all"]
_MOST_PROCESSES = 8  # on the CPU; more would only start more slowly
_GROUP = 2  # ranks of the group on the CPU


@dataclass(frozen=True, slots=True)
class DeviceCheck:
    """The outcome of a check.

    Attributes:
        devices: device -> its name.
        rows: the rows.
        seconds: how long it took.
    """

    devices: Mapping[str, str]
    rows: tuple[CheckRow, ...]
    seconds: float

    @property
    def failed(self) -> list[CheckRow]:
        """The rows that failed."""
        return [row for row in self.rows if row.state == "failed"]


def check_devices(
    device: Devices = "all", *, systems: Sequence[str] = (), quick: bool = False, progress: bool = False
) -> DeviceCheck:
    """Check training, exchanges, clock, energy and memory on every device of this machine.

    Each system trains an epoch with each model on a small generated graph. On the CPU, float32 is compared with
    float64, and float64 with another system whose losses should be equal. A GPU is compared with the CPU.

    Args:
        device: ``cpu``, ``cuda`` for all GPUs, or ``all``.
        systems: names of some systems; by default all. Equal losses are only looked for among these.
        quick: every model on the first system only, and every other system with one model.
        progress: show progress on standard error.

    Raises:
        NotAvailableError: ``device="cuda"`` without a GPU that torch can use.
        UnknownNameError: there is no such system.
    """
    began_s = time.perf_counter()
    report = report_devices() if device != "cpu" else None
    gpus = {} if report is None else {f"cuda:{gpu.index}": gpu.name for gpu in report.gpus}
    problem = "" if report is None else report.problem
    if device == "cuda" and not gpus:
        raise NotAvailableError(
            f"device='cuda' was given, but torch finds no GPU. {problem or '`dtdg-lab env` says what is missing.'} "
            "`--device cpu` checks the CPU."
        )
    checked = list(gpus)
    cases = list_cases(systems, quick=quick)
    twins = [_on_one_rank(case) for case in _group_cases(cases, len(checked))] if len(checked) > _GROUP else []
    bar = _title("cpu", progress)
    units = [*_train_units(cases, "cpu"), *_train_units(twins, "cpu")]
    if device != "cuda":
        units += _other_units(cases, "cpu")
    processes = min(_MOST_PROCESSES, max(2, len(os.sched_getaffinity(0))))
    results = list(zip(units, execute(units, ["cpu"] * processes, progress=bar), strict=True))
    runs = _runs(results)
    references = References([*cases, *twins], runs)
    rows = [unavailable_row(problem, device="cuda", check="devices")] if problem else []
    rows += process_rows("cpu", [result for _, result in results])
    if device != "cuda":
        rows += _rows(cases, "cpu", results, references)
        rows += _group_rows(cases, ["cpu"] * _GROUP, references, progress=progress)
    if checked:
        units = [unit for name in checked for unit in _gpu_units(cases, name)]
        results = list(zip(units, execute(units, checked, progress=_title("gpus", progress)), strict=True))
        for name in checked:
            of_gpu = [(unit, result) for unit, result in results if unit.device == name]
            rows += process_rows(name, [result for _, result in of_gpu])
            rows += _rows(cases, name, of_gpu, references)
        rows += _group_rows(cases, checked, references, progress=progress)
    names = {"cpu": _cpu_name(), **gpus}
    shown = [*(["cpu"] if device != "cuda" else []), *checked]
    return DeviceCheck({name: names[name] for name in shown}, tuple(rows), time.perf_counter() - began_s)


def _title(text: str, progress: bool) -> str:
    return text if progress else ""


def _cpu_name() -> str:
    return f"{platform.machine()}, {os.cpu_count()} cores"


def _on_one_rank(case: CheckCase) -> CheckCase:
    """Return the same plan on one rank."""
    assert case.config is not None
    alone = {name: value for name, value in ONE_RANK.items() if name in case.config.flat}
    return CheckCase(case.system, case.model, case.config.replace(ranks=1, **alone))


def _train_units(cases: Sequence[CheckCase], device: str) -> list[Unit]:
    """Return a unit for each case, so that a process that ends takes no other case with it."""
    return [Unit("train", f"{case.system} {case.model}", device, case.configs) for case in cases if case.configs]


def _other_units(cases: Sequence[CheckCase], device: str) -> list[Unit]:
    configs = memory_configs(systems_of(cases))
    memory = [Unit("memory", system, device, (config,)) for system, config in configs.items()]
    return [*memory, Unit("energy", "", device)]


def _gpu_units(cases: Sequence[CheckCase], device: str) -> list[Unit]:
    stops = [Unit("stops", f"{case.system} {case.model}", device, case.configs[1:2]) for case in cases if case.configs]
    return [*_train_units(cases, device), *stops, *_other_units(cases, device)]


def _runs(results: Sequence[tuple[Unit, Any]]) -> dict[str, CaseRun]:
    """Return the runs of the units that trained, by the JSON of their configs."""
    runs: dict[str, CaseRun] = {}
    for unit, result in results:
        if isinstance(result, Broken):
            failed = CaseRun("failed" if result.began else "not run", reason=result.reason)
            runs |= {config.to_json(): failed for config in unit.configs if unit.kind == "train"}
        elif unit.kind == "train":
            runs |= result
    return runs


def _rows(
    cases: Sequence[CheckCase], device: str, results: Sequence[tuple[Unit, Any]], references: References
) -> list[CheckRow]:
    """Return the verdicts on a device."""
    runs = _runs(results)
    rows = [loss_row(case, device, runs, references) for case in cases]
    rows += phase_rows(cases, device, runs)
    by_name = {f"{case.system} {case.model}": case for case in cases}
    for unit, result in results:
        if unit.kind == "stops":
            rows.append(stops_row(by_name[unit.name], device, result))
        elif unit.kind == "memory":
            rows.append(memory_row(unit.name, device, result))
        elif unit.kind == "energy":
            rows += energy_rows(device, result)
    return rows


def _group_cases(cases: Sequence[CheckCase], ranks: int) -> list[CheckCase]:
    """Return the cases that a group trains: of each system the first that it supports."""
    grouped = []
    for system in systems_of(cases):
        models = [case.model for case in cases if case.system == system and case.config is not None]
        on_ranks = (make_case(catalogue.system(system), model, ranks) for model in models)
        grouped += [case for case in on_ranks if case.config is not None][:1]
    return grouped


def _group_rows(
    cases: Sequence[CheckCase], devices: Sequence[str], references: References, *, progress: bool
) -> list[CheckRow]:
    """Return the verdicts on the group of some devices; a group of one exchanges, but trains nothing."""
    title = f"{len(devices)} x {devices[0].partition(':')[0]}"
    grouped = _group_cases(cases, len(devices)) if len(devices) > 1 else []
    units = [Unit("exchange", "")]
    units += [Unit("train", case.system, configs=group_configs(case)) for case in grouped]
    exchanged, *trained = execute_together(units, devices, progress=_title(title, progress))
    rows = [*process_rows(title, [exchanged]), *exchange_rows(title, exchanged)]
    return rows + [group_row(case, title, result, references) for case, result in zip(grouped, trained, strict=True)]
