"""Calibration of the cost model that cache policies decide with."""

from dtdg_lab.cluster.calibrate_here import calibrate_here
from dtdg_lab.systems.feature_cache.calibration.calibration import Calibration, calibrate, predict

__all__ = ["Calibration", "calibrate", "calibrate_here", "predict"]
