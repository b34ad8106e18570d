"""``lab.estimate.forecast``: the costs of a config before training, for other systems, settings and ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from types import MappingProxyType
from typing import Any

from dtdg_lab.cluster.one_run import run_config
from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError, RunStoreError, UnknownNameError, shortened
from dtdg_lab.core.units import as_path
from dtdg_lab.datasets.names import load_for
from dtdg_lab.forecast.advice import Advice, suggest
from dtdg_lab.forecast.measured_runs import FoundRuns, find_runs
from dtdg_lab.forecast.prediction_error import learn_errors
from dtdg_lab.forecast.rank_curves import (
    RANKS,
    RankCurves,
    describe,
    gradient_rows,
    is_same,
    measured_rows,
    notes,
    partition_rows,
)
from dtdg_lab.forecast.rates import Rates, fit_rates
from dtdg_lab.forecast.step_scaling import STEP_RANKS, StepScaling, extrapolate
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.systems.snapshot_blocks.block_study import BlockStudy, estimate_block_memory
from dtdg_lab.systems.snapshot_blocks.transfer_study import TransferStudy, estimate_transfers
from dtdg_lab.systems.snapshot_blocks.volume_study import VOLUME_RANKS, VolumeStudy, estimate_volumes
from dtdg_lab.systems.step_time import NetworkCosts
from dtdg_lab.systems.workload import Row, count_work, curve_row, facts_of
from dtdg_lab.visualization.studies.result import StudyResult

GIB = float(1 << 30)
MOST_RANKS = 4096
QUICK_PARTS, MOST_PARTS = 16, 128  # largest numbers of parts for which partitions are computed
CALIBRATION_EPOCHS = 4
_FOR_ALL = ("seed", "protocol", "device", "threads", "learning_rate", "epochs")  # settings that every system reads
Runs = Sequence[StoredRun | str | Path]


def forecast(
    config: RunConfig,
    ranks: int | Sequence[int] | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
    *,
    systems: Sequence[str] | None = None,
    runs: Runs = (),
    runs_dir: str | Path | None = "runs",
    network: NetworkCosts | None = None,
    cores: int | None = None,
) -> Forecast:
    """Predict epochs of a config's graph and model from counts of work and rates of local runs, without training.

    Every rank is assumed to have its own core or GPU, as fast as those of the runs. Network contention among many nodes
    and processor caches are ignored.

    Args:
        config: the data, model and sizes.
        ranks: numbers of ranks; by default the config's, and 1 to 1,024 for ``curves()``.
        changes: settings by name; each applies to the systems that read it.
        systems: names of systems; by default all that can run with these settings.
        runs: local runs, or folders of them, to which rates are fitted; by default all in ``runs_dir``.
        runs_dir: folder of runs to use if ``runs`` is empty; None to use none.
        network: network topology; by default as fast as between the measured ranks.
        cores: cores of the machine on which the runs were trained; by default this process's.

    Raises:
        ConfigError: a number of ranks is invalid.
        UnknownNameError: a name is not in the catalogue.

    References: ESDG section 6.3, DyGNeX section 5.4 and appendix H, GreenDyGNN section IV. Fitting all of them together
        and stating errors are our additions.
    """
    if not isinstance(config, RunConfig):
        raise ConfigError(f"forecast() needs a RunConfig for its data and model, but got {shortened(config)}.")
    for name in changes:
        if name not in OPTIONS and name not in RunConfig.model_fields:
            raise UnknownNameError("option", name, OPTIONS)
    for name in systems or ():
        catalogue.system(name)
    if systems is not None and not systems:
        raise ConfigError("systems=() is empty. Leave it out for all systems, or give names.")
    counts = _checked_ranks(ranks)
    names = tuple(catalogue.names("systems") if systems is None else systems)
    return Forecast(config, counts, dict(changes), names, tuple(runs), runs_dir, network, cores)


def _checked_ranks(ranks: Any) -> tuple[int, ...]:
    if ranks is None:
        return ()
    counts = [ranks] if isinstance(ranks, int) else list(ranks) if isinstance(ranks, Sequence) else []
    if not counts or any(isinstance(count, bool) or not isinstance(count, int) for count in counts):
        raise ConfigError(f"ranks={shortened(ranks)} is invalid. Give whole numbers, such as (1, 2, 4, 1024).")
    if min(counts) < 1 or max(counts) > MOST_RANKS:
        raise ConfigError(
            f"ranks from {min(counts)} to {max(counts)} were given, but only 1 to {MOST_RANKS} are allowed."
        )
    return tuple(sorted(set(counts)))


@dataclass(frozen=True, eq=False, repr=False)
class Forecast(StudyResult):
    """The predicted costs of a config; its rows are the predicted epochs of the systems.

    Attributes:
        config: the data, model and sizes.
        ranks: numbers of ranks; if empty, the config's.
        changes: settings by name; each applies to the systems that read it.
        systems: names of systems.
    """

    config: RunConfig
    ranks: tuple[int, ...]
    changes: Mapping[str, Any]
    systems: tuple[str, ...]
    _runs: Runs = ()
    _runs_dir: str | Path | None = None
    _network: NetworkCosts | None = None
    _cores: int | None = None
    text_columns = ("system", "ranks", "epoch_s", "rank_bytes", "peak_bytes", "held_bytes", "imbalance")

    @cached_property
    def graph(self) -> DynamicGraph:
        """The graph of the config."""
        return load_for(self.config)

    @cached_property
    def measured(self) -> FoundRuns:
        """The local runs to which rates are fitted.

        Raises:
            RunStoreError: one of the given runs is not a run.
        """
        if self._runs:
            return find_runs(self._runs, graph=self.graph, cores=self._cores)
        folder = None if self._runs_dir is None else as_path(self._runs_dir, "runs_dir", RunStoreError)
        if folder is None or not any(folder.glob("*/config.json")):
            return FoundRuns((), MappingProxyType({}))
        return find_runs([folder], graph=self.graph, cores=self._cores)

    @property
    def described(self) -> str:
        """What is predicted, in words."""
        counts = ", ".join(map(str, self.ranks or (self.config.ranks,)))
        model = f"{self.config.model}, hidden {self.config.hidden}"
        return f"Predicted epochs of {model}, on {self.graph.name}, {counts} ranks"

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row for each number of ranks and each system that can be predicted for it."""
        rows = []
        for count in self.ranks or (self.config.ranks,):
            configs, _ = self.configs(count)
            rates = self.rates(configs)
            for name, config in configs.items():
                with contextlib.suppress(LabError):  # advice() gives the reason
                    epoch = rates.predict(*count_work(config, self.graph), self._network)
                    values = {key: getattr(epoch, key) for key in epoch.__slots__}
                    rows.append({"system": name, "ranks": count, **values})
        return rows

    def rates(self, configs: Mapping[str, RunConfig]) -> Rates:
        """Return rates fitted to the local runs, for the model and sizes of some configs."""
        return fit_rates(self.measured.runs, facts_of(next(iter(configs.values())), self.graph))

    def configs(self, ranks: int) -> tuple[dict[str, RunConfig], dict[str, str]]:
        """Return a config for each system that is possible, and the reasons why others are not.

        Raises:
            ConfigError: no system is possible, or no system reads a change.
        """
        configs: dict[str, RunConfig] = {}
        excluded: dict[str, str] = {}
        unread = set(self.changes) - set(_FOR_ALL)
        parts = {} if self.config.parts != self.config.ranks else {"parts": 0}
        for name in self.systems:
            settings = self._read_by(name)
            unread -= set(settings)
            try:
                configs[name] = self.config.replace(system=name, ranks=ranks, **parts, **settings)
            except LabError as error:
                excluded[name] = str(error)
        if not configs:
            raise _no_system("run with these settings", excluded)
        if unread:
            raise ConfigError(f"{', '.join(sorted(unread))}: no chosen system reads it for this data and model.")
        return configs, excluded

    def _read_by(self, system: str) -> dict[str, Any]:
        """Return the changes that a system reads."""
        owners = catalogue.option_owners(system, self.config.dataset, self.config.model, self.changes)
        names = {name for options in owners.values() for name in options} | set(_FOR_ALL) | set(RunConfig.model_fields)
        return {name: value for name, value in self.changes.items() if name in names}

    def advice(self, memory_gib: float, *, calibrate: bool = False) -> Advice:
        """Rank the systems by predicted epoch time, with those that fit into the memory first.

        An epoch is not the same work in every system. To compare how fast losses fall, use ``lab.race``.

        Args:
            memory_gib: memory of a rank in GiB, for a step's tensors and the rank's data.
            calibrate: if no run has these settings, first train some short ones in this process, which takes seconds.

        Raises:
            ConfigError: the memory is invalid, no system reads a change, or no system can be predicted.
            RunStoreError: one of the runs is not a run.
        """
        if isinstance(memory_gib, bool) or not isinstance(memory_gib, int | float) or not 0 < memory_gib < 1e9:
            raise ConfigError(
                f"memory_gib={shortened(memory_gib)} is invalid. Give the memory of a rank in GiB, above 0."
            )
        ranks = self.ranks[0] if self.ranks else self.config.ranks
        configs, excluded = self.configs(ranks)
        measured, first = self.measured, next(iter(configs.values()))
        sizes = ("model", "hidden", "layers")
        measured_configs = [run.facts.config for run in measured.runs]
        if calibrate and not any(
            all(getattr(run, name) == getattr(first, name) for name in sizes) for run in measured_configs
        ):
            added = find_runs(calibration_runs(configs, self._runs_dir), graph=self.graph)
            measured = FoundRuns((*measured.runs, *added.runs), {**measured.skipped, **added.skipped})
        facts = facts_of(first, self.graph)
        rates, errors = fit_rates(measured.runs, facts), learn_errors(measured.runs)
        suggestions = []
        for name, config in configs.items():
            try:
                budget = float(memory_gib) * GIB
                suggestions.append(suggest(config, self.graph, rates, errors, budget=budget, network=self._network))
            except LabError as error:
                excluded[name] = str(error)
        if not suggestions:
            raise _no_system("be predicted", excluded)
        ranked = tuple(sorted(suggestions, key=lambda one: (not one.fits, one.predicted.epoch_s)))
        title = (
            f"{self.graph.name}: {self.graph.num_nodes:,} nodes, {facts.edges.sum():,} edges in {len(facts.train)} "
            f"snapshots trained; {first.model} of {first.layers} layer{'s' * (first.layers > 1)}, hidden "
            f"{first.hidden}; {ranks} rank{'s' * (ranks > 1)} of {float(memory_gib):g} GiB"
        )
        return Advice(title, ranked, excluded, rates, errors, dict(measured.skipped))

    def curves(self, *, quick: bool = True) -> RankCurves:
        """Return how epoch times, efficiency, bytes, replicas and fetches change with the number of ranks.

        Args:
            quick: compute up to 16 partitions and extend the sequence of groups to 2,000 snapshots, which takes
                seconds. Otherwise compute up to 128 and use DyGNeX's 10,000 snapshots with its greedy scheduler, which
                takes a minute or more.

        Raises:
            ConfigError: a change is invalid.

        References: DyGNeX section 5.4 (simulation to 1,024 ranks), ESDG sections 6.3 and 6.4, GreenDyGNN section IV-A.
        """
        counts = self.ranks or RANKS
        base = self.config.replace(system="psg", ranks=1, parts=1, **self._read_by("psg"))
        work, facts = count_work(base, self.graph)
        measured = self.measured.runs
        rates = fit_rates(measured, facts)
        assert work.groups is not None
        most_parts = QUICK_PARTS if quick else MOST_PARTS
        rows: list[Row] = []
        excluded: list[str] = []
        for family in catalogue.families():
            rows += family.curves(facts, counts, rates, quick=quick)
        anywhere = {name: flag for family in catalogue.families() for name, flag in family.predicted.items()}
        for name in (name for name in self.systems if name in anywhere):
            try:
                config = base.replace(system=name, **self._read_by(name))
            except LabError as error:
                excluded.append(f"{name}: {error}")
                continue
            for count in [count for count in counts if count <= most_parts or anywhere[name]]:
                try:
                    on_ranks = config.replace(ranks=count, parts=count)
                    epoch = rates.predict(*count_work(on_ranks, self.graph), self._network)
                except LabError as error:
                    plural = "s" * (count > 1)
                    excluded.append(f"{name} on {count} rank{plural} and more is not shown: {error}")
                    break
                rows.append(curve_row("epoch_s", name, count, epoch.epoch_s, "predicted"))
        of_partitions, growth = partition_rows(facts, counts, most_parts)
        same = [run for run in measured if is_same(run, facts)]
        rows += of_partitions + gradient_rows(facts, counts) + measured_rows(same)
        remarks = (*notes(rates, growth, same, measured), *excluded)
        return RankCurves(tuple(rows), growth, rates, describe(facts, counts, work.groups), remarks)

    def steps(self, *, held_out: Runs = (), weak: bool = False, size: float = 1.0) -> StepScaling:
        """Extrapolate the steps of the given ESDG runs to other numbers of ranks; see ``step_scaling.extrapolate``.

        Args:
            held_out: runs that are predicted and compared, but not used for the fit.
            weak: whether the graph grows with the ranks, in nodes and edges alike; otherwise it stays the same.
            size: factor by which the predicted graph's nodes and edges are scaled.
        """
        return extrapolate(
            self._runs,
            self.ranks or STEP_RANKS,
            held_out=held_out,
            weak=weak,
            size=size,
            network=self._network,
            cores=self._cores,
        )

    def transfers(self, **settings: Any) -> TransferStudy:
        """Return bytes and seconds for transferring the graph in full and as changes; see ``estimate_transfers``."""
        return estimate_transfers(self.graph, ranks=self.ranks or None, **settings)

    def volumes(self, models: str | Sequence[str] = "", **settings: Any) -> VolumeStudy:
        """Return the values sent per step by snapshot and by hypergraph partitioning; see ``estimate_volumes``.

        Args:
            models: names of models; by default the config's.
            settings: arguments of ``estimate_volumes``; hidden size, layers, protocol and seed come from the config.
        """
        config = self.config
        settings_of_config = {
            "hidden": config.hidden,
            "layers": config.layers,
            "protocol": config.protocol,
            "seed": config.seed,
        }
        return estimate_volumes(
            self.graph, models or config.model, self.ranks or VOLUME_RANKS, **{**settings_of_config, **settings}
        )

    def block_memory(self, blocks: Sequence[int] = (1, 2, 4, 8), **settings: Any) -> BlockStudy:
        """Measure peak memory and time of a step with each number of time blocks; see ``estimate_block_memory``."""
        return estimate_block_memory(self.config, blocks, graph=self.graph, **settings)


def _no_system(action: str, excluded: Mapping[str, str]) -> ConfigError:
    return ConfigError(f"no system can {action}: " + "; ".join(f"{name}: {why}" for name, why in excluded.items()))


def calibration_settings() -> dict[str, Mapping[str, Any]]:
    """Return the systems that families calibrate rates with -> the settings of a short run of each."""
    return {name: settings for family in catalogue.families() for name, settings in family.calibrated.items()}


def calibration_runs(configs: Mapping[str, RunConfig], runs_dir: str | Path | None) -> list[StoredRun]:
    """Train some systems for a few epochs on one rank and return the runs; systems that fail are left out.

    Args:
        configs: system -> its settings, in which ranks and epochs are replaced.
        runs_dir: folder for the runs; by default a temporary one.
    """
    folder = mkdtemp(prefix="dtdg-forecast-") if runs_dir is None else runs_dir
    first = next(iter(configs.values()))
    runs = []
    for name, settings in calibration_settings().items():
        with contextlib.suppress(LabError):  # a system that cannot run on this graph provides no rates
            config = (configs.get(name) or first.replace(system=name)).replace(
                **{"ranks": 1, "parts": 1, **settings},
                epochs=CALIBRATION_EPOCHS,
                evaluate_every=CALIBRATION_EPOCHS,
                threads=1,
            )
            runs.append(run_config(config, runs_dir=folder).run)
    return runs
