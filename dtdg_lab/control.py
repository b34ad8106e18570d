"""Calibration of the cost model that cache policies decide with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.core.lazy import lazy_namespace

if TYPE_CHECKING:
    from dtdg_lab.cluster.calibrate_here import calibrate_here
    from dtdg_lab.systems.feature_cache.policies.calibration import Calibration, calibrate, predict

__all__ = ["Calibration", "calibrate", "calibrate_here", "predict"]

__getattr__, __dir__ = lazy_namespace(__name__)
