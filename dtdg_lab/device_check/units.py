"""Work of the device check, executed in processes that may fail without ending the check."""

from __future__ import annotations

import pickle
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from tqdm.auto import tqdm

from dtdg_lab.cluster.registrations import SentRegistration, apply_registrations, pack_registrations
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.device_check.case_run import run_case
from dtdg_lab.device_check.device_stops import find_stops
from dtdg_lab.device_check.energy_use import measure_energy
from dtdg_lab.device_check.exchanges import check_exchanges
from dtdg_lab.device_check.peak_memory import measure_peak
from dtdg_lab.distributed.group import Group, ProcessGroup
from dtdg_lab.distributed.store import reach_store
from dtdg_lab.kernels.torch_defaults import torch_defaults
from dtdg_lab.testing.processes import KILLED, RanksError, run_ranks

TIMEOUT_S = 1800.0  # of processes that work alone
GROUP_TIMEOUT_S = 600.0  # of a group: a rank that waits for a failed one never returns
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of work.

    Attributes:
        kind: kind of work.
        name: what it is about, such as a system.
        device: device on which one rank executes it; empty for all ranks of a group together.
        configs: settings of its runs.
    """

    kind: Literal["train", "stops", "memory", "energy", "exchange"]
    name: str
    device: str = ""
    configs: tuple[RunConfig, ...] = ()


@dataclass(frozen=True, slots=True)
class Broken:
    """The result of a unit whose process failed.

    Attributes:
        reason: why it failed.
        began: False if no process got as far as a unit.
    """

    reason: str
    began: bool = True


def perform(unit: Unit, device: str, group: Group | None = None) -> Any:
    """Execute a unit on a device, and return its result.

    Returns:
        The :class:`~dtdg_lab.device_check.case_run.CaseRun` of each config by its JSON; a
        :class:`~dtdg_lab.device_check.device_stops.DeviceStops`; a
        :class:`~dtdg_lab.device_check.peak_memory.PeakMemory`; an
        :class:`~dtdg_lab.device_check.energy_use.EnergyUse`; or the differences of exchanges.
    """
    if unit.kind == "train":
        return {config.to_json(): run_case(config, device, group) for config in unit.configs}
    if unit.kind == "stops":
        return find_stops(unit.configs[0], device)
    if unit.kind == "memory":
        return measure_peak(unit.configs[0], device)
    if unit.kind == "energy":
        return measure_energy(device)
    assert group is not None
    return check_exchanges(group, device)


class ResultFolder:
    """Results of units that several processes write, and which process claimed a unit."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def claim(self, number: int, process: int) -> bool:
        """Return True for the first process that asks for a unit."""
        try:
            with (self._path / f"{number}.claim").open("x") as file:
                file.write(str(process))
        except FileExistsError:
            return False
        return True

    def release(self, number: int) -> None:
        """Let a unit be claimed again."""
        (self._path / f"{number}.claim").unlink()

    def write(self, number: int, rank: int, result: Any) -> None:
        """Write the result of a unit on a rank."""
        file = self._path / f"{number}.{rank}.new"
        file.write_bytes(pickle.dumps(result))
        file.rename(file.with_suffix(".result"))

    def read(self, number: int, ranks: int) -> list[Any] | None:
        """Return the results of a unit by rank; None if fewer than ``ranks`` ranks have one."""
        files = sorted(self._path.glob(f"{number}.*.result"), key=lambda file: int(file.name.split(".")[1]))
        return [pickle.loads(file.read_bytes()) for file in files] if len(files) >= ranks else None

    def claimer(self, number: int) -> int | None:
        """Return the process that began a unit; None if none did."""
        file = self._path / f"{number}.claim"
        return int(file.read_text()) if file.exists() else None

    def count(self) -> int:
        """Return the number of results."""
        return len(list(self._path.glob("*.result")))


def execute(units: Sequence[Unit], devices: Sequence[str], *, progress: str = "") -> list[Any]:
    """Execute units in one process for each entry of ``devices``, each unit in one process on its device.

    Args:
        units: the units.
        devices: device of each process; a unit is executed by any process with its device.
        progress: title of a progress bar on standard error; empty for none.

    Returns:
        The result of each unit; :class:`Broken` if its process died.
    """
    results = _execute(units, devices, together=False, progress=progress)
    return [result if isinstance(result, Broken) else result[0] for result in results]


def execute_together(units: Sequence[Unit], devices: Sequence[str], *, progress: str = "") -> list[list[Any] | Broken]:
    """Execute units by all ranks of a group together.

    Args:
        units: the units.
        devices: device of each rank.
        progress: title of a progress bar on standard error; empty for none.

    Returns:
        The results of each unit by rank; :class:`Broken` if a rank failed.
    """
    return _execute(units, devices, together=True, progress=progress)


def _execute(
    units: Sequence[Unit], devices: Sequence[str], *, together: bool, progress: str
) -> list[list[Any] | Broken]:
    ranks = len(devices) if together else 1
    sent = pack_registrations(*(config for unit in units for config in unit.configs))
    results: dict[int, list[Any] | Broken] = {}
    with tempfile.TemporaryDirectory(prefix="dtdg-lab-check-") as name:
        folder = ResultFolder(Path(name))
        with _progress_bar(folder, len(units) * ranks, progress):
            while remaining := {number: unit for number, unit in enumerate(units) if number not in results}:
                work = _work_together if together else _work_alone
                failures: dict[int, str] = {}
                try:
                    limit_s = GROUP_TIMEOUT_S if together else TIMEOUT_S
                    task = _Task(folder, tuple(devices), remaining, sent)
                    run_ranks(work, len(devices), task, timeout_s=limit_s)
                except RanksError as error:
                    failures = error.failures
                culprits = failures if together else _culprits(failures)
                for number in remaining:
                    result, claimer = folder.read(number, ranks), folder.claimer(number)
                    if result is not None:
                        results[number] = result
                    elif claimer in culprits:
                        results[number] = Broken(_last_lines(culprits))
                    elif claimer is not None:  # its process was ended with the one that failed
                        folder.release(number)
                if failures and not remaining.keys() & results.keys():  # not even one began: all would fail alike
                    results |= dict.fromkeys(remaining, Broken(_last_lines(failures), began=False))
    return [results[number] for number in range(len(units))]


@contextmanager
def _progress_bar(folder: ResultFolder, total: int, title: str) -> Iterator[None]:
    """Show how many results a folder has."""
    stop = threading.Event()

    def follow(bar: tqdm) -> None:
        ended = False
        while not ended:
            ended = stop.wait(_POLL_S)
            if new := folder.count() - bar.n:
                bar.update(new)

    with tqdm(total=total, desc=title, unit="part", disable=not title) as bar:
        thread = threading.Thread(target=follow, args=(bar,), name="progress of the check", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


@dataclass(frozen=True, slots=True)
class _Task:
    """What the processes execute.

    Attributes:
        folder: folder of results.
        devices: device of each process.
        units: number of a unit -> the unit.
        sent: registered code that the units need.
    """

    folder: ResultFolder
    devices: tuple[str, ...]
    units: dict[int, Unit]
    sent: tuple[SentRegistration, ...]


def _work_alone(rank: int, ranks: int, address: str, task: _Task) -> None:
    """Execute the units of this rank's device that no other process has begun."""
    folder, device = task.folder, task.devices[rank]
    with _prepared(device, task.sent):
        for number, unit in task.units.items():
            if unit.device == device and folder.claim(number, rank):
                folder.write(number, 0, perform(unit, device))


def _work_together(rank: int, ranks: int, address: str, task: _Task) -> None:
    """Execute all units with the other ranks; an error ends this rank, and with it the group."""
    folder, device = task.folder, task.devices[rank]
    with _prepared(device, task.sent):
        group = ProcessGroup.join(reach_store(address, ranks), rank, ranks, device=device)
        for number, unit in task.units.items():
            folder.claim(number, rank)
            folder.write(number, rank, perform(unit, device, group))
        group.close()


@contextmanager
def _prepared(device: str, sent: Sequence[SentRegistration]) -> Iterator[None]:
    """Prepare this process for a device; warnings are no errors, since a user's torch may be newer."""
    with warnings.catch_warnings(), torch_defaults(1):
        warnings.simplefilter("ignore")  # they would break the progress bar
        apply_registrations(sent)
        if device != "cpu":
            torch.cuda.set_device(device)
        yield


def _culprits(failures: Mapping[int, str]) -> dict[int, str]:
    """Return the failures of processes that failed themselves; all if time was up."""
    own = {process: text for process, text in failures.items() if text != KILLED}
    return own or dict(failures)


def _last_lines(failures: Mapping[int, str]) -> str:
    """Return the last line of each failure, which names the error, once for all processes that failed alike."""
    processes: dict[str, list[str]] = {}
    for process, text in sorted(_culprits(failures).items()):
        processes.setdefault(text.strip().splitlines()[-1].rstrip("."), []).append(str(process))
    return "; ".join(
        f"process{'es' if numbers[1:] else ''} {', '.join(numbers)}: {line}" for line, numbers in processes.items()
    )
