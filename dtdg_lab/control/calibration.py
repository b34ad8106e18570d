"""Calibrates what steps and fetches cost from measurements, and predicts steps that were not measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dtdg_lab.control.cache_costs import CacheCosts
from dtdg_lab.control.calibration_files import Fetches, StepCell, Watts, read_fetches, read_power, read_steps
from dtdg_lab.control.calibration_table import MIDDLE, calibration_table
from dtdg_lab.control.conditions import condition as of_name
from dtdg_lab.control.rpc_fit import RpcFit, fit_rpc
from dtdg_lab.control.shipped_steps import (
    DEFAULT_ROW_BYTES,
    DEFAULT_RPC,
    NOISE,
    PARTS,
    ROW_BYTES,
    RPC,
    STEPS,
    WATTS,
)
from dtdg_lab.control.step_fit import fit_steps, left_out, predicted_ms
from dtdg_lab.control.step_model import StepModel
from dtdg_lab.core.errors import ConfigError, UnknownNameError, shortened

_SHORT = {"products": "ogbn-products"}


@dataclass(frozen=True, slots=True)
class CellError:
    """A measured cell beside what is predicted for it.

    Attributes:
        dataset, condition, window: of the cell.
        measured_ms: mean of its steps.
        predicted_ms: by the model fitted to all cells; to all others, where this cell was none of them.
        cell_out_ms: by a model fitted without this cell.
        condition_out_ms: by a model fitted without all cells of its condition; NaN where too few are left.
        middle_ms: what was measured under the same condition at W = 16, or at the nearest other window: a guess that
            needs no model. NaN where the condition has no other cell.
    """

    dataset: str
    condition: str
    window: int
    measured_ms: float
    predicted_ms: float
    cell_out_ms: float
    condition_out_ms: float
    middle_ms: float = float("nan")

    @property
    def percent(self) -> float:
        """Predicted over measured, minus 1, in percent."""
        return 100 * (self.predicted_ms / self.measured_ms - 1)


@dataclass(frozen=True)
class Calibration:
    """Models fitted to measurements of one cluster.

    Attributes:
        steps: data set -> model of a step.
        rpc: data set -> model of a fetch; empty where no fetches were given.
        watts: of a host; None where no power was given.
        cells: data set -> what was fitted; empty for the shipped constants.
        dataset: that is meant where none is named; None for any.
    """

    steps: Mapping[str, StepModel]
    rpc: Mapping[str, RpcFit]
    watts: Watts | None
    cells: Mapping[str, tuple[StepCell, ...]]
    dataset: str | None = None
    _told: dict[str, tuple[CellError, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def predict(self, condition: str, window: int, *, dataset: str | None = None) -> float:
        """Milliseconds of a step under a condition at a window.

        Args:
            condition: "clean", "c1_<X>mbit" (X Mbit/s left to one owner) or "c4_<Y>ms" (Y ms on one link); the units
                may be left out.
            window: W, at least 1: any whole number, also such as no action has.
            dataset: one of those that were calibrated; may be left out where only one is meant.

        Raises:
            ConfigError: no such condition, window or data set.
        """
        if isinstance(window, bool) or not isinstance(window, int | np.integer) or window < 1:
            raise ConfigError(f"window={shortened(window)}: a whole number of steps, at least 1, is needed.")
        under = of_name(condition)
        return float(self.steps[self._meant(dataset)].step_ms(window, under.mbit, under.delay_ms))

    def costs(self, dataset: str | None = None, *, parts: int | None = None) -> CacheCosts:
        """The same model as constants of the simulator and the planner.

        Power, and the model of a fetch, are the shipped ones where they were not measured.

        Args:
            dataset: one of those that were calibrated; may be left out where only one is meant.
            parts: P of the costs; None for as many as fetched from each other, or else four.

        Raises:
            ConfigError: no such data set, or fewer than two parts.
        """
        name = self._meant(dataset)
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
        """Every measured cell beside its predictions, of one data set or of all: takes about a second, once."""
        only = dataset or self.dataset
        names = list(self.cells) if only is None else [self._meant(only)]
        return [error for name in names for error in self._errors_of(name)]

    def errors_on(self, source: str | Path | Iterable[Mapping[str, Any]]) -> list[CellError]:
        """Cells that were kept back, beside what is predicted for them; :func:`regrets` takes them, too.

        ``cell_out_ms`` is the prediction itself, and ``condition_out_ms`` that of a fit without the cell's condition.

        Args:
            source: as of :func:`calibrate`; of data sets that were calibrated.

        Raises:
            DataError: nothing to read, or a row that is not what it should be.
            ConfigError: no such data set was calibrated, or a condition of no known form.
        """
        found = []
        for dataset, kept in read_steps(source).items():
            own = self.cells.get(self._meant(dataset), ())
            without = left_out(self.cells, dataset, lambda cell, other: cell.condition == other.condition, of=kept)
            told = zip(kept, predicted_ms(self.steps[dataset], kept), without, strict=True)
            found += [
                CellError(
                    dataset,
                    cell.condition,
                    cell.window,
                    cell.ms,
                    float(ms),
                    float(ms),
                    float(out_ms),
                    _middle_ms(cell, own),
                )
                for cell, ms, out_ms in told
            ]
        return found

    def table(self) -> str:
        """Cells, mean errors, the plain guess's, regret, constants and the models of a fetch, as Markdown."""
        return calibration_table(self)

    def _errors_of(self, dataset: str) -> tuple[CellError, ...]:
        if dataset not in self._told:
            own = self.cells[dataset]
            told = (
                predicted_ms(self.steps[dataset], own),
                left_out(self.cells, dataset, lambda cell, other: cell is other),
                left_out(self.cells, dataset, lambda cell, other: cell.condition == other.condition),
            )
            self._told[dataset] = tuple(
                CellError(
                    dataset,
                    cell.condition,
                    cell.window,
                    cell.ms,
                    float(ms),
                    float(cell_out),
                    float(out),
                    _middle_ms(cell, own),
                )
                for cell, ms, cell_out, out in zip(own, *told, strict=True)
            )
        return self._told[dataset]

    def _meant(self, dataset: str | None) -> str:
        meant = dataset or self.dataset or (next(iter(self.steps)) if len(self.steps) == 1 else None)
        if meant is None:
            raise ConfigError(f"which data set? Give dataset=, one of {', '.join(self.steps)}.")
        meant = _SHORT.get(meant, meant)
        if meant not in self.steps:
            raise UnknownNameError("calibrated data set", meant, self.steps)
        return meant


SHIPPED = Calibration(STEPS, {}, WATTS, {})


def _middle_ms(cell: StepCell, known: Sequence[StepCell]) -> float:
    """Measured under the same condition at the window nearest to 16, but not in the cell itself; NaN if nowhere."""
    same = of_name(cell.condition)
    others = [other for other in known if other is not cell and of_name(other.condition) == same]
    return min(others, key=lambda other: abs(np.log2(other.window / MIDDLE))).ms if others else float("nan")


def calibrate(
    source: str | Path | Iterable[Mapping[str, Any]],
    *,
    dataset: str | None = None,
    fetches: Mapping[str, Fetches] | None = None,
) -> Calibration:
    """Fit the models of steps and fetches to measurements of one cluster.

    Five constants of each data set are free, and two that the data sets of a cluster share: the replies that a step
    waits for, and the rate of an owner that nothing throttles. So all that the source holds are fitted together,
    whichever is meant.

    Args:
        source: a folder with ``step_time.csv`` and, if there, ``fetch_rtt.csv.gz`` and ``power.csv``; or rows with
            dataset, condition, window and measured_ms (mappings, or a table of pandas).
        dataset: the one that is meant where predictions name none.
        fetches: by data set, instead of the folder's; see :mod:`dtdg_lab.control.calibration_records`.

    Raises:
        DataError: nothing to read, or a row that is not what it should be.
        ConfigError: no such data set there, or a condition of no known form.

    References: GreenDyGNN section IV-B, algorithm 1.
    """
    cells = {name: tuple(own) for name, own in read_steps(source).items()}
    folder = Path(source) if isinstance(source, str | Path) and Path(source).is_dir() else None
    measured = fetches if fetches is not None else {} if folder is None else read_fetches(folder)
    calibration = Calibration(
        steps=fit_steps(cells),
        rpc={name: fit_rpc(own) for name, own in measured.items()},
        watts=None if folder is None else read_power(folder),
        cells=cells,
        dataset=_SHORT.get(dataset, dataset) if dataset else None,
    )
    if dataset:
        calibration._meant(dataset)
    return calibration


def predict(condition: str, window: int, *, dataset: str, calibration: Calibration | None = None) -> float:
    """Milliseconds of a step, by a calibration or by the shipped constants; see :meth:`Calibration.predict`."""
    return (calibration or SHIPPED).predict(condition, window, dataset=dataset)
