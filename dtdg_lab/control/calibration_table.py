"""A calibration as Markdown: what was measured, predicted, and how far one is from the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dtdg_lab.control.rpc_fit import RpcFit, told_rate
from dtdg_lab.control.step_model import StepModel

if TYPE_CHECKING:
    from dtdg_lab.control.calibration import Calibration, CellError


def calibration_table(calibration: Calibration) -> str:
    """Constants, cells and errors of every data set that a calibration means."""
    datasets = [calibration.dataset] if calibration.dataset else list(calibration.steps)
    parts = []
    for dataset in datasets:
        parts += [f"### {dataset}", _constants(calibration.steps[dataset])]
        if dataset in calibration.cells:
            parts.append(_cells(calibration.errors(dataset)))
        if dataset in calibration.rpc:
            parts.append(_fetches(calibration.rpc[dataset]))
    return "\n\n".join(parts) + "\n"


def mean_percent(errors: Sequence[CellError]) -> tuple[float, float, float]:
    """Mean of |predicted / measured - 1| in percent: fitted, a cell left out, a condition left out.

    Cells that could not be predicted without their condition are not counted in the last.
    """
    measured = np.array([error.measured_ms for error in errors])
    told = np.array([(error.predicted_ms, error.cell_out_ms, error.condition_out_ms) for error in errors])
    fitted, cell_out, condition_out = np.nanmean(np.abs(told / measured[:, None] - 1), axis=0) * 100
    return float(fitted), float(cell_out), float(condition_out)


def _constants(model: StepModel) -> str:
    return (
        f"base {model.base_ms:.1f} ms; the slowest owner sends {model.miss_mbit:.1f} Mbit of misses a step for endless "
        f"windows, half of that at W = {model.half:.1f}, and {model.rebuild_mbit:.0f} Mbit for a rebuild, at "
        f"{model.unhindered_mbit:.0f} Mbit/s if nothing throttles it; {model.trips:.1f} waits of a step."
    )


def _cells(errors: Sequence[CellError]) -> str:
    rows = [
        "| condition | W | measured ms | predicted ms | error | cell left out | condition left out |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for error in errors:
        off = [
            _percent(told / error.measured_ms - 1)
            for told in (error.predicted_ms, error.cell_out_ms, error.condition_out_ms)
        ]
        rows.append(
            f"| {error.condition} | {error.window} | {error.measured_ms:.1f} | {error.predicted_ms:.1f} | "
            f"{' | '.join(off)} |"
        )
    means = " | ".join(f"{mean:.1f} %" for mean in mean_percent(errors))
    return "\n".join([*rows, f"| mean of sizes | | | | {means} |"])


def _fetches(fit: RpcFit) -> str:
    lines = [
        f"Fetches: {owner}: {model.a_s * 1e3:.2f} ms + {model.s_per_byte * 1e9:.2f} ns a byte"
        for owner, model in fit.owners.items()
    ]
    for name, link in fit.throttled.items():
        lines.append(
            f"{name}: owner {link.owner} sends each requester {told_rate(link.bytes_per_s)}, "
            f"{link.wait_s * 1e3:.1f} ms late"
        )
    rows = [
        "| fetches | asked | count | median error | mean error | Eq. 4: median | mean |",
        "|---|---|---:|---:|---:|---:|---:|",
        *(
            f"| {error.condition} | {'at once' if error.concurrent else 'in turn'} | {error.fetches} | "
            f"{error.median:.0f} % | {error.mean:.0f} % | {error.paper_median:.0f} % | {error.paper_mean:.0f} % |"
            for error in fit.errors
        ),
    ]
    return "\n".join(f"- {line}" for line in lines) + "\n\n" + "\n".join(rows)


def _percent(share: float) -> str:
    return "-" if np.isnan(share) else f"{100 * share:+.1f} %"
