"""The dashboard: controls, live charts, comparisons, partitions, schedules, code. It never trains or imports torch."""

from __future__ import annotations

from dtdg_lab.dashboard.app import Dashboard
from dtdg_lab.dashboard.pages.code import as_cell, as_json
from dtdg_lab.dashboard.server import DashboardServer, serve

__all__ = ["Dashboard", "DashboardServer", "as_cell", "as_json", "serve"]
