"""Texts on the engines of a session: their devices, models and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dtdg_lab.core.units import format_bytes

if TYPE_CHECKING:
    from dtdg_lab.cluster.engines import EngineState

NOT_RUNNING = "not running"


def summarize_devices(engines: Mapping[int, EngineState]) -> str:
    """Return the devices of the engines that are alive, such as ``4 × NVIDIA H200``; ``on CPU`` without GPUs."""
    alive = [engine for engine in engines.values() if engine.is_alive]
    gpus = Counter(engine.name for engine in alive if engine.device != "cpu")
    cpus = sum(engine.device == "cpu" for engine in alive)
    if not gpus:
        return "on CPU" if alive else ""
    return ", ".join([*(f"{count} × {name}" for name, count in gpus.items()), *([f"{cpus} on CPU"] if cpus else [])])


def list_engines(engines: Mapping[int, EngineState]) -> str:
    """Return an aligned table of the engines, one a line, and why GPUs cannot be used."""
    machines = {
        host: str(number)
        for number, host in enumerate(dict.fromkeys(one.host for one in engines.values() if one.is_alive), 1)
    }
    rows = [("Engine", "Machine", "Device", "Memory", "Model")]
    for rank, engine in engines.items():
        if engine.is_alive:
            memory = format_bytes(engine.memory_bytes)
            rows.append((str(rank), machines[engine.host], engine.device, memory, engine.name))
        else:
            rows.append((str(rank), "", NOT_RUNNING, "", ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    problems = dict.fromkeys(
        f"{'GPUs are not used' if engine.device == 'cpu' else 'Warning about GPUs'}: {engine.problem}"
        for engine in engines.values()
        if engine.problem
    )
    return "\n".join([*lines, *(f"\n{problem}" for problem in problems)])
