"""``lab.estimate.advise``: recommends a system for a graph, ranks and memory, by calibrated models with known errors.

Every prediction is a count (:mod:`dtdg_lab.systems.workload`) times rates fitted to local runs. It carries the
leave-one-out error of such predictions on these runs, or the word assumed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.advisor.rates import QUANTITIES, FoundRuns, MeasuredRun, Predicted, Rates, find_runs, fit_rates, kind_of
from dtdg_lab.cluster.local import run_config
from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError, PlanError, RunStoreError, UnknownNameError, shortened
from dtdg_lab.core.units import as_path, format_bytes, format_seconds, percent
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.runs.html import text
from dtdg_lab.runs.run import StoredRun
from dtdg_lab.systems.step_time import NetworkCosts
from dtdg_lab.systems.workload import EpochWork, Facts, count_work, facts_of
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.studies.advice import (
    advice_figure,
    advice_measured_figure,
    advice_measured_words,
    relative_errors,
)
from dtdg_lab.visualization.studies.result import StudyResult, paragraphs

if TYPE_CHECKING:
    import pandas as pd


# Prediction errors: each run is predicted by rates of the others, without itself.


@dataclass(frozen=True, slots=True)
class RunError:
    """One quantity of one run.

    Attributes:
        run: its name.
        system: of the run.
        ranks: R.
        quantity: one of ``QUANTITIES``.
        measured: value in the run.
        predicted: value without the run if ``left_out``.
        left_out: whether there were other runs to predict from; otherwise its own rates were used, a weak check.
        system_known: whether the others included runs of its system, on one or on several ranks as in this run.
        crowded: whether other processes used the machine, which affects its seconds.
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
    """Predict every run by rates of the others, quantity by quantity.

    Args:
        runs: measured; a single run is predicted by its own rates, which is reported.
    """
    found = []
    for place, run in enumerate(runs):
        others = [*runs[:place], *runs[place + 1 :]]
        left_out = bool(others)
        rates = fit_rates(others if left_out else runs, run.facts)
        kind = kind_of(run.system, run.work.ranks)
        known = any(kind_of(other.system, other.work.ranks) == kind for other in others)
        try:
            described = rates.predict(run.work, run.facts)
        except PlanError:  # the others' rates do not cover this run's work
            continue
        for name in QUANTITIES:
            measured, predicted = run.quantities.get(name), float(getattr(described, name))
            if not measured or not predicted or predicted == float("inf"):
                continue
            if name == "epoch_s" and run.shared:
                continue  # ranks shared cores: its wall time applies to this machine only
            of = (run.run.id, run.system, run.work.ranks, name)
            found.append(RunError(*of, measured, predicted, left_out, known, run.crowded))
    return tuple(found)


def summed(errors: Sequence[RunError], quantity: str, system: str | None = None) -> tuple[float, float, int] | None:
    """Median and largest absolute error of a quantity, and the number of runs; None without any.

    For seconds and imbalance, runs on a busy machine count only if there are no others.

    Args:
        errors: of predictions.
        quantity: name of the quantity.
        system: whose runs; by default all.
    """
    mine = [each.row() for each in errors if each.quantity == quantity and system in (None, each.system)]
    found = relative_errors(mine)
    return (median(found), max(found), len(found)) if found else None


# Known error of a prediction, in the form that is printed beside it: exact, learnt, of others, or assumed.


_RESTS_ON: Mapping[str, tuple[str, ...]] = {
    "epoch_s": ("compute", "communicate", "transfer", "fetch"),
    "rank_bytes": (),
    "peak_bytes": ("memory",),
    "imbalance": ("compute",),
}


@dataclass(frozen=True, slots=True)
class Learnt:
    """The error of one predicted quantity.

    Attributes:
        kind: ``exact`` (a count), ``learnt`` (of runs of this system), ``of others`` (of runs of other systems) or
            ``assumed`` (no run provides it).
        middle: median of |predicted - measured| / measured over these runs, each left out of the fit; None if unknown.
        worst: the largest of them.
        runs: how many.
        assumed: parts of it whose rates come from no run.
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
        said = f"± {percent(self.middle)}, worst {percent(self.worst)} ({self.runs} run{'s' * (self.runs > 1)}"
        said += " of other systems)" if self.kind == "of others" else ")"
        return said + (f"; {', '.join(self.assumed)} assumed" if self.assumed else "")


def learnt_of(
    errors: Sequence[RunError], rates: Rates, system: str, *, exact: frozenset[str], needs: frozenset[str] | None = None
) -> Mapping[str, Learnt]:
    """The error of each of ``QUANTITIES`` of a system.

    Args:
        errors: learnt from runs.
        rates: used for the prediction.
        system: its name.
        exact: quantities that its work counts exactly.
        needs: parts of ``Rates.assumed`` that the prediction uses; by default all.
    """
    found: dict[str, Learnt] = {}
    for name in QUANTITIES:
        assumed = tuple(part for part in _RESTS_ON[name] if part in rates.assumed and (needs is None or part in needs))
        own, others = summed(errors, name, system), summed(errors, name)
        if name == "rank_bytes" and "bytes" in exact:
            found[name] = Learnt("exact")
        elif own is not None:
            found[name] = Learnt("learnt", *own, assumed=assumed)
        elif others is not None:
            found[name] = Learnt("of others", *others, assumed=assumed)
        else:
            found[name] = Learnt("assumed", assumed=assumed)
    return MappingProxyType(found)


# Remedies for a lack of memory: the first change of settings, or number of ranks, that makes a system fit.


_TIMES, _MOST_RANKS = 5, 64


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that makes the system fit.

    Attributes:
        changes: option -> value.
        memory_bytes: predicted with it.
        epoch_s: likewise.
    """

    changes: Mapping[str, Any]
    memory_bytes: float
    epoch_s: float

    def __str__(self) -> str:
        return ", ".join(f"{name}={value:g}" for name, value in self.changes.items())


def remedy(config: RunConfig, graph: DynamicGraph, rates: Rates, budget_bytes: float) -> Remedy | None:
    """The first of some changes that brings a system's memory within the budget; None if none does."""
    for changes in _candidates(config):
        try:
            work, facts = count_work(config.replace(**changes), graph)
        except LabError:  # beyond what the graph allows
            continue
        described = rates.predict(work, facts, None)
        if described.memory_bytes <= budget_bytes:
            return Remedy(MappingProxyType(changes), described.memory_bytes, described.epoch_s)
    return None


def _candidates(config: RunConfig) -> Iterator[dict[str, Any]]:
    of = catalogue.system(config.system)
    for name, factor in catalogue.family(of.family).memory_changes(config):
        value = config[name]
        for _ in range(_TIMES):
            value = max(value, 1) * factor if factor > 1 else value * factor
            if not isinstance(config[name], float):
                value = int(value)
            if value <= 0 or (name == "window" and value < config["full_snapshots"] and "alpha" in config.flat):
                break
            yield {name: value}
    if of.family != "single":
        ranks = config.ranks * 2
        while ranks <= max(_MOST_RANKS, config.ranks * 4):
            yield {"ranks": ranks, "parts": ranks}
            ranks *= 2


# Result of ``lab.estimate.advise``: ranked systems with reasons, uncertainty, and predictions beside measurements.


CHEAP = 0.02  # share of an epoch: smaller parts are not mentioned
NAMES = {
    "compute_s": "own computing",
    "communicate_s": "exchanges between ranks",
    "transfer_s": "transferring graphs",
    "fetch_s": "waiting for features",
}


@dataclass(frozen=True, slots=True, eq=False)
class Suggestion:
    """One system on the graph.

    Attributes:
        config: of a run of it; train it, or race some.
        work: of one epoch.
        predicted: for that epoch.
        learnt: quantity -> its known error.
        budget_bytes: memory of a rank.
        fits: whether the predicted memory is within it.
        sure: whether it also is under the worst known error.
        remedy: what would make it fit; None if it fits, or no remedy was found.
    """

    config: RunConfig
    work: EpochWork
    predicted: Predicted
    learnt: Mapping[str, Learnt]
    budget_bytes: float
    fits: bool
    sure: bool
    remedy: Remedy | None

    @property
    def system(self) -> str:
        """Its name."""
        return self.config.system

    @property
    def verdict(self) -> str:
        """``yes``, ``perhaps`` (not under the worst known error, or none is known) or ``no``."""
        return "no" if not self.fits else "yes" if self.sure else "perhaps"

    def row(self) -> dict[str, Any]:
        """Plain values, for tables and views."""
        described = self.predicted
        return {
            "system": self.system,
            "fits": self.verdict,
            "epoch_s": described.epoch_s,
            "epoch_error": str(self.learnt["epoch_s"]),
            "steps": self.work.steps,
            "rank_bytes": described.rank_bytes,
            "bytes_error": str(self.learnt["rank_bytes"]),
            "peak_bytes": described.peak_bytes,
            "peak_error": str(self.learnt["peak_bytes"]),
            "held_bytes": described.held_bytes,
            "imbalance": described.imbalance,
            "imbalance_error": str(self.learnt["imbalance"]),
            **{name: getattr(described, name) for name in (*NAMES, "bound_s")},
            "error": self.learnt["epoch_s"].middle,
            "budget_bytes": self.budget_bytes,
            "remedy": str(self.remedy or ""),
            "notes": "; ".join(self.work.notes),
        }

    def why(self) -> str:
        """One sentence: its main costs and communication, or why it does not fit and a remedy."""
        described = self.predicted
        held = f"{format_bytes(described.peak_bytes)} of tensors and {format_bytes(described.held_bytes)} of data"
        if not self.fits:
            helps = "no remedy was found"
            if self.remedy is not None:
                helps = f"{self.remedy} would make it fit, in {format_bytes(self.remedy.memory_bytes)}"
            return f"{self.system} does not fit: {held} on a rank, of {format_bytes(self.budget_bytes)}; {helps}."
        parts = sorted(((getattr(described, name), said) for name, said in NAMES.items()), reverse=True)
        shares = [
            f"{percent(value / described.epoch_s)} {said}" for value, said in parts if value > CHEAP * described.epoch_s
        ]
        sends = "sends nothing" if not described.rank_bytes else f"a rank sends {format_bytes(described.rank_bytes)}"
        uneven = f"; imbalance {described.imbalance:.2f} (busiest over least busy rank)" * (self.work.ranks > 1)
        return (
            f"{self.system}: {format_seconds(described.epoch_s)} an epoch of {self.work.steps} "
            f"step{'s' * (self.work.steps > 1)} ({self.learnt['epoch_s']}), {', '.join(shares)}; {sends} "
            f"({self.learnt['rank_bytes']}){uneven}; {held} ({self.learnt['peak_bytes']})."
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Advice(StudyResult):
    """Systems ranked: those that fit first, by the seconds of an epoch.

    Attributes:
        described: what was asked, in words.
        suggestions: in order of rank.
        left: system -> why it cannot run.
        rates: used for the predictions.
        errors: of each local run, predicted by the others.
        skipped: run -> why it was not used.
    """

    described: str
    suggestions: tuple[Suggestion, ...]
    left: Mapping[str, str]
    rates: Rates
    errors: tuple[RunError, ...]
    skipped: Mapping[str, str]
    text_columns = ("system", "fits", "epoch_s", "rank_bytes", "peak_bytes", "held_bytes", "imbalance", "epoch_error")
    html_columns = (*text_columns, "bytes_error", "peak_error", "remedy")

    @property
    def best(self) -> Suggestion | None:
        """The first system that fits; None if none does."""
        return next((each for each in self.suggestions if each.fits), None)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Plain values, one row for each system."""
        return [each.row() for each in self.suggestions]

    @property
    def table(self) -> pd.DataFrame:
        """The rows as a frame: bytes and seconds as numbers, errors as text."""
        import pandas as pd

        return pd.DataFrame(self.rows).drop(columns=["error", "budget_bytes"], errors="ignore")

    @property
    def figure(self) -> Figure:
        """Epoch seconds by cost, bytes that a rank sends, and memory of a rank beside the budget."""
        return advice_figure(self.rows, title=self.described)

    @property
    def against_measured(self) -> Figure:
        """Predicted over measured value of every run used, for each quantity."""
        return advice_measured_figure([each.row() for each in self.errors])

    def summary(self) -> str:
        """The ranking with reasons, the lead over the next system, systems that do not fit, and the uncertainty."""
        fitting = [each for each in self.suggestions if each.fits]
        lines = [self.described + "."]
        if fitting:
            lines.append("First " + fitting[0].why())
        if len(fitting) > 1:
            lines.append(_against(fitting[0], fitting[1]))
        lines += [each.why() for each in self.suggestions if not each.fits]
        lines.append(self.sure())
        lines.append(
            "An epoch is not the same work in each system, so compare the losses of the best few with lab.race."
        )
        return "\n".join(lines)

    def sure(self) -> str:
        """The source of the rates, and the prediction errors."""
        if not self.rates.runs:
            return (
                "No local run provides any rate: all are assumed, so the order of close systems is uncertain. Give "
                "runs=, or calibrate=True, which first trains some short runs."
            )
        said = [f"Rates are fitted to {self.rates.runs} local run{'s' * (self.rates.runs > 1)}"]
        if self.rates.assumed:
            said.append(f"{', '.join(sorted(self.rates.assumed))} assumed")
        said += self.rates.notes
        return "; ".join(said) + ". " + advice_measured_words([each.row() for each in self.errors])

    def __repr__(self) -> str:
        left = [f"{name}: {why}" for name, why in self.left.items()]
        return "\n".join([self.readable(self.text_columns).to_string(index=False), *left, self.summary()])

    def _repr_html_(self) -> str:
        left = "".join(f"<li>{text(name)}: {text(why)}</li>" for name, why in self.left.items())
        refused = f"<p>Cannot run so:</p><ul>{left}</ul>" if left else ""
        return f"{self.readable(self.html_columns).to_html(index=False)}{paragraphs(self.summary())}{refused}"


def _against(first: Suggestion, second: Suggestion) -> str:
    """The main difference between two systems, and whether the errors support the order."""
    gap = second.predicted.epoch_s - first.predicted.epoch_s
    parts = {name: getattr(second.predicted, name) - getattr(first.predicted, name) for name in NAMES}
    most = max(parts, key=lambda name: parts[name])
    said = (
        f"{second.system} comes next, {format_seconds(gap)} behind, mostly {NAMES[most]} "
        f"({format_seconds(getattr(second.predicted, most))} against {format_seconds(getattr(first.predicted, most))})"
    )
    middles = [each.learnt["epoch_s"].middle for each in (first, second)]
    known = [middle for middle in middles if middle is not None]
    if len(known) < len(middles):
        return said + ": with assumed rates, this difference is not reliable." * (gap < first.predicted.epoch_s) + "."
    near = gap < max(known) * second.predicted.epoch_s
    return said + (": less than the prediction error, so treat them as equal." if near else ".")


# Short calibration runs in this process, used if no run has these settings.


EPOCHS = 4


def calibration_settings() -> dict[str, Mapping[str, Any]]:
    """System -> settings of a short run: the systems that families calibrate rates with."""
    return {name: settings for family in catalogue.families() for name, settings in family.calibrated.items()}


def calibration_runs(
    configs: Mapping[str, RunConfig], graph: DynamicGraph, runs_dir: str | Path | None
) -> list[StoredRun]:
    """Train some systems for a few epochs on one rank, and return the runs; systems that fail are left out.

    Args:
        configs: system -> its settings; ranks and epochs are overridden.
        graph: the data, which the configs name.
        runs_dir: folder for the runs; by default a temporary one.
    """
    folder = mkdtemp(prefix="dtdg-advise-") if runs_dir is None else runs_dir
    some = next(iter(configs.values()))
    made = []
    for name, settings in calibration_settings().items():
        with contextlib.suppress(LabError):  # a system that cannot run on this graph measures nothing
            config = (configs.get(name) or some.replace(system=name)).replace(
                **{"ranks": 1, "parts": 1, **settings}, epochs=EPOCHS, evaluate_every=EPOCHS, threads=1
            )
            made.append(run_config(config, runs_dir=folder).run)
    return made


GIB = float(1 << 30)
_COMMON = ("seed", "protocol", "device", "threads", "learning_rate", "epochs")
Runs = Sequence[StoredRun | str | Path]


def advise(
    graph: DynamicGraph | str,
    ranks: int,
    memory_gib: float,
    *,
    model: str = "tgcn",
    hidden: int = 32,
    layers: int = 1,
    systems: Sequence[str] | None = None,
    runs: Runs = (),
    runs_dir: str | Path | None = "runs",
    calibrate: bool = False,
    network: NetworkCosts | None = None,
    cores: int | None = None,
    **options: Any,
) -> Advice:
    """Predict an epoch of every system on a graph and rank those that fit the memory by epoch time.

    Every rank is assumed to have its own core or GPU, as fast as those of the runs. An epoch is not the same work in
    each system: use ``lab.race`` to compare convergence.

    Args:
        graph: data, or a name of ``lab.datasets.list()``.
        ranks: R.
        memory_gib: memory of a rank in GiB, for tensors of a step and its data.
        model: name in the catalogue.
        hidden: H.
        layers: of the model.
        systems: names; by default all that can run there.
        runs: local runs, or folders of them, to which rates are fitted; by default all of ``runs_dir``.
        runs_dir: folder of runs to use if ``runs`` is empty; None for none.
        calibrate: if no run has these settings, first train some short ones in this process: takes seconds.
        network: topology; by default as fast as between the measured ranks.
        cores: of the machine of the runs; by default this process's.
        options: of systems, model and data, by name; each applies to the systems that read it.

    Raises:
        ConfigError: a number is invalid, no system reads an option, or none of the systems can be predicted.
        UnknownNameError: a name is not in the catalogue.
        RunStoreError: one of ``runs`` is not a run.

    References: ESDG section 6.3, DyGNeX appendix H, GreenDyGNN section IV; fitting all together, and errors, are ours.
    """
    memory_gib = _checked(graph, ranks, memory_gib, systems)
    given = {"model": model, "hidden": hidden, "layers": layers, "dataset": graph}
    configs, left = _configs(systems, ranks, given, options)
    graph = graph if isinstance(graph, DynamicGraph) else load_for(next(iter(configs.values())))
    found = found_runs(runs, runs_dir, graph, cores)
    first = facts_of(asked := next(iter(configs.values())), graph)
    sizes = ("model", "hidden", "layers")
    known = [run.facts.config for run in found.runs]
    if calibrate and not any(all(getattr(run, name) == getattr(asked, name) for name in sizes) for run in known):
        made = find_runs(calibration_runs(configs, graph, runs_dir), graph=graph)
        found = FoundRuns((*found.runs, *made.runs), MappingProxyType({**found.skipped, **made.skipped}))
    learnt = fit_rates(found.runs, first), learn_errors(found.runs)
    suggestions = []
    for name, config in configs.items():
        try:
            suggestions.append(_suggestion(config, graph, *learnt, budget=memory_gib * GIB, network=network))
        except LabError as error:
            left[name] = str(error)
    if not suggestions:
        raise _nothing("be predicted", left)
    ranked = tuple(sorted(suggestions, key=lambda each: (not each.fits, each.predicted.epoch_s)))
    described = _to_dict(graph, first, ranks, memory_gib)
    return Advice(described, ranked, MappingProxyType(left), *learnt, MappingProxyType(dict(found.skipped)))


def _to_dict(graph: DynamicGraph, facts: Facts, ranks: int, memory_gib: float) -> str:
    config = facts.config
    return (
        f"{graph.name}: {graph.num_nodes:,} nodes, {facts.edges.sum():,} edges in {len(facts.train)} snapshots "
        f"trained; {config.model} of {config.layers} layer{'s' * (config.layers > 1)}, hidden {config.hidden}; {ranks} "
        f"rank{'s' * (ranks > 1)} of {memory_gib:g} GiB"
    )


def _checked(graph: Any, ranks: Any, memory_gib: Any, systems: Sequence[str] | None) -> float:
    if not isinstance(graph, DynamicGraph | str):
        raise ConfigError(f"advise() got {shortened(graph)}: give a graph or a name from lab.datasets.list().")
    OPTIONS["ranks"].check(ranks)
    if isinstance(memory_gib, bool) or not isinstance(memory_gib, int | float) or not 0 < memory_gib < 1e9:
        raise ConfigError(f"memory_gib={shortened(memory_gib)}: give the memory of a rank in GiB, above 0.")
    for name in systems or ():
        catalogue.system(name)
    if systems is not None and not systems:
        raise ConfigError("systems=() is empty: leave it out for all systems, or give names.")
    return float(memory_gib)


def _configs(
    systems: Sequence[str] | None, ranks: int, given: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[dict[str, RunConfig], dict[str, str]]:
    """A config for each possible system, and the reasons why others are not."""
    configs: dict[str, RunConfig] = {}
    left: dict[str, str] = {}
    unread = set(options) - set(_COMMON)
    for name in unread:
        if name not in OPTIONS:
            raise UnknownNameError("option", name, OPTIONS)
    stored = given["dataset"] if isinstance(given["dataset"], str) else given["dataset"].store()
    for name in catalogue.names("systems") if systems is None else systems:
        owners = catalogue.option_owners(name, stored, given["model"], options)
        read = {each for room in owners.values() for each in room} | set(_COMMON)
        mine = {each: value for each, value in options.items() if each in read}
        unread -= set(mine)
        try:
            configs[name] = RunConfig(**{**given, "dataset": stored}, system=name, ranks=ranks, **mine)
        except LabError as error:
            left[name] = str(error)
    if not configs:
        raise _nothing("run with these settings", left)
    if unread:
        raise ConfigError(f"{', '.join(sorted(unread))}: no chosen system reads it, with this data and model.")
    return configs, left


def _nothing(what: str, left: Mapping[str, str]) -> ConfigError:
    return ConfigError(f"no system can {what}: " + "; ".join(f"{name}: {why}" for name, why in left.items()))


def found_runs(runs: Runs, runs_dir: str | Path | None, graph: DynamicGraph, cores: int | None) -> FoundRuns:
    """The given runs with their work, or those of a folder; none if neither has any.

    Raises:
        RunStoreError: one of ``runs`` is not a run.
    """
    if runs:
        return find_runs(runs, graph=graph, cores=cores)
    folder = None if runs_dir is None else as_path(runs_dir, "runs_dir", RunStoreError)
    if folder is None or not any(folder.glob("*/config.json")):
        return FoundRuns((), MappingProxyType({}))
    return find_runs([folder], graph=graph, cores=cores)


def _suggestion(
    config: RunConfig,
    graph: DynamicGraph,
    rates: Rates,
    errors: Sequence[RunError],
    *,
    budget: float,
    network: NetworkCosts | None,
) -> Suggestion:
    """One system's epoch, whether it fits, and a remedy otherwise."""
    work, facts = count_work(config, graph)
    described = rates.predict(work, facts, network)
    used = {"compute", "memory"} | {
        part for part in ("communicate", "transfer", "fetch") if getattr(described, f"{part}_s")
    }
    if work.fetching is not None:  # also if it overlaps with computing
        used.add("fetch")
    learnt: Mapping[str, Learnt] = learnt_of(errors, rates, config.system, exact=work.exact, needs=frozenset(used))
    fits = described.memory_bytes <= budget
    change = None if fits else remedy(config, graph, rates, budget)
    worst = learnt["peak_bytes"].worst
    sure = described.peak_bytes * (1 + (worst or 0.0)) + described.held_bytes <= budget
    return Suggestion(config, work, described, learnt, budget, fits, fits and sure and worst is not None, change)
