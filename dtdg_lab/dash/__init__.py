"""The dashboard: controls, live charts, comparison, partitions, schedules, code. Never trains, imports no torch."""

from __future__ import annotations

from dtdg_lab.dash.app import Dashboard
from dtdg_lab.dash.ascode import as_cell, as_json
from dtdg_lab.dash.served import serve

__all__ = ["Dashboard", "as_cell", "as_json", "serve"]
