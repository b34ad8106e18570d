"""``lab.advise``: which system for this graph, these ranks and this memory, by calibrated models, and how sure that is.

Every prediction is a count (:mod:`dtdg_lab.studies.advise_count`) times rates fitted to runs made here, and carries the
error that such predictions had on these runs, each predicted by the others; or the word assumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError, UnknownNameError, shortened
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.partition.scaling_model import Network
from dtdg_lab.runs.open import StoredRun
from dtdg_lab.studies.advice import Advice, Suggestion
from dtdg_lab.studies.advise_calibrate import calibration_runs
from dtdg_lab.studies.advise_count import count_work
from dtdg_lab.studies.advise_errors import RunError, learn_errors
from dtdg_lab.studies.advise_facts import Facts, facts_of
from dtdg_lab.studies.advise_learnt import Learnt, learnt_of
from dtdg_lab.studies.advise_rates import Rates, fit_rates
from dtdg_lab.studies.advise_remedies import remedy
from dtdg_lab.studies.advise_runs import FoundRuns, find_runs

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
    network: Network | None = None,
    cores: int | None = None,
    **options: Any,
) -> Advice:
    """Predict an epoch of every system on a graph and rank those that fit the memory by the time it takes.

    Every rank is taken to have a core or GPU of its own, as fast as those of the runs. An epoch is not the same work in
    each system: which of them learns fastest is for ``lab.race``.

    Args:
        graph: data, or a name of ``lab.datasets()``.
        ranks: R.
        memory_gib: that a rank may take, in GiB: for tensors of a step and the data it needs.
        model: name in the catalogue.
        hidden: H.
        layers: of the model.
        systems: names; all that can run there where not given.
        runs: made here, or folders of them, that rates are fitted to; all of ``runs_dir`` where none is given.
        runs_dir: folder of runs to learn from where ``runs`` is empty; None for none.
        calibrate: where no run has these settings, train some short ones in this process first: seconds.
        network: how ranks are connected; as fast as between the ranks that were measured where not given.
        cores: of the machine the runs were made on; this process's where not given.
        options: of systems, model and data, by name; each goes to the systems that read it.

    Raises:
        ConfigError: a number is not allowed, or no system reads an option.
        UnknownNameError: a name is not in the catalogue.
        RunStoreError: one of ``runs`` is no run.

    References: ESDG section 6.3, DyGNeX appendix H, GreenDyGNN section IV; fitting all together, and errors, are ours.
    """
    memory_gib = _checked(graph, ranks, memory_gib, systems)
    given = {"model": model, "hidden": hidden, "layers": layers, "dataset": graph}
    configs, left = _configs(systems, ranks, given, options)
    graph = graph if isinstance(graph, DynamicGraph) else load_for(next(iter(configs.values())))
    found = found_runs(runs, runs_dir, graph, cores)
    if calibrate:
        found = _calibrated(found, configs, graph, runs_dir)
    first = facts_of(next(iter(configs.values())), graph)
    learnt = fit_rates(found.runs, first), learn_errors(found.runs)
    suggestions = _suggestions(configs, graph, learnt, (memory_gib, network), left)
    ranked = tuple(sorted(suggestions, key=lambda each: (not each.fits, each.predicted.epoch_s)))
    told = _told(graph, first, ranks, memory_gib)
    return Advice(told, ranked, MappingProxyType(left), *learnt, MappingProxyType(dict(found.skipped)))


def _calibrated(
    found: FoundRuns, configs: Mapping[str, RunConfig], graph: DynamicGraph, runs_dir: str | Path | None
) -> FoundRuns:
    """The same and, where none has the model and sizes that are asked for, some short runs that are made now."""
    if any(_alike(run.facts.config, configs) for run in found.runs):
        return found
    made = find_runs(calibration_runs(configs, graph, runs_dir), graph=graph)
    return FoundRuns((*found.runs, *made.runs), MappingProxyType({**found.skipped, **made.skipped}))


def _alike(config: RunConfig, configs: Mapping[str, RunConfig]) -> bool:
    """Whether a run has the model and sizes that are asked for."""
    asked = next(iter(configs.values()))
    return all(getattr(config, name) == getattr(asked, name) for name in ("model", "hidden", "layers"))


def _told(graph: DynamicGraph, facts: Facts, ranks: int, memory_gib: float) -> str:
    config = facts.config
    return (
        f"{graph.name}: {graph.num_nodes:,} vertices, {facts.edges.sum():,} edges in {len(facts.train)} snapshots "
        f"trained; {config.model} of {config.layers} layer{'s' * (config.layers > 1)}, hidden {config.hidden}; {ranks} "
        f"rank{'s' * (ranks > 1)} of {memory_gib:g} GiB"
    )


def _checked(graph: Any, ranks: Any, memory_gib: Any, systems: Sequence[str] | None) -> float:
    if not isinstance(graph, DynamicGraph | str):
        raise ConfigError(f"advise() got {shortened(graph)}: a graph or a name from lab.datasets() is needed.")
    OPTIONS["ranks"].check(ranks)
    if isinstance(memory_gib, bool) or not isinstance(memory_gib, int | float) or not 0 < memory_gib < 1e9:
        raise ConfigError(f"memory_gib={shortened(memory_gib)}: GiB above 0 that a rank may take are needed.")
    for name in systems or ():
        catalogue.system(name)
    if systems is not None and not systems:
        raise ConfigError("systems=() names none: leave it out for all, or give some names.")
    return float(memory_gib)


def _configs(
    systems: Sequence[str] | None, ranks: int, given: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[dict[str, RunConfig], dict[str, str]]:
    """A config for each system that can run so, and why others cannot."""
    configs: dict[str, RunConfig] = {}
    left: dict[str, str] = {}
    unread = set(options) - set(_COMMON)
    for name in unread:
        if name not in OPTIONS:
            raise UnknownNameError("option", name, OPTIONS)
    stored = given["dataset"] if isinstance(given["dataset"], str) else given["dataset"].store()
    for name in catalogue.names("systems") if systems is None else systems:
        owners = catalogue.option_owners(name, stored, given["model"])
        read = {each for room in owners.values() for each in room} | set(_COMMON)
        mine = {each: value for each, value in options.items() if each in read}
        unread -= set(mine)
        try:
            configs[name] = RunConfig(**{**given, "dataset": stored}, system=name, ranks=ranks, **mine)
        except LabError as error:
            left[name] = str(error)
    if not configs:
        raise ConfigError("no system can run so: " + "; ".join(f"{name}: {why}" for name, why in left.items()))
    if unread:
        raise ConfigError(f"{', '.join(sorted(unread))}: no system asked for reads it, on this data and model.")
    return configs, left


def found_runs(runs: Runs, runs_dir: str | Path | None, graph: DynamicGraph, cores: int | None) -> FoundRuns:
    """The given runs with their work, or those of a folder; none where neither has any.

    Raises:
        RunStoreError: one of ``runs`` is no run.
    """
    if runs:
        return find_runs(runs, graph=graph, cores=cores)
    if runs_dir is None or not any(Path(runs_dir).glob("*/config.json")):
        return FoundRuns((), MappingProxyType({}))
    return find_runs([runs_dir], graph=graph, cores=cores)


def _suggestions(
    configs: Mapping[str, RunConfig], graph: DynamicGraph, learnt: tuple[Rates, Sequence[RunError]],
    where: tuple[float, Network | None], left: dict[str, str],
) -> list[Suggestion]:  # fmt: skip
    """One for each system that the graph serves; ``left`` says why others are not there."""
    found = []
    for name, config in configs.items():
        try:
            found.append(_suggestion(config, graph, *learnt, where))
        except LabError as error:
            left[name] = str(error)
    return found


def _suggestion(
    config: RunConfig, graph: DynamicGraph, rates: Rates, errors: Sequence[RunError],
    where: tuple[float, Network | None],
) -> Suggestion:  # fmt: skip
    """One system's epoch, whether it fits, and what would make it fit."""
    memory_gib, network = where
    work, facts = count_work(config, graph)
    told = rates.predict(work, facts, network)
    used = {"compute", "memory"} | {part for part in ("communicate", "transfer", "fetch") if getattr(told, f"{part}_s")}
    if work.fetching is not None:  # also where it hides behind computing
        used.add("fetch")
    learnt: Mapping[str, Learnt] = learnt_of(errors, rates, config.system, exact=work.exact, needs=frozenset(used))
    budget = memory_gib * GIB
    fits = told.memory_bytes <= budget
    change = None if fits else remedy(config, graph, rates, budget)
    worst = learnt["peak_bytes"].worst
    sure = told.peak_bytes * (1 + (worst or 0.0)) + told.held_bytes <= budget
    return Suggestion(config, work, told, learnt, budget, fits, fits and sure and worst is not None, change)
