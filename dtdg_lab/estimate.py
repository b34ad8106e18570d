"""Costs without training: of systems, transfers, communication and memory, on other ranks, and of schedules."""

from dtdg_lab.forecast.forecast import forecast
from dtdg_lab.systems.snapshot_groups.forecast import simulate_schedules as schedules

__all__ = ["forecast", "schedules"]
