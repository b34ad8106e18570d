"""Measurements of a real cluster, its calibration, and its cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtdg_lab.systems.feature_cache.calibration.calibration import Calibration, calibrate
from dtdg_lab.systems.feature_cache.calibration.measurements import StepCell, read_steps


@pytest.fixture(scope="session")
def figures(request: pytest.FixtureRequest) -> Path:
    folder = request.config.rootpath.parent / "shared" / "data" / "greendygnn"
    if not (folder / "step_time.csv").is_file():
        pytest.skip("no ../shared/data/greendygnn beside the project: the cluster's figures are not on this machine")
    return folder


@pytest.fixture(scope="session")
def calibration(figures: Path) -> Calibration:
    return calibrate(figures)


@pytest.fixture(scope="session")
def cells(figures: Path) -> dict[str, list[StepCell]]:
    return read_steps(figures)
