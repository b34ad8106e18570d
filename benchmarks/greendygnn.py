"""The law of step times, fitted to the authors' measurements, with the errors of what was left out; reads no clock.

    python benchmarks/greendygnn.py [calibration] [--quick] [--json FILE] [--keep]

Means and largest errors of cells whose cell, condition or window was left out of the fit, of all cells and of clean
ones, for which "same condition at W = 16" is a guess without a model. The figures must be beside the project. Trainings
and policies are measured by `dtdg-lab reproduce greendygnn`, this machine by `dtdg-lab calibrate`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import result_files

from dtdg_lab.systems.feature_cache.calibration.calibration import Calibration, calibrate
from dtdg_lab.systems.feature_cache.calibration.report import largest_errors, mean_errors, regrets

CLUSTER = Path(__file__).resolve().parents[2] / "shared" / "data" / "greendygnn"
ALL, GUESSED = "all", "clean links"  # cells of a row
PAPER_ERROR = 0.028  # Figure 8, mean of fitted cells
COLUMNS = ("fitted", "cell_out", "condition_out", "window_out", "middle")
Row = dict[str, Any]


def calibration_rows(calibration: Calibration, where: str) -> list[Row]:
    """Return mean and largest errors of each data set by what was left out of the fit: of all cells, and of clean ones.

    Regret is that of the chosen window. A condition with one window has no guess and no regret.
    """
    rows: list[Row] = []
    for dataset in calibration.cells:
        errors = calibration.errors(dataset)
        worst = max(errors, key=lambda error: abs(error.percent))
        means, most = mean_errors(errors)._asdict(), largest_errors(errors)._asdict()
        del means["middle"], most["middle"]
        rows.append(
            {
                "where": where,
                "dataset": dataset,
                "cells of": ALL,
                "cells": str(len(errors)),
                **means,
                **{f"largest_{name}": percent for name, percent in most.items()},
                "note": f"worst fitted cell: {worst.condition} W={worst.window} {worst.percent:+.1f} %",
                "unit": "%",
                "reference": f"{PAPER_ERROR:.1%} fitted in the paper",
            }
        )
        if unpredicted := int(sum(np.isnan(error.condition_out_ms) for error in errors)):
            rows[-1]["note"] += f"; {unpredicted} cells had too few others left without their condition"
        guessed, chosen = [error for error in errors if not np.isnan(error.middle_ms)], regrets(errors)
        if guessed:
            rows.append(
                {
                    "where": where,
                    "dataset": dataset,
                    "cells of": GUESSED,
                    "cells": str(len(guessed)),
                    **mean_errors(guessed)._asdict(),
                    "regret_cell_out": _worst(row.cell_out_percent for row in chosen),
                    "regret_condition_out": _worst(row.condition_out_percent for row in chosen),
                    "regret_middle": _worst(row.middle_percent for row in chosen),
                    "unit": "%",
                }
            )
    return rows


def _worst(percents: Iterable[float]) -> float | None:
    return max((percent for percent in percents if not np.isnan(percent)), default=None)


def cluster_rows() -> list[Row]:
    """Return the rows of the authors' cluster, or one that says that its figures are not here."""
    if not (CLUSTER / "step_time.csv").is_file():
        return [{"where": "authors'", "failed": f"its figures are not in {CLUSTER}"}]
    calibration = calibrate(CLUSTER)
    print(f"\n{calibration.table()}")
    return calibration_rows(calibration, "authors'")


def row_text(row: Row) -> str:
    """Return a row as a line."""
    if "failed" in row:
        return f"{row['where']:10} {row['failed']}"
    left_out = " ".join(f"{_percent(row.get(name)):>13}" for name in COLUMNS)
    more = f"  {row['note']}" if "note" in row else ""
    if "regret_middle" in row:
        names = ("regret_cell_out", "regret_condition_out", "regret_middle")
        regret = ", ".join(f"{_percent(row[name])} ({name.removeprefix('regret_')})" for name in names)
        more += f"  worst regret of the chosen window: {regret}"
    return f"{row['where']:10} {row['dataset']:14} {row['cells of']:11} {row['cells']:>5} {left_out}{more}"


def _percent(value: float | None) -> str:
    return "-" if value is None or np.isnan(value) else f"{value:.1f} %"


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="*", help="calibration, the only one")
    parser.add_argument("--quick", action="store_true", help="the same: all of it takes seconds")
    result_files.add_arguments(parser)
    chosen = parser.parse_args(given)
    if unknown := [part for part in chosen.part if part != "calibration"]:
        parser.error(f"no part is called {', '.join(unknown)}; parts: calibration")
    result_files.parts_on(parser, chosen.device, chosen.part)
    return chosen


def main() -> int:
    """Print the rows, and store them if asked."""
    given = arguments()
    rows = cluster_rows()
    head = " ".join(f"{name.replace('_', ' '):>13}" for name in COLUMNS)
    print(f"\nMean errors of cells\n{'where':10} {'data set':14} {'cells of':11} {'cells':>5} {head}")
    print(*map(row_text, rows), sep="\n")
    result_files.write(given, result_files.machine(), {"calibration": {"rows": rows, "claims": []}})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
