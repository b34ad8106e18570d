"""Calibration of the cost model to measurements."""
