"""Calibration of the cost model that cache policies decide with."""

from dtdg_lab.cluster.calibrate_here import calibrate_here
from dtdg_lab.systems.feature_cache.calibration.calibration import Calibration, calibrate, predict
from dtdg_lab.systems.feature_cache.calibration.live_check import check_live

__all__ = ["Calibration", "calibrate", "calibrate_here", "check_live", "predict"]
