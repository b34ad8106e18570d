"""Fits the step-time model to measured cells: five constants a data set, and two that those of a cluster share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.calibration_files import StepCell
from dtdg_lab.control.conditions import condition
from dtdg_lab.control.small_fit import least_squares, softened
from dtdg_lab.control.step_model import StepModel
from dtdg_lab.core.errors import DataError

Vector = NDArray[np.float64]
CLUSTER = ("trips", "unhindered_mbit")  # the same code waits for as many replies, on the same network
OWN = ("base_ms", "hidden_ms", "miss_mbit", "rebuild_mbit", "exponent")
FREE = (*OWN, *CLUSTER)
NOISE = 0.02  # relative error of a cell that is nothing special; the pull of much larger ones is cut

# Where the fit starts, and how loosely logarithms are held there: as a standard deviation, beside a cell's of 0.02.
# Without that, constants that the cells say nothing about (some left out, none throttled) would be anything.
_TRIPS, _UNHINDERED, _EXPONENT = 10.0, 5000.0, 0.2
_HIDDEN = 0.08  # of a step
_REBUILD = 4.0  # times the traffic of the middle window
_HELD = np.array([0.5, 0.5, 0.7, 1.0, 0.2])  # base, hidden, miss, rebuild, exponent (itself)
_HELD_CLUSTER = np.array([0.5, 0.5])
_LEAST = 7


def fit_steps(cells: Mapping[str, Sequence[StepCell]]) -> dict[str, StepModel]:
    """A model for each data set, fitted to all of its cells by least squares of the logarithms, robustly.

    Raises:
        DataError: a data set has fewer than seven cells.

    References: the robust loss is Cauchy's (:func:`dtdg_lab.control.small_fit.softened`).
    """
    for dataset, own in cells.items():
        if len(own) < _LEAST:
            raise DataError(
                f"{dataset}: {len(own)} measured steps; at least {_LEAST} are needed for {len(FREE)} constants."
            )
    conditions = {dataset: _columns(own) for dataset, own in cells.items()}
    start = np.concatenate([np.log([_TRIPS, _UNHINDERED]), *(_start(*columns) for columns in conditions.values())])
    held = np.concatenate([_HELD_CLUSTER, *([_HELD] * len(conditions))])

    def residuals(tried: Vector) -> Vector:
        off = [(tried - start) / held]
        for place, (windows, mbit, delay_ms, measured) in enumerate(conditions.values()):
            model = _model(tried, place)
            off.append(softened(np.log(model.step_ms(windows, mbit, delay_ms) / measured) / NOISE))
        return np.concatenate(off)

    fitted = least_squares(residuals, start)
    return {dataset: _model(fitted, place) for place, dataset in enumerate(cells)}


def left_out(
    cells: Mapping[str, Sequence[StepCell]],
    dataset: str,
    same: Callable[[StepCell, StepCell], bool],
    *,
    of: Sequence[StepCell] | None = None,
) -> Vector:
    """Milliseconds of cells of a data set, (C,), as predicted by fits to the cells that are not the same as each.

    Args:
        cells: by data set; those of the others are always fitted.
        dataset: the one whose cells are left out in turn.
        same: whether the second must be left out where the first is predicted.
        of: cells to predict; None for those of the data set.

    Returns:
        NaN where too few cells would be left to fit.
    """
    own = cells[dataset]
    asked = own if of is None else of
    kept_by_cell = [tuple(not same(cell, other) for other in own) for cell in asked]
    predicted = np.full(len(asked), np.nan)
    for kept in dict.fromkeys(kept_by_cell):
        rest = [cell for cell, stays in zip(own, kept, strict=True) if stays]
        if len(rest) < _LEAST:
            continue
        here = np.array([others == kept for others in kept_by_cell])
        model = fit_steps({**cells, dataset: rest})[dataset]
        predicted[here] = predicted_ms(model, asked)[here]
    return predicted


def predicted_ms(model: StepModel, cells: Sequence[StepCell]) -> Vector:
    """Milliseconds that a model gives each cell, (C,)."""
    windows, mbit, delay_ms, _ = _columns(cells)
    return model.step_ms(windows, mbit, delay_ms)


def _columns(cells: Sequence[StepCell]) -> tuple[Vector, Vector, Vector, Vector]:
    """Window, Mbit/s, ms of delay and measured ms, each (C,)."""
    under = [condition(cell.condition) for cell in cells]
    rows = [(cell.window, on.mbit, on.delay_ms, cell.ms) for cell, on in zip(cells, under, strict=True)]
    windows, mbit, delay_ms, measured = np.array(rows, dtype=np.float64).T
    return windows, mbit, delay_ms, measured


def _start(windows: Vector, mbit: Vector, delay_ms: Vector, measured: Vector) -> Vector:
    """Where the fit begins: what throttled cells say of the traffic, or else the slowest step on a free network."""
    fastest, throttled = float(measured.min()), np.isfinite(mbit)
    clean = ~throttled & (delay_ms == 0)
    if throttled.any():
        traffic = float(np.median((measured[throttled] - fastest) * mbit[throttled])) / 1e3
    else:
        traffic = (float(measured.max()) - fastest) * _UNHINDERED / _REBUILD / 1e3
    traffic = max(traffic, fastest / 1e3)
    base = float(np.median(measured[clean])) if clean.any() else fastest
    return np.array([*np.log([base, _HIDDEN * base, traffic, _REBUILD * traffic]), _EXPONENT])


def _model(fitted: Vector, place: int) -> StepModel:
    """The model of a data set: all are fitted as logarithms, but for the exponent."""
    first = len(CLUSTER) + place * len(OWN)
    named = dict(zip(FREE, map(float, [*fitted[first : first + len(OWN)], *fitted[: len(CLUSTER)]]), strict=True))
    return StepModel(**{name: value if name == "exponent" else float(np.exp(value)) for name, value in named.items()})
