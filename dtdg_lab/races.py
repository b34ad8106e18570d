"""Races of systems: ``lab.race`` runs one."""

from dtdg_lab.export.race import open_race as open

__all__ = ["open"]
