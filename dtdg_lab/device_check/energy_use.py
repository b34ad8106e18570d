"""Joules of a device that works for a moment."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import torch

from dtdg_lab.config.options import option
from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.energy.modelled import BusySeconds
from dtdg_lab.energy.rank_readers import readers_for

WORK_S = 0.5  # longer than the 0.1 s after which a GPU's counter moves
_LONGEST_S = 5.0


@dataclass(frozen=True, slots=True)
class EnergyUse:
    """What the readers of a device counted during work.

    Attributes:
        joules: reader -> (joules, source) during the work; None for joules that stayed unknown.
        notes: what cannot be measured here, and why.
    """

    joules: dict[str, tuple[float | None, str]]
    notes: tuple[str, ...]


def measure_energy(device: str) -> EnergyUse:
    """Let a device work for half a second, and return the joules that its readers counted.

    Args:
        device: ``cpu`` or a CUDA device.
    """
    kind: Literal["cpu", "cuda"] = "cpu" if device == "cpu" else "cuda"
    busy = BusySeconds()
    readers, notes = readers_for(
        kind,
        local_rank=0,
        local_ranks=1,
        device_index=int(device.partition(":")[2] or 0) if kind == "cuda" else None,
        gpu_busy=busy,
        **{name: option(f"power_{name}").default for name in ("idle_w", "max_w", "gpu_idle_w", "gpu_max_w")},
    )
    joules: dict[str, tuple[float | None, str]] = {}
    notes = list(notes)
    try:
        for reader in readers:
            joules[reader.name] = (None, reader.source)
            began_s = time.perf_counter()
            try:
                while joules[reader.name][0] is None and time.perf_counter() - began_s < _LONGEST_S:
                    _work(device)
                    reading = reader.read()
                    if reading is not None:
                        joules[reader.name] = (reading.joules, reading.source)
            except NotAvailableError as error:
                notes.append(str(error))
    finally:
        for reader in readers:
            reader.close()
    return EnergyUse(joules, tuple(notes))


def _work(device: str) -> None:
    matrix = torch.ones(256, 256, device=device)
    began_s = time.perf_counter()
    while time.perf_counter() - began_s < WORK_S:
        matrix = matrix @ matrix / 256
    if device != "cpu":
        torch.cuda.synchronize(device)
