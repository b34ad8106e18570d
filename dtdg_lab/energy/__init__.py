"""Energy: NVML and RAPL where they can be read, a named model where they cannot; by windows and phases. No torch."""

from dtdg_lab.energy.monitor import EnergyMeter, EnergyWindow, Measurement, NodeShareReader, ReaderEnergy, readers_for
from dtdg_lab.energy.phases import PhaseEnergy
from dtdg_lab.energy.readers import (
    BusySeconds,
    ChildSeconds,
    EnergyReader,
    ModelledGpuReader,
    ModelledReader,
    NvmlReader,
    PowerModel,
    RaplReader,
    Reading,
)

__all__ = [
    "BusySeconds",
    "ChildSeconds",
    "EnergyMeter",
    "EnergyReader",
    "EnergyWindow",
    "Measurement",
    "ModelledGpuReader",
    "ModelledReader",
    "NodeShareReader",
    "NvmlReader",
    "PhaseEnergy",
    "PowerModel",
    "RaplReader",
    "ReaderEnergy",
    "Reading",
    "readers_for",
]
