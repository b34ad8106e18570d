"""Calibration of the costs of steps and fetches, from measurements or as shipped, and its predictions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dtdg_lab.core.errors import ConfigError, UnknownNameError, shortened
from dtdg_lab.systems.feature_cache.calibration.fits import (
    RpcFit,
    StepTimeModel,
    Vector,
    fit_rpc,
    fit_steps,
    left_out,
    predicted_ms,
)
from dtdg_lab.systems.feature_cache.calibration.measurements import (
    StepCell,
    Watts,
    checked_fetches,
    condition_named,
    read_fetches,
    read_power,
    read_steps,
)
from dtdg_lab.systems.feature_cache.calibration.report import MIDDLE, CellError, dataset_report
from dtdg_lab.systems.feature_cache.costs.cache_costs import CacheCosts, RpcModel

if TYPE_CHECKING:
    import pandas as pd


PARTS = 4
ROW_BYTES = MappingProxyType({"ogbn-products": 400.0, "reddit": 2408.0})
STEP_MODELS = MappingProxyType(
    {
        "reddit": StepTimeModel(92.6715, 7.80078, 41.003, 499.674, -0.163672, 11.6038, 5145.07),
        "ogbn-products": StepTimeModel(124.426, 10.8019, 104.665, 185.854, 0.18949, 11.6038, 5145.07),
    }
)
RPC = MappingProxyType(
    {"reddit": RpcModel(1.2572e-3, 2.5569e-9), "ogbn-products": RpcModel(1.3018e-3, 3.0463e-9)}
)  # medians over owners
NOISE = 0.4  # standard deviation of the logarithm of a fetch's time around that model
WATTS = Watts(busy=168.7775, stall=150.715, idle=110.0225)

# for other datasets whose fetches were not measured
DEFAULT_ROW_BYTES = 400.0
DEFAULT_RPC = RpcModel(1.3e-3, 3e-9)

# base_ms, miss_mbit, half, rebuild_mbit, exponent, trips, unhindered_mbit
_ADDED = MappingProxyType(
    {
        "ogbn-products": (112.714, 101.584, 10.1607, 187.616, 0.46635, 11.1607, 5126.12),
        "reddit": (84.007, 75.989, 34.217, 504.03, -0.21249, 11.5531, 5126.12),
    }
)


def products(parts: int = PARTS) -> CacheCosts:
    """Return GraphSAGE on ogbn-products, batches of 2000: the cache contains half of the requested rows."""
    return shipped_costs("ogbn-products", parts)


def reddit(parts: int = PARTS) -> CacheCosts:
    """Return GraphSAGE on Reddit, batches of 2000: the cache contains nearly all requested rows."""
    return shipped_costs("reddit", parts)


def shipped_costs(name: str, parts: int = PARTS) -> CacheCosts:
    """Return the shipped constants of a data set, as seen by one of P - 1 requesters.

    Raises:
        UnknownNameError: the dataset is unknown.
        ConfigError: fewer than two parts.
    """
    if name not in _ADDED:
        raise UnknownNameError("data set with shipped costs", name, _ADDED)
    base_ms, miss_mbit, half, rebuild_mbit, exponent, trips, unhindered_mbit = _ADDED[name]
    model = StepTimeModel(base_ms, 0.0, miss_mbit, rebuild_mbit, exponent, trips, unhindered_mbit)
    costs = model.costs(name, parts=parts, row_bytes=ROW_BYTES[name], watts=WATTS, rpc=RPC[name], noise=NOISE)
    costs = replace(costs, trips=trips, rebuild_trips=1.0, miss_trips=0.0, hit_half=half)
    return replace(costs, norm=1.5, wait_rows=1.0, overlapped=False)


_SHORT = {"products": "ogbn-products"}


@dataclass(frozen=True)
class Calibration:
    """Models fitted to measurements of one cluster.

    Attributes:
        steps: dataset -> model of a step.
        rpc: dataset -> model of a fetch; empty without measured fetches.
        watts: of a host; None without measured power.
        cells: dataset -> the fitted cells; empty for the shipped constants.
        dataset: default dataset of predictions, if any.
    """

    steps: Mapping[str, StepTimeModel]
    rpc: Mapping[str, RpcFit]
    watts: Watts | None
    cells: Mapping[str, tuple[StepCell, ...]]
    dataset: str | None = None
    _errors: dict[str, list[CellError]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def predict(self, condition: str, window: int, *, dataset: str | None = None) -> float:
        """Return milliseconds of a step under a condition with a window.

        Args:
            condition: "clean", "c1_<X>mbit" (X Mbit/s left to one owner) or "c4_<Y>ms" (Y ms on one link); the units
                may be omitted.
            window: W, a whole number of at least 1, whether or not an action has it.
            dataset: a calibrated dataset; may be omitted if there is only one or a default.

        Raises:
            ConfigError: condition, window or dataset is invalid.
        """
        if isinstance(window, bool) or not isinstance(window, int | np.integer) or window < 1:
            raise ConfigError(f"window={shortened(window)} is not a whole number of steps. Give 1 or more.")
        under = condition_named(condition)
        return float(self.steps[self._resolve_dataset(dataset)].step_ms(window, under.mbit, under.delay_ms))

    def costs(self, dataset: str | None = None, *, parts: int | None = None) -> CacheCosts:
        """Return the model as constants of the simulator and the planner.

        Power and the model of a fetch are the shipped ones if they were not measured.

        Args:
            dataset: a calibrated dataset; may be omitted if there is only one or a default.
            parts: P of the costs; None for the number in the measured fetches, or else four.

        Raises:
            ConfigError: the dataset is unknown, or there are fewer than two parts.
        """
        name = self._resolve_dataset(dataset)
        fitted = self.rpc.get(name)
        measured = PARTS if fitted is None else len(fitted.owners)
        return self.steps[name].costs(
            name,
            parts=measured if parts is None else parts,
            row_bytes=ROW_BYTES.get(name, DEFAULT_ROW_BYTES) if fitted is None else fitted.row_bytes,
            watts=self.watts or WATTS,
            rpc=RPC.get(name, DEFAULT_RPC) if fitted is None else fitted.typical,
            noise=NOISE if fitted is None else fitted.noise,
        )

    def errors(self, dataset: str | None = None) -> list[CellError]:
        """Return every measured cell with its predictions, of one data set or of all.

        The fits take a few seconds, once.
        """
        only = dataset or self.dataset
        names = list(self.cells) if only is None else [self._resolve_dataset(only)]
        for name in names:
            if name not in self._errors:
                cells = self.cells[name]
                without = [left_out(self.cells, name, same) for same in (operator.is_, *_SAME)]
                self._errors[name] = _cell_errors(cells, cells, predicted_ms(self.steps[name], cells), *without)
        return [error for name in names for error in self._errors[name]]

    def errors_on(self, source: str | Path | Iterable[Mapping[str, Any]]) -> list[CellError]:
        """Return held-out cells with their predictions, which :func:`regrets` also accepts.

        ``cell_out_ms`` is the prediction itself; ``condition_out_ms`` and ``window_out_ms`` are predictions of fits
        without the cell's condition and without its window.

        Args:
            source: as in :func:`calibrate`, with calibrated datasets only.

        Raises:
            DataError: there is nothing to read, or a row is invalid.
            ConfigError: a dataset is not calibrated, or a condition has an unknown form.
        """
        errors = []
        for dataset, held_out in read_steps(source).items():
            fitted_cells = self.cells.get(self._resolve_dataset(dataset), ())
            without = [left_out(self.cells, dataset, same, targets=held_out) for same in _SAME]
            predicted = predicted_ms(self.steps[dataset], held_out)
            errors += _cell_errors(held_out, fitted_cells, predicted, predicted, *without)
        return errors

    def table(self) -> str:
        """Return the report of the calibration, as Markdown: cells, errors, regret and constants."""
        reports = [
            dataset_report(
                name, self.steps[name], self.errors(name) if name in self.cells else None, self.rpc.get(name)
            )
            for name in ([self.dataset] if self.dataset else self.steps)
        ]
        return "\n\n".join(reports) + "\n"

    def _resolve_dataset(self, dataset: str | None) -> str:
        name = dataset or self.dataset or (next(iter(self.steps)) if len(self.steps) == 1 else None)
        if name is None:
            raise ConfigError(f"dataset is ambiguous: set it to one of {', '.join(self.steps)}.")
        name = _SHORT.get(name, name)
        if name not in self.steps:
            raise UnknownNameError("calibrated data set", name, self.steps)
        return name


SHIPPED = Calibration(STEP_MODELS, {}, WATTS, {})


# what else is left out to predict a cell: its condition, or its window
_SAME: tuple[Callable[[StepCell, StepCell], bool], ...] = (
    lambda cell, omitted: cell.condition == omitted.condition,
    lambda cell, omitted: cell.window == omitted.window,
)


def _cell_errors(cells: Sequence[StepCell], measured_cells: Sequence[StepCell], *predicted: Vector) -> list[CellError]:
    """Return cells with their predictions: by all cells, without the cell, its condition, and its window."""
    errors = []
    for cell, fitted_ms, *left_out_ms in zip(cells, *(column.tolist() for column in predicted), strict=True):
        cell_ms, condition_ms, window_ms = left_out_ms
        middle_ms = _middle_ms(cell, measured_cells)
        measured = cell.dataset, cell.condition, cell.window, cell.ms
        errors.append(CellError(*measured, fitted_ms, cell_ms, condition_ms, window_ms, middle_ms))
    return errors


def _middle_ms(cell: StepCell, measured_cells: Sequence[StepCell]) -> float:
    """Return the measurement at the window nearest to 16 under the same condition; NaN if there is no other."""
    same = condition_named(cell.condition)
    candidates = [
        candidate
        for candidate in measured_cells
        if candidate is not cell and condition_named(candidate.condition) == same
    ]
    return (
        min(candidates, key=lambda candidate: abs(np.log2(candidate.window / MIDDLE))).ms
        if candidates
        else float("nan")
    )


def calibrate(
    source: str | Path | Iterable[Mapping[str, Any]],
    *,
    dataset: str | None = None,
    fetches: Mapping[str, pd.DataFrame] | None = None,
) -> Calibration:
    """Fit the models of steps and fetches to measurements of one cluster.

    Each dataset has five free constants. All datasets of a cluster share two more: the sequential replies of a step,
    and the rate of an unthrottled owner. So all datasets of the source are fitted together, whichever is the default.

    Args:
        source: a folder with ``step_time.csv`` and, optionally, ``fetch_rtt.csv.gz`` and ``power.csv``; or rows with
            dataset, condition, window and measured_ms (mappings, or a pandas table).
        dataset: default dataset of predictions.
        fetches: by dataset, instead of the folder's; see :func:`fetches_of`.

    Raises:
        DataError: there is nothing to read, or a row is invalid.
        ConfigError: the dataset is unknown, a condition has an unknown form, or ``fetches`` is no mapping to tables.

    References: GreenDyGNN section IV-B, algorithm 1.
    """
    cells = {name: tuple(dataset_rows) for name, dataset_rows in read_steps(source).items()}
    folder = Path(source) if isinstance(source, str | Path) and Path(source).is_dir() else None
    measured = checked_fetches(fetches) if fetches is not None else {} if folder is None else read_fetches(folder)
    calibration = Calibration(
        steps=fit_steps(cells),
        rpc={name: fit_rpc(dataset_rows) for name, dataset_rows in measured.items()},
        watts=None if folder is None else read_power(folder),
        cells=cells,
        dataset=_SHORT.get(dataset, dataset) if dataset else None,
    )
    if dataset:
        calibration._resolve_dataset(dataset)
    return calibration


def predict(condition: str, window: int, *, dataset: str, calibration: Calibration | None = None) -> float:
    """Return milliseconds of a step, by a calibration or by the shipped constants.

    See :meth:`Calibration.predict`.
    """
    return (calibration or SHIPPED).predict(condition, window, dataset=dataset)
