"""Errors of predictions: every measured run is predicted by rates fitted to the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import median
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.errors import PlanError
from dtdg_lab.core.units import percent
from dtdg_lab.forecast.measured_runs import QUANTITIES, MeasuredRun
from dtdg_lab.forecast.rates import Rates, fit_rates, kind_of
from dtdg_lab.visualization.studies.advice import relative_errors


@dataclass(frozen=True, slots=True)
class RunError:
    """The error of one predicted quantity of one run.

    Attributes:
        run: the run's name.
        system: the run's system.
        ranks: number of ranks R.
        quantity: one of ``QUANTITIES``.
        measured: value measured in the run.
        predicted: predicted value.
        left_out: whether other runs gave the prediction; otherwise the run itself did, which is a weak check.
        system_known: whether the others included runs of its system, on one or on several ranks as in this run.
        crowded: whether other processes used the machine, which affects the run's seconds.
    """

    run: str
    system: str
    ranks: int
    quantity: str
    measured: float
    predicted: float
    left_out: bool
    system_known: bool
    crowded: bool = False

    @property
    def error(self) -> float:
        """Predicted over measured value, minus 1."""
        return self.predicted / self.measured - 1

    def row(self) -> dict[str, Any]:
        """Return the error as plain values."""
        return {name: getattr(self, name) for name in (*self.__slots__, "error")}


def learn_errors(runs: Sequence[MeasuredRun]) -> tuple[RunError, ...]:
    """Predict every run by rates of the others, quantity by quantity.

    Args:
        runs: measured runs. A single run is predicted by its own rates, and marked as such.
    """
    errors = []
    for index, run in enumerate(runs):
        other_runs = [*runs[:index], *runs[index + 1 :]]
        rates = fit_rates(other_runs or runs, run.facts)
        kind = kind_of(run.system, run.work.ranks)
        system_known = any(kind_of(measured.system, measured.work.ranks) == kind for measured in other_runs)
        try:
            epoch = rates.predict(run.work, run.facts)
        except PlanError:  # rates of the others do not cover this run's work
            continue
        for name in QUANTITIES:
            measured, predicted = run.quantities.get(name), float(getattr(epoch, name))
            if not measured or not predicted or not isfinite(predicted):
                continue
            if name == "epoch_s" and run.shared:
                continue  # ranks shared cores, so the wall time holds for this machine only
            identity = (run.run.id, run.system, run.work.ranks, name)
            errors.append(RunError(*identity, measured, predicted, bool(other_runs), system_known, run.crowded))
    return tuple(errors)


def summarize_errors(
    errors: Sequence[RunError], quantity: str, system: str | None = None
) -> tuple[float, float, int] | None:
    """Return median and largest absolute error of a quantity, and the number of runs; None if there are none.

    For seconds and imbalance, runs on a busy machine count only if there are no others.

    Args:
        errors: errors of predictions.
        quantity: name of the quantity.
        system: system of the runs; by default all.
    """
    rows = [error.row() for error in errors if error.quantity == quantity and system in (None, error.system)]
    values = relative_errors(rows)
    return (median(values), max(values), len(values)) if values else None


_RATES_OF: Mapping[str, tuple[str, ...]] = {
    "epoch_s": ("compute", "communicate", "transfer", "fetch"),
    "rank_bytes": (),
    "peak_bytes": ("memory",),
    "imbalance": ("compute",),
}


@dataclass(frozen=True, slots=True)
class KnownError:
    """The known error of one predicted quantity, which is printed next to it.

    Attributes:
        kind: ``exact`` (the quantity is counted), ``learnt`` (from runs of this system), ``of others`` (from runs of
            other systems) or ``assumed`` (no run provides it).
        middle: median of abs(predicted - measured) / measured over these runs, each left out of the fit; None if
            unknown.
        worst: the largest of these errors.
        runs: number of runs.
        assumed: parts of the quantity whose rates come from no run.
    """

    kind: str
    middle: float | None = None
    worst: float | None = None
    runs: int = 0
    assumed: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.kind == "exact":
            return "exact"
        if self.middle is None or self.worst is None:
            return "assumed"
        source = " of other systems)" if self.kind == "of others" else ")"
        assumed = f"; {', '.join(self.assumed)} assumed" if self.assumed else ""
        runs = f"{self.runs} run{'s' * (self.runs > 1)}"
        return f"± {percent(self.middle)}, worst {percent(self.worst)} ({runs}{source}{assumed}"


def known_errors(
    errors: Sequence[RunError], rates: Rates, system: str, *, exact: frozenset[str], needs: frozenset[str]
) -> Mapping[str, KnownError]:
    """Return the known error of each of a system's ``QUANTITIES``.

    Args:
        errors: errors learned from runs.
        rates: rates used for the prediction.
        system: name of the system.
        exact: quantities that its work counts exactly.
        needs: parts of ``Rates.assumed`` that the prediction uses.
    """
    by_quantity: dict[str, KnownError] = {}
    for name in QUANTITIES:
        assumed = tuple(part for part in _RATES_OF[name] if part in rates.assumed and part in needs)
        of_system, of_all = summarize_errors(errors, name, system), summarize_errors(errors, name)
        if name == "rank_bytes" and "bytes" in exact:
            by_quantity[name] = KnownError("exact")
        elif of_system is not None:
            by_quantity[name] = KnownError("learnt", *of_system, assumed=assumed)
        elif of_all is not None:
            by_quantity[name] = KnownError("of others", *of_all, assumed=assumed)
        else:
            by_quantity[name] = KnownError("assumed", assumed=assumed)
    return MappingProxyType(by_quantity)
