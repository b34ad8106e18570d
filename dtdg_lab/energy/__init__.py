"""Energy: NVML and RAPL where they can be read, a named model where they cannot; by windows and phases. No torch."""

from dtdg_lab.energy.child_seconds import ChildSeconds
from dtdg_lab.energy.choose import readers_for
from dtdg_lab.energy.measurement import Measurement, ReaderEnergy
from dtdg_lab.energy.modelled import ModelledReader
from dtdg_lab.energy.modelled_gpu import BusySeconds, ModelledGpuReader
from dtdg_lab.energy.node_share import NodeShareReader
from dtdg_lab.energy.nvml import NvmlReader
from dtdg_lab.energy.phase_energy import PhaseEnergy
from dtdg_lab.energy.power_model import PowerModel
from dtdg_lab.energy.rapl import RaplReader
from dtdg_lab.energy.reader import EnergyReader, Reading
from dtdg_lab.energy.windows import EnergyMeter, EnergyWindow

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
