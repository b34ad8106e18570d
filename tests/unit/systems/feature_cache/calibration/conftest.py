"""The calibration of the measured cluster, and its cells."""

from __future__ import annotations

import pytest

from dtdg_lab.systems.feature_cache.calibration.calibration import Calibration, calibrate
from dtdg_lab.systems.feature_cache.calibration.measurements import StepCell, read_steps
from tests.cluster_figures import cluster_figures


@pytest.fixture(scope="session")
def calibration() -> Calibration:
    return calibrate(cluster_figures())


@pytest.fixture(scope="session")
def cells() -> dict[str, list[StepCell]]:
    return read_steps(cluster_figures())
