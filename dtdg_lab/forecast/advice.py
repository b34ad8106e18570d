"""Advice: systems ranked by their predicted epoch time, with the known errors and changes that save memory.

Every prediction is a count of work (:mod:`dtdg_lab.systems.workload`) times rates fitted to local runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pandas as pd

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.core.units import format_bytes, format_seconds, percent
from dtdg_lab.forecast.prediction_error import KnownError, RunError, known_errors
from dtdg_lab.forecast.rates import Predicted, Rates
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.runs.html import text
from dtdg_lab.systems.step_memory import setting_changes
from dtdg_lab.systems.step_time import NetworkCosts
from dtdg_lab.systems.workload import EpochWork, count_work
from dtdg_lab.visualization.chart import Figure
from dtdg_lab.visualization.studies.advice import advice_figure, advice_measured_figure, prediction_errors_text
from dtdg_lab.visualization.studies.result import StudyResult, paragraphs

MOST_RANKS = 64  # maximum number of ranks tried
NEGLIGIBLE = 0.02  # shares of an epoch below this are not mentioned
NAMES = {
    "compute_s": "own computing",
    "communicate_s": "exchanges between ranks",
    "transfer_s": "transferring graphs",
    "fetch_s": "waiting for features",
}


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of settings or of the number of ranks with which a system fits into memory.

    Attributes:
        changes: option -> value.
        memory_bytes: predicted memory with the change.
        epoch_s: predicted epoch time with the change.
    """

    changes: Mapping[str, Any]
    memory_bytes: float
    epoch_s: float

    def __str__(self) -> str:
        return ", ".join(f"{name}={value:g}" for name, value in self.changes.items())


def find_remedy(config: RunConfig, graph: DynamicGraph, rates: Rates, budget_bytes: float) -> Remedy | None:
    """Return the first change that brings a system's memory within the budget; None if none does."""
    for changes in _candidates(config):
        try:
            work, facts = count_work(config.replace(**changes), graph)
        except LabError:  # the graph does not allow these settings
            continue
        epoch = rates.predict(work, facts, None)
        if epoch.memory_bytes <= budget_bytes:
            return Remedy(MappingProxyType(changes), epoch.memory_bytes, epoch.epoch_s)
    return None


def _candidates(config: RunConfig) -> Iterator[dict[str, Any]]:
    yield from setting_changes(config)
    if catalogue.system(config.system).family != "single":
        ranks = config.ranks * 2
        while ranks <= max(MOST_RANKS, config.ranks * 4):
            yield {"ranks": ranks, "parts": ranks}
            ranks *= 2


@dataclass(frozen=True, slots=True, eq=False)
class SystemForecast:
    """The prediction for one system on the graph.

    Attributes:
        config: settings of a run of the system, which can be trained or raced.
        work: the work of one epoch.
        predicted: the prediction for that epoch.
        errors: quantity -> its known error.
        budget_bytes: memory of a rank.
        fits: whether the predicted memory is within the budget.
        sure: whether it also is if the prediction is as wrong as the worst known one.
        remedy: a change with which it would fit; None if it fits, or if no such change was found.
    """

    config: RunConfig
    work: EpochWork
    predicted: Predicted
    errors: Mapping[str, KnownError]
    budget_bytes: float
    fits: bool
    sure: bool
    remedy: Remedy | None

    @property
    def system(self) -> str:
        """The system's name."""
        return self.config.system

    @property
    def verdict(self) -> str:
        """``yes``, ``no``, or ``perhaps`` if it fits but might not with the worst known error, or no error is known."""
        return "no" if not self.fits else "yes" if self.sure else "perhaps"

    def row(self) -> dict[str, Any]:
        """Return the prediction as plain values, for tables and charts."""
        epoch = self.predicted
        return {
            "system": self.system,
            "fits": self.verdict,
            "epoch_s": epoch.epoch_s,
            "epoch_error": str(self.errors["epoch_s"]),
            "steps": self.work.steps,
            "rank_bytes": epoch.rank_bytes,
            "bytes_error": str(self.errors["rank_bytes"]),
            "peak_bytes": epoch.peak_bytes,
            "peak_error": str(self.errors["peak_bytes"]),
            "held_bytes": epoch.held_bytes,
            "imbalance": epoch.imbalance,
            "imbalance_error": str(self.errors["imbalance"]),
            **{name: getattr(epoch, name) for name in (*NAMES, "bound_s")},
            "error": self.errors["epoch_s"].middle,
            "budget_bytes": self.budget_bytes,
            "remedy": str(self.remedy or ""),
            "notes": "; ".join(self.work.notes),
        }

    def why(self) -> str:
        """Return a sentence on its main costs and communication, or on why it does not fit and what would help."""
        epoch = self.predicted
        memory = f"{format_bytes(epoch.peak_bytes)} of tensors and {format_bytes(epoch.held_bytes)} of data"
        if not self.fits:
            remedy = "no change was found with which it would fit"
            if self.remedy is not None:
                remedy = f"with {self.remedy} it would fit and need {format_bytes(self.remedy.memory_bytes)}"
            return (
                f"{self.system} does not fit: it needs {memory} on a rank, which has "
                f"{format_bytes(self.budget_bytes)}; {remedy}."
            )
        parts = sorted(((getattr(epoch, name), title) for name, title in NAMES.items()), reverse=True)
        shares = [
            f"{percent(value / epoch.epoch_s)} {title}" for value, title in parts if value > NEGLIGIBLE * epoch.epoch_s
        ]
        sends = "sends nothing" if not epoch.rank_bytes else f"a rank sends {format_bytes(epoch.rank_bytes)}"
        uneven = f"; imbalance {epoch.imbalance:.2f} (busiest over least busy rank)" * (self.work.ranks > 1)
        return (
            f"{self.system}: {format_seconds(epoch.epoch_s)} an epoch of {self.work.steps} "
            f"step{'s' * (self.work.steps > 1)} ({self.errors['epoch_s']}), {', '.join(shares)}; {sends} "
            f"({self.errors['rank_bytes']}){uneven}; {memory} ({self.errors['peak_bytes']})."
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Advice(StudyResult):
    """The systems in ranked order: those that fit come first, then by epoch time.

    Attributes:
        described: a sentence on what was asked.
        suggestions: the predictions in ranked order.
        excluded: system -> why it cannot run.
        rates: the rates used for the predictions.
        errors: the error of each local run when it is predicted from the others.
        skipped: run -> why it was not used.
    """

    described: str
    suggestions: tuple[SystemForecast, ...]
    excluded: Mapping[str, str]
    rates: Rates
    errors: tuple[RunError, ...]
    skipped: Mapping[str, str]
    text_columns = ("system", "fits", "epoch_s", "rank_bytes", "peak_bytes", "held_bytes", "imbalance", "epoch_error")
    html_columns = (*text_columns, "bytes_error", "peak_error", "remedy")

    @property
    def best(self) -> SystemForecast | None:
        """The first system that fits; None if none does."""
        return next((one for one in self.suggestions if one.fits), None)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The predictions as plain values, one row per system."""
        return [suggestion.row() for suggestion in self.suggestions]

    @property
    def table(self) -> pd.DataFrame:
        """The rows as a table, in which bytes and seconds are numbers and errors are text."""
        return pd.DataFrame(self.rows).drop(columns=["error", "budget_bytes"], errors="ignore")

    @property
    def figure(self) -> Figure:
        """A chart of the epoch time by cost, the bytes that a rank sends, and a rank's memory next to the budget."""
        return advice_figure(self.rows, title=self.described)

    @property
    def against_measured(self) -> Figure:
        """A chart of predicted over measured values, for every run that was used and each quantity."""
        return advice_measured_figure([error.row() for error in self.errors])

    def summary(self) -> str:
        """Return the ranking with reasons, the lead of the first system, the systems that do not fit, and errors."""
        fitting = [suggestion for suggestion in self.suggestions if suggestion.fits]
        lines = [self.described + "."]
        if fitting:
            lines.append("First " + fitting[0].why())
        if len(fitting) > 1:
            lines.append(_against(fitting[0], fitting[1]))
        lines += [suggestion.why() for suggestion in self.suggestions if not suggestion.fits]
        lines.append(self.accuracy())
        lines.append(
            "An epoch is not the same work in every system, so compare the losses of the best few with lab.race."
        )
        return "\n".join(lines)

    def accuracy(self) -> str:
        """Return where the rates come from, and the errors of predictions."""
        if not self.rates.runs:
            return (
                "No local run provides any rate, so all rates are assumed and the order of close systems is "
                "uncertain. Give runs=, or calibrate=True, which first trains some short runs."
            )
        sentences = [f"Rates are fitted to {self.rates.runs} local run{'s' * (self.rates.runs > 1)}"]
        if self.rates.assumed:
            sentences.append(f"{', '.join(sorted(self.rates.assumed))} assumed")
        sentences += self.rates.notes
        return "; ".join(sentences) + ". " + prediction_errors_text([error.row() for error in self.errors])

    def __repr__(self) -> str:
        excluded = [f"{name}: {why}" for name, why in self.excluded.items()]
        return "\n".join([self.readable(self.text_columns).to_string(index=False), *excluded, self.summary()])

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{text(name)}: {text(why)}</li>" for name, why in self.excluded.items())
        refused = f"<p>These systems cannot run with these settings:</p><ul>{items}</ul>" if items else ""
        return f"{self.readable(self.html_columns).to_html(index=False)}{paragraphs(self.summary())}{refused}"


def _against(first: SystemForecast, second: SystemForecast) -> str:
    """Return the main difference between two systems, and whether the errors allow that conclusion."""
    gap = second.predicted.epoch_s - first.predicted.epoch_s
    parts = {name: getattr(second.predicted, name) - getattr(first.predicted, name) for name in NAMES}
    largest = max(parts, key=lambda name: parts[name])
    sentence = (
        f"{second.system} comes next, {format_seconds(gap)} behind, mostly {NAMES[largest]} "
        f"({format_seconds(getattr(second.predicted, largest))} against "
        f"{format_seconds(getattr(first.predicted, largest))})"
    )
    middles = [system.errors["epoch_s"].middle for system in (first, second)]
    errors = [middle for middle in middles if middle is not None]
    if len(errors) < len(middles):
        is_small = gap < first.predicted.epoch_s
        return sentence + (": with assumed rates, this difference is not reliable." if is_small else ".")
    near = gap < max(errors) * second.predicted.epoch_s
    return sentence + (": less than the prediction error, so treat them as equal." if near else ".")


def suggest(
    config: RunConfig,
    graph: DynamicGraph,
    rates: Rates,
    errors: Sequence[RunError],
    *,
    budget: float,
    network: NetworkCosts | None,
) -> SystemForecast:
    """Predict one system's epoch, and find a change with which it fits if it does not.

    Args:
        config: settings of the system, with its ranks.
        graph: the system's data.
        rates: rates of the machine.
        errors: errors learned from runs.
        budget: bytes of a rank's memory.
        network: network topology; by default as fast as between the measured ranks.

    Raises:
        LabError: the graph cannot be used with these settings.
    """
    work, facts = count_work(config, graph)
    epoch = rates.predict(work, facts, network)
    needs = {"compute", "memory"} | {
        part for part in ("communicate", "transfer", "fetch") if getattr(epoch, f"{part}_s")
    }
    if work.fetching is not None:  # needed even if fetching overlaps with computing
        needs.add("fetch")
    of_system = known_errors(errors, rates, config.system, exact=work.exact, needs=frozenset(needs))
    fits = epoch.memory_bytes <= budget
    remedy = None if fits else find_remedy(config, graph, rates, budget)
    worst = of_system["peak_bytes"].worst
    is_sure = worst is not None and epoch.peak_bytes * (1 + worst) + epoch.held_bytes <= budget
    return SystemForecast(config, work, epoch, of_system, budget, fits, fits and is_sure, remedy)
