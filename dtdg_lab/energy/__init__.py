"""Energy readers: NVML and RAPL where they can be read, a named model where they cannot. Needs no torch."""

from dtdg_lab.energy.choose import readers_for
from dtdg_lab.energy.modelled import ModelledReader
from dtdg_lab.energy.nvml import NvmlReader
from dtdg_lab.energy.rapl import RaplReader
from dtdg_lab.energy.reader import EnergyReader, Reading

__all__ = ["EnergyReader", "ModelledReader", "NvmlReader", "RaplReader", "Reading", "readers_for"]
