"""Peak memory of a step beside its forecast, on a device."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.testing.small_runs import REFUSALS, read_settings
from dtdg_lab.training.block_memory import BlockMemory
from dtdg_lab.training.build import build
from dtdg_lab.training.memory import largest_trace

TOLERANCE = 0.15  # share of the forecast
# a step that is large beside the allocator's blocks of 2 MiB, and takes a fraction of a second
_LARGE: Mapping[str, Any] = MappingProxyType(
    {
        "dataset": "powerlaw",
        "generated_nodes": 2000,
        "generated_edges": 6000,
        "generated_snapshots": 60,
        "hidden": 32,
        "layers": 2,
        "parts": 1,
        "device": "cpu",
        "threads": 1,
        "blocks": 0,
    }
)


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """Peak of a step.

    Attributes:
        forecast_bytes: forecast from steps of few snapshots.
        measured_bytes: measured on the whole step.
        reason: why neither is known; empty otherwise.
    """

    forecast_bytes: float = 0.0
    measured_bytes: float = 0.0
    reason: str = ""

    @property
    def error(self) -> float:
        """Measured over forecast peak, minus 1."""
        return self.measured_bytes / self.forecast_bytes - 1


def memory_configs(systems: Sequence[str]) -> dict[str, RunConfig]:
    """Return the settings of those systems whose peak memory is forecast, by the number of time blocks."""
    configs = {}
    for system in map(catalogue.system, systems):
        if "blocks" not in catalogue.entry("parallel", system.parts["parallel"]).options:
            continue
        settings = {**_LARGE, **system.defaults, "system": system.name, "model": catalogue.names("models")[0]}
        settings |= {"row_ranks": 1}  # on one rank
        configs[system.name] = RunConfig(**read_settings(settings))
    return configs


def measure_peak(config: RunConfig, device: str) -> PeakMemory:
    """Return the peak memory of a step and its forecast on one rank.

    Args:
        config: settings of :func:`memory_configs`.
        device: device of this rank.
    """
    config = config.replace(device=device.partition(":")[0])
    try:
        components = build(config, load_for(config), SoloGroup(device), device=device)
    except REFUSALS as error:
        return PeakMemory(reason=str(error))
    try:
        memory = getattr(components.strategy, "block_memory", None)
        if not isinstance(memory, BlockMemory):
            return PeakMemory(reason=f"system={config.system!r} has blocks, but no forecast of their memory.")
        gc.collect()  # strategies of the forecast are in reference cycles
        held_bytes = torch.cuda.memory_allocated(device) if device != "cpu" else 0  # without caches, as in the forecast
        largest_trace(components, device=device)  # the first step also fills caches
        peak = largest_trace(components, device=device).peak_bytes - held_bytes
        return PeakMemory(memory.peak_bytes(components.strategy.plan.blocks), peak)  # type: ignore[attr-defined]
    finally:
        components.close()
