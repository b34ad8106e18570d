"""Races of systems: ``lab.race`` runs one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.core.lazy import lazy_namespace

if TYPE_CHECKING:
    from dtdg_lab.export.race import open_race as open

__all__ = ["open"]

__getattr__, __dir__ = lazy_namespace(__name__)
