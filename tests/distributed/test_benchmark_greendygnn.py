"""Rows of benchmarks/greendygnn.py have the errors of what was left out of the fit."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from dtdg_lab.systems.feature_cache.calibration.calibration import SHIPPED, calibrate
from tests.distributed.benchmark_modules import benchmark

green = benchmark("greendygnn")


def test_rows_have_errors_by_what_was_left_out(green: ModuleType) -> None:
    model = SHIPPED.steps["reddit"]
    cells = [
        {
            "dataset": "generated",
            "condition": name,
            "window": window,
            "measured_ms": float(model.step_ms(window, mbit, delay)) * (1 + 0.2 * (window == 2)),
        }
        for name, mbit, delay, windows in (
            ("clean", np.inf, 0, (1, 2, 4, 16, 64)),
            ("c1_200", 200, 0, (16,)),
            ("c1_50", 50, 0, (16,)),
            ("c4_10", np.inf, 10, (16,)),
        )
        for window in windows
    ]
    row, clean = green.calibration_rows(calibrate(cells), "here")
    assert "cell: clean W=2 -" in row["note"] and 1 < row["fitted"] < 5 < row["largest_fitted"]
    assert "; 5 cells had too few others" in green.row_text(row)  # 3 without clean
    assert (row["cells"], clean["cells"], clean["cells of"]) == ("8", "5", "clean links") and clean["middle"] > 0
    assert "worst regret" in green.row_text(clean)


def test_absent_measurements_are_named(green: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(green, "CLUSTER", tmp_path)
    (row,) = green.cluster_rows()
    assert row["failed"] == f"its figures are not in {tmp_path}"
