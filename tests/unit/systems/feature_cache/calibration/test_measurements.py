"""Measurements are read from files, rows and records, and invalid ones are rejected."""

from __future__ import annotations

import csv
import gzip

import numpy as np
import pandas
import pytest

from dtdg_lab.core.errors import ConfigError, DataError
from dtdg_lab.systems.feature_cache.actions import WINDOWS
from dtdg_lab.systems.feature_cache.calibration.calibration import calibrate
from dtdg_lab.systems.feature_cache.calibration.fits import StepTimeModel, predicted_ms
from dtdg_lab.systems.feature_cache.calibration.measurements import (
    cells_of,
    condition_named,
    fetches_of,
    read_fetches,
    read_power,
)


def off(model, own):
    return np.abs(predicted_ms(model, own) / np.array([cell.ms for cell in own]) - 1) * 100


def test_rows_and_tables_do_as_well_as_files(calibration, figures):
    with (figures / "step_time.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for source in (rows, pandas.DataFrame(rows), figures / "step_time.csv"):
        assert calibrate(source).steps == calibration.steps


def test_forms_of_a_condition():
    assert condition_named("c1_200") == condition_named("c1_200mbit") == condition_named(" C1_200Mbit ")
    assert condition_named("c4_2.5ms").delay_ms == 2.5
    assert [condition_named(name).name for name in ("clean", "c1_50", "c4_10")] == ["clean", "c1_50mbit", "c4_10ms"]
    for wrong in ("", "c2_5", "c1_", "c1_-5", "c1_5ms", "c4_5mbit", "c1_0", "dirty", 7, None):
        with pytest.raises(ConfigError, match="clean"):
            condition_named(wrong)


def test_a_run_of_ours_is_calibrated_from_its_records():
    true = StepTimeModel(20.0, 1.0, 40.0, 200.0, 0.2, 1.0, 4000.0)
    steps = [(w, float(true.step_ms(w)) / 1e3 * off) for w in WINDOWS for off in (0.98, 1.02)]
    cells = cells_of(steps, "ours") + cells_of([(16, float(true.step_ms(16, 200)) / 1e3)], "ours", condition="c1_200")
    assert len(cells) == 9 and cells[0]["measured_ms"] == pytest.approx(float(true.step_ms(1)))
    draw = np.random.default_rng(1)
    fetches = [
        {"part": part, "owner": 1 - part, "rows": rows, "bytes": rows * 64.0, "rtt_s": 4e-4 + rows * 64e-9}
        for part in (0, 1)
        for rows in draw.integers(10, 20000, 50)
    ]
    costs = calibrate(cells, fetches=fetches_of(fetches, "ours")).costs()
    assert (costs.parts, costs.row_bytes) == (2, 64.0)
    assert costs.rpc_s == pytest.approx(4e-4, rel=0.02)
    assert costs.step_s(4, [0.0], [np.inf], [1.0]) == pytest.approx(float(true.step_ms(4)) / 1e3, rel=0.02)
    with pytest.raises(DataError, match="no fetches"):
        fetches_of([], "ours")
    with pytest.raises(DataError, match="fetch 1"):
        fetches_of([{"part": 0}], "ours")


def test_given_fetches_are_checked():
    fetches = [dict(part=0, owner=1, rows=10 + n, bytes=4 * n + 40, rtt_s=1e-3 * (n + 1)) for n in range(20)]
    tables = fetches_of(fetches, "ours")
    cells = [{"dataset": "ours", "condition": "clean", "window": w, "measured_ms": 5.0 + 8 / w} for w in (1, 4, 16, 64)]
    given = tables["ours"]
    wrong = {
        "row 1, .*nbytes.* are needed": given.drop(columns="nbytes"),
        "row 3, .*'rtt_s': nan": given.assign(rtt_s=given["rtt_s"].where(given.index != 2)),
        "row 1, .*'rows': 0.0": given.assign(rows=0),
        "no rows": given.iloc[:0],
    }
    for words, table in wrong.items():
        with pytest.raises(DataError, match=f"(?s)fetches of ours.*{words}"):
            calibrate(cells, fetches={"ours": table})
    with pytest.raises(ConfigError, match="mapping of dataset to table"):
        calibrate(cells, fetches=given)


def test_missing_and_broken_files_are_reported(tmp_path):
    assert read_fetches(tmp_path) == {} and read_power(tmp_path) is None
    with gzip.open(tmp_path / "fetch_rtt.csv.gz", "wt") as file:
        file.write("dataset,condition,concurrent,requester,owner,rows,rtt_s,feat_dim\nown,clean,0,1,2,ten,0.1,4\n")
    with pytest.raises(DataError, match="row 1"):
        read_fetches(tmp_path)
    (tmp_path / "fetch_rtt.csv.gz").write_bytes(b"not compressed")
    with pytest.raises(DataError, match="cannot be read"):
        read_fetches(tmp_path)
    (tmp_path / "power.csv").write_text("host,state,cpu_w,gpu_w,samples\na,idle,50,20,3\n")
    with pytest.raises(DataError, match="gpu_compute"):
        read_power(tmp_path)


def test_power_is_the_mean_of_the_hosts(figures):
    watts = read_power(figures)
    assert (watts.busy, watts.stall, watts.idle) == pytest.approx((168.7775, 150.715, 110.0225))
