"""A calibration as Markdown: what was measured, predicted, and how far one is from the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtdg_lab.control.rpc_fit import RpcFit, told_rate
from dtdg_lab.control.step_model import StepModel

MIDDLE = 16  # the window that the plain guess takes
ALIKE = 0.01  # windows predicted so near to the best are one choice: the one nearest to the middle is taken

if TYPE_CHECKING:
    from dtdg_lab.control.calibration import Calibration, CellError


def calibration_table(calibration: Calibration) -> str:
    """Constants, cells and errors of every data set that a calibration means."""
    datasets = [calibration.dataset] if calibration.dataset else list(calibration.steps)
    parts = []
    for dataset in datasets:
        parts += [f"### {dataset}", _constants(calibration.steps[dataset])]
        if dataset in calibration.cells:
            errors = calibration.errors(dataset)
            parts += [_cells(errors), _regrets(errors)]
        if dataset in calibration.rpc:
            parts.append(_fetches(calibration.rpc[dataset]))
    return "\n\n".join(parts) + "\n"


def mean_percent(errors: Sequence[CellError]) -> tuple[float, float, float]:
    """Mean of |predicted / measured - 1| in percent: fitted, a cell left out, a condition left out.

    Cells that could not be predicted without their condition are not counted in the last.
    """
    fitted, cell_out, condition_out = (
        _mean([_off(getattr(error, name), error) for error in errors])
        for name in ("predicted_ms", "cell_out_ms", "condition_out_ms")
    )
    return fitted, cell_out, condition_out


def against_middle(errors: Sequence[CellError]) -> tuple[float, float, float, int]:
    """Mean errors in percent over the cells that the plain guess has something to say of, and how many these are.

    The guess is what was measured under the same condition at W = 16.

    Returns:
        Of the guess; of fits without the cell; of fits without its condition; cells. NaN where there are none.
    """
    both = [error for error in errors if not np.isnan(error.middle_ms)]
    guess, cell_out, condition_out = (
        _mean([_off(getattr(error, name), error) for error in both])
        for name in ("middle_ms", "cell_out_ms", "condition_out_ms")
    )
    return guess, cell_out, condition_out, len(both)


@dataclass(frozen=True, slots=True)
class WindowRegret:
    """What choosing a window by a model costs under one condition: measured time over the best measured one's.

    Attributes:
        dataset, condition: of the cells.
        windows: how many were measured.
        best: window with the least measured time.
        cell_out, condition_out: windows chosen by fits without the cell, and without the condition; None where one of
            its cells could not be predicted.
        cell_out_percent, condition_out_percent: measured time of these over the best, less 1, in percent, or NaN.
        middle_percent: the same of W = 16, or the window nearest to it, without any model.
    """

    dataset: str
    condition: str
    windows: int
    best: int
    cell_out: int | None
    condition_out: int | None
    cell_out_percent: float
    condition_out_percent: float
    middle_percent: float


def regrets(errors: Sequence[CellError]) -> list[WindowRegret]:
    """Regret of the chosen window under every condition of which at least two windows were measured.

    Windows that are predicted within 1 % of the best count as one choice, and the one nearest to 16 is taken.

    Args:
        errors: of ``Calibration.errors()``, with those of ``Calibration.errors_on`` where cells were kept back.
    """
    found = []
    for dataset, condition in dict.fromkeys((error.dataset, error.condition) for error in errors):
        own = [error for error in errors if (error.dataset, error.condition) == (dataset, condition)]
        if len({error.window for error in own}) < 2:
            continue
        best = min(own, key=lambda error: error.measured_ms)
        middle = min(own, key=_from_middle)
        by_cell, by_condition = _chosen(own, "cell_out_ms"), _chosen(own, "condition_out_ms")
        over = [
            float("nan") if each is None else 100 * (each.measured_ms / best.measured_ms - 1)
            for each in (by_cell, by_condition, middle)
        ]
        windows = tuple(None if each is None else each.window for each in (by_cell, by_condition))
        found.append(WindowRegret(dataset, condition, len(own), best.window, windows[0], windows[1], *over))
    return found


def _chosen(own: Sequence[CellError], name: str) -> CellError | None:
    """Nearest to the middle window among those that the model cannot tell from its best."""
    told = np.array([getattr(error, name) for error in own])
    if np.isnan(told).any():
        return None
    alike = [error for error, ms in zip(own, told, strict=True) if ms <= told.min() * (1 + ALIKE)]
    return min(alike, key=_from_middle)


def _from_middle(error: CellError) -> float:
    return float(abs(np.log2(error.window / MIDDLE)))


def _off(ms: float, error: CellError) -> float:
    return abs(100 * (ms / error.measured_ms - 1))


def _mean(off: Sequence[float]) -> float:
    known = [each for each in off if not np.isnan(each)]
    return float(np.mean(known)) if known else float("nan")


def _constants(model: StepModel) -> str:
    return (
        f"base {model.base_ms:.1f} ms, behind which {model.hidden_ms:.1f} ms of fetching hide; the slowest owner sends "
        f"{model.miss_mbit:.1f} Mbit of misses a step for endless windows, and {model.rebuild_mbit:.0f} Mbit for a "
        f"rebuild for W = 1, at {model.unhindered_mbit:.0f} Mbit/s if nothing throttles it; up to {model.trips:.1f} "
        f"waits of a step."
    )


def _cells(errors: Sequence[CellError]) -> str:
    rows = [
        "| condition | W | measured ms | predicted ms | error | cell left out | condition left out | same at W = 16 |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for error in errors:
        off = [
            _percent(told / error.measured_ms - 1)
            for told in (error.predicted_ms, error.cell_out_ms, error.condition_out_ms, error.middle_ms)
        ]
        rows.append(
            f"| {error.condition} | {error.window} | {error.measured_ms:.1f} | {error.predicted_ms:.1f} | "
            f"{' | '.join(off)} |"
        )
    guess, cell_out, condition_out, known = against_middle(errors)
    means = " | ".join(_plain(mean) for mean in (*mean_percent(errors), guess))
    rows.append(f"| mean of sizes | | | | {means} |")
    if not known:
        return "\n".join(rows)
    rows.append(
        f"| the same, over the {known} cells that the last column knows | | | | | {_plain(cell_out)} | "
        f"{_plain(condition_out)} | {_plain(guess)} |"
    )
    return "\n".join(rows)


def _regrets(errors: Sequence[CellError]) -> str:
    found = regrets(errors)
    if not found:
        return "No condition has two measured windows: nothing says what a chosen window costs."
    rows = [
        "| regret of the chosen window | windows | best | cell left out | condition left out | W = 16 |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for each in found:
        by = [
            f"W = {window}: {_plain(percent)}" if window is not None else "-"
            for window, percent in (
                (each.cell_out, each.cell_out_percent),
                (each.condition_out, each.condition_out_percent),
            )
        ]
        rows.append(
            f"| {each.condition} | {each.windows} | W = {each.best} | {' | '.join(by)} | "
            f"{_plain(each.middle_percent)} |"
        )
    return "\n".join(rows)


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


def _plain(percent: float) -> str:
    return "-" if np.isnan(percent) else f"{percent:.1f} %"


def _percent(share: float) -> str:
    return "-" if np.isnan(share) else f"{100 * share:+.1f} %"
