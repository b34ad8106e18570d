"""How far predictions are from runs: each run is predicted by rates of the others, which have not seen it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dtdg_lab.core.errors import PlanError
from dtdg_lab.studies.advise_rates import QUANTITIES, Rates, fit_rates, kind_of
from dtdg_lab.studies.advise_runs import MeasuredRun


@dataclass(frozen=True, slots=True)
class RunError:
    """One quantity of one run.

    Attributes:
        run: its name.
        system: of the run.
        ranks: R.
        quantity: one of ``QUANTITIES``.
        measured: of the run.
        predicted: without it where ``left_out``.
        left_out: whether other runs were there to predict from; else its own rates were used, which says little.
        system_known: whether other runs of its system, alone or on several ranks as it, were among those.
        crowded: whether something else ran on the machine meanwhile, so that its seconds tell of that too.
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
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1

    def row(self) -> dict[str, Any]:
        """Plain values."""
        return {name: getattr(self, name) for name in (*self.__slots__, "error")}


def learn_errors(runs: Sequence[MeasuredRun]) -> tuple[RunError, ...]:
    """Every run predicted by rates of the others, quantity by quantity.

    Args:
        runs: measured; of one alone its own rates are taken, which is told.
    """
    found = []
    for place, run in enumerate(runs):
        others = [*runs[:place], *runs[place + 1 :]]
        left_out = bool(others)
        rates = fit_rates(others if left_out else runs, run.facts)
        kind = kind_of(run.system, run.work.ranks)
        known = any(kind_of(other.system, other.work.ranks) == kind for other in others)
        try:
            found += _errors(run, rates, left_out=left_out, known=known)
        except PlanError:  # rates of the others do not reach as far as this run's work
            continue
    return tuple(found)


def _errors(run: MeasuredRun, rates: Rates, *, left_out: bool, known: bool) -> list[RunError]:
    told = rates.predict(run.work, run.facts)
    found = []
    for name in QUANTITIES:
        measured, predicted = run.quantities.get(name), float(getattr(told, name))
        if not measured or not predicted or predicted == float("inf"):
            continue
        if name == "epoch_s" and run.shared:
            continue  # ranks shared cores: its wall time is of this machine alone
        found.append(
            RunError(run.run.id, run.system, run.work.ranks, name, measured, predicted, left_out, known, run.crowded)
        )
    return found


def summed(errors: Sequence[RunError], quantity: str, system: str | None = None) -> tuple[float, float, int] | None:
    """Median and largest absolute error of a quantity, and of how many runs; None without any.

    Of seconds and imbalance, runs beside which something else ran on the machine count only where there are no others.

    Args:
        errors: learnt.
        quantity: which.
        system: whose runs; of all where not given.
    """
    mine = [
        each
        for each in errors
        if each.quantity == quantity and each.left_out and (system is None or each.system == system)
    ]
    undisturbed = [each for each in mine if not each.crowded or quantity.endswith("bytes")]  # these stay the same
    found = [abs(each.error) for each in undisturbed or mine]
    return (median(found), max(found), len(found)) if found else None
