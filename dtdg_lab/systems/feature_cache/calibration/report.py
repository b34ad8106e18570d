"""Errors of a calibration, and the regret of windows chosen by it, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from dtdg_lab.network.links import BITS
from dtdg_lab.systems.feature_cache.calibration.fits import CELL_NOISE, RpcFit, StepTimeModel

MIDDLE = 16  # window of the baseline guess


def dataset_report(
    dataset: str, model: StepTimeModel, errors: Sequence[CellError] | None, fetches: RpcFit | None
) -> str:
    """Return constants, cells and errors of one data set as Markdown; parts without measurements are left out."""
    parts = [f"### {dataset}", _constants(model)]
    if errors is not None:
        parts += [_cells(errors), _regrets(errors)]
    if fetches is not None:
        parts.append(_fetches(fetches))
    return "\n\n".join(parts)


class LeftOutErrors(NamedTuple):
    """Errors of predictions, |predicted / measured - 1| in percent.

    Attributes:
        fitted: of the fit to all cells.
        cell_out, condition_out, window_out: of fits without the predicted cell, without all cells of its condition, and
            without all cells of its window.
        middle: of the baseline guess: the measurement under the same condition at the other window nearest to 16.
    """

    fitted: float
    cell_out: float
    condition_out: float
    window_out: float
    middle: float


def mean_errors(errors: Sequence[CellError]) -> LeftOutErrors:
    """Return mean errors over the cells; each omits those that cannot be predicted, and is NaN without any."""
    return LeftOutErrors(*map(float, _percents(errors).abs().mean()))


def judge_fit(errors: Sequence[CellError]) -> str:
    """Return in words whether cells are plausible, and predicted by fits without them better than by a guess."""
    clean_ms = {error.window: error.measured_ms for error in errors if error.condition == "clean"}
    least = 1 - 2 * CELL_NOISE
    too_fast = [error.condition for error in errors if error.measured_ms < least * clean_ms.get(error.window, 0.0)]
    if too_fast:
        return (
            f"Steps under {', '.join(too_fast)} were more than {1 - least:.0%} faster than on clean links: noise "
            "exceeds what these links cost, so a policy should not be trained with it. End other programs, and measure "
            "more steps (on the command line: without --quick)."
        )
    comparable = _percents(errors)[["cell_out_ms", "middle_ms"]].dropna()
    if comparable.empty:
        return "No condition has several windows, so the fit cannot be compared with a guess."
    fit_error, guess_error = comparable.abs().mean()
    compared = (
        f"A fit without a cell is off by {mean_errors(errors).cell_out:.3g} % there in the mean, and by "
        f"{fit_error:.3g} % at the {len(comparable)} cells where the window nearest to {MIDDLE} can be taken as a "
        f"guess, which is off by {guess_error:.3g} %"
    )
    if fit_error < guess_error:
        return f"{compared}."
    return (
        f"{compared}. The fit is no better than this guess, so a policy trained with it may choose wrong windows. End "
        "other programs and measure again."
    )


def largest_errors(errors: Sequence[CellError]) -> LeftOutErrors:
    """Return the largest error of any cell; NaN where none can be predicted."""
    return LeftOutErrors(*map(float, _percents(errors).abs().max()))


def _percents(errors: Sequence[CellError]) -> pd.DataFrame:
    """Return the relative error of each prediction in percent; NaN without a prediction."""
    table = pd.DataFrame(errors, columns=[*_PREDICTIONS, "measured_ms"])
    return 100 * (table[list(_PREDICTIONS)].div(table["measured_ms"], axis=0) - 1)


_PREDICTIONS = ("predicted_ms", "cell_out_ms", "condition_out_ms", "window_out_ms", "middle_ms")


@dataclass(frozen=True, slots=True)
class WindowRegret:
    """Measured time of a window chosen by a model, relative to the best measured window, under one condition.

    Attributes:
        dataset, condition: dataset and condition of the cells.
        windows: number of measured windows.
        best: window with the lowest measured time.
        cell_out, condition_out: windows chosen by fits without the cell, and without the condition; None if a cell
            could not be predicted.
        cell_out_percent, condition_out_percent: their measured time over the best, minus 1, in percent, or NaN.
        middle_percent: the same for the window nearest to 16, without any model.
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
    """Return the regret of the chosen window under every condition with at least two measured windows.

    Windows whose predictions are within a cell's noise of the best are equivalent; the one nearest to 16 is chosen.

    Args:
        errors: from ``Calibration.errors()``, or ``Calibration.errors_on`` for held-out cells.
    """
    by_condition: dict[tuple[str, str], list[CellError]] = {}
    for error in errors:
        by_condition.setdefault((error.dataset, error.condition), []).append(error)
    results = []
    for (dataset, condition), condition_errors in by_condition.items():
        if len({error.window for error in condition_errors}) < 2:
            continue
        best = min(condition_errors, key=lambda error: error.measured_ms)
        middle = min(condition_errors, key=_distance_from_middle)
        choices = _chosen_cell(condition_errors, "cell_out_ms"), _chosen_cell(condition_errors, "condition_out_ms")
        over = [
            float("nan") if choice is None else 100 * (choice.measured_ms / best.measured_ms - 1)
            for choice in (*choices, middle)
        ]
        cell_out, condition_out = (None if choice is None else choice.window for choice in choices)
        results.append(
            WindowRegret(dataset, condition, len(condition_errors), best.window, cell_out, condition_out, *over)
        )
    return results


def _chosen_cell(errors: Sequence[CellError], name: str) -> CellError | None:
    """Return the cell nearest to the middle window among those predicted as good as the best, if any."""
    lowest = np.min([getattr(error, name) for error in errors])
    alike = [error for error in errors if getattr(error, name) <= lowest * (1 + CELL_NOISE)]
    return min(alike, key=_distance_from_middle, default=None)  # a missing prediction makes the lowest NaN


def _distance_from_middle(error: CellError) -> float:
    return float(abs(np.log2(error.window / MIDDLE)))


def _constants(model: StepTimeModel) -> str:
    return (
        f"base {model.base_ms:.1f} ms, behind which {model.hidden_ms:.1f} ms of fetching hide; the slowest owner sends "
        f"{model.miss_mbit:.1f} Mbit of misses a step for endless windows, and {model.rebuild_mbit:.0f} Mbit for a "
        f"rebuild for W = 1, at {model.unhindered_mbit:.0f} Mbit/s if nothing throttles it; up to {model.trips:.1f} "
        f"waits of a step."
    )


def _cells(errors: Sequence[CellError]) -> str:
    off = ("error", "cell left out", "condition left out", "window left out", "same at W = 16")
    lines = [["condition", "W", "measured ms", "predicted ms", *off]]
    for error, percents in zip(errors, _percents(errors).to_numpy(), strict=True):
        milliseconds = [f"{error.measured_ms:.1f}", f"{error.predicted_ms:.1f}"]
        lines.append(
            [error.condition, str(error.window), *milliseconds, *(_percent_text(percent, "+") for percent in percents)]
        )
    lines.append(["mean of sizes", "", "", "", *map(_percent_text, mean_errors(errors))])
    lines.append(["largest", "", "", "", *map(_percent_text, largest_errors(errors))])
    if covered := [error for error in errors if not np.isnan(error.middle_ms)]:
        over = f"mean over the {len(covered)} cells that the last column knows"
        lines.append([over, "", "", "", *map(_percent_text, mean_errors(covered))])
    return _markdown_table(lines)


def _regrets(errors: Sequence[CellError]) -> str:
    results = regrets(errors)
    if not results:
        return "No condition has two measured windows: the regret of a chosen window is unknown."
    lines = [["regret of the chosen window", "windows", "best", "cell left out", "condition left out", "W = 16"]]
    for regret in results:
        by = (regret.cell_out, regret.cell_out_percent), (regret.condition_out, regret.condition_out_percent)
        texts = ["-" if window is None else f"W = {window}: {_percent_text(percent)}" for window, percent in by]
        lines.append(
            [regret.condition, str(regret.windows), f"W = {regret.best}", *texts, _percent_text(regret.middle_percent)]
        )
    return _markdown_table(lines)


def _fetches(fit: RpcFit) -> str:
    lines = [
        f"Fetches: {owner}: {model.a_s * 1e3:.2f} ms + {model.s_per_byte * 1e9:.2f} ns a byte"
        for owner, model in fit.owners.items()
    ]
    for name, link in fit.throttled.items():
        lines.append(
            f"{name}: owner {link.owner} sends each requester "
            f"{'endless' if np.isinf(link.bytes_per_s) else f'{link.bytes_per_s * BITS:.1f} Mbit/s'}, "
            f"{link.wait_s * 1e3:.1f} ms late"
        )
    table = [["fetches", "asked", "count", "median error", "mean error", "Eq. 4: median", "mean"]]
    for error in fit.errors:
        percents = [f"{percent:.0f} %" for percent in (error.median, error.mean, error.paper_median, error.paper_mean)]
        table.append([error.condition, "at once" if error.concurrent else "in turn", str(error.fetches), *percents])
    return "\n".join(f"- {line}" for line in lines) + "\n\n" + _markdown_table(table, text_columns=2)


def _percent_text(percent: float, sign: str = "") -> str:
    return "-" if np.isnan(percent) else f"{percent:{sign}.1f} %"


@dataclass(frozen=True, slots=True)
class CellError:
    """A measured cell and its predictions.

    Attributes:
        dataset, condition, window: identify the cell.
        measured_ms: mean of its steps.
        predicted_ms: by the model fitted to all cells, or to all others if this cell was held out.
        cell_out_ms: by a model fitted without this cell.
        condition_out_ms, window_out_ms: by models fitted without all cells of its condition, and without all cells of
            its window; NaN if too few remain.
        middle_ms: measurement under the same condition at the other window nearest to 16, a guess without a model; NaN
            if the condition has no other cell.
    """

    dataset: str
    condition: str
    window: int
    measured_ms: float
    predicted_ms: float
    cell_out_ms: float
    condition_out_ms: float
    window_out_ms: float = float("nan")
    middle_ms: float = float("nan")

    @property
    def percent(self) -> float:
        """Relative error of the prediction in percent."""
        return 100 * (self.predicted_ms / self.measured_ms - 1)


def _markdown_table(lines: Sequence[Sequence[str]], *, text_columns: int = 1) -> str:
    """Return a Markdown table with the first line as its head; columns after the first ``text_columns`` are numbers."""
    head, *body = lines
    rule = ["---"] * text_columns + ["---:"] * (len(head) - text_columns)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *body))
