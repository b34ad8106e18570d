"""Congestion of links as measured in a run, to be replayed in others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.core.lazy import lazy_namespace

if TYPE_CHECKING:
    from dtdg_lab.runs.summary import save_congestion_trace as save_trace

__all__ = ["save_trace"]

__getattr__, __dir__ = lazy_namespace(__name__)
