"""Costs without training: of systems, schedules, transfers, communication and memory, and on many ranks."""

from dtdg_lab.advisor.advise import advise
from dtdg_lab.advisor.what_if import scaling_forecast
from dtdg_lab.runs.scaling_study import extrapolate
from dtdg_lab.systems.snapshot_blocks.forecast import estimate_block_memory as block_memory
from dtdg_lab.systems.snapshot_blocks.forecast import estimate_transfers as transfers
from dtdg_lab.systems.snapshot_blocks.forecast import estimate_volumes as volumes
from dtdg_lab.systems.snapshot_groups.forecast import simulate_schedules as schedules

__all__ = ["advise", "block_memory", "extrapolate", "scaling_forecast", "schedules", "transfers", "volumes"]
