"""Who decides while training runs: the size of the next batches, the window of a cache; and what they reckon with."""

from dtdg_lab.systems.feature_cache.policies.calibration import Calibration, calibrate, predict

__all__ = ["Calibration", "calibrate", "predict"]
