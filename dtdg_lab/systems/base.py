"""Interface between shared code and a family of systems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import ConfigError, UnsupportedError
from dtdg_lab.network.links import parse_links
from dtdg_lab.records.tables import RunTables

if TYPE_CHECKING:
    import pandas as pd

    from dtdg_lab.config.catalogue import Entry, System
    from dtdg_lab.config.options import Option
    from dtdg_lab.config.run_config import RunConfig
    from dtdg_lab.engine.strategy import BuildContext, Strategy
    from dtdg_lab.forecast.rates import Rates
    from dtdg_lab.graphs.delta import SequenceChanges
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.runs.stored_run import StoredRun
    from dtdg_lab.studies.preset import StudyPreset
    from dtdg_lab.systems.step_time import MeasuredStep, StepForecast
    from dtdg_lab.systems.workload import EpochWork, Facts, Row
    from dtdg_lab.visualization.chart import CaptionedFigure, Chart
    from dtdg_lab.visualization.studies.comparison import ComparedRun
    from dtdg_lab.visualization.tiles import Effect, Suggestion, Tile


class SystemFamily:
    """A family of systems: strategies, charts, page and workload. The base class provides none of them.

    Methods import their results inside their bodies, so that listing families imports neither torch nor panel.

    A built-in family declares its systems, entries, options, memories and tables in ``family.toml`` of its folder. The
    catalogue reads that file without importing the family. Its table ``family`` sets the attributes below. A family
    from outside the package sets attributes of the same names in its class, and is added by :func:`dtdg_lab.register`.

    Args:
        name: name of a family without a class of its own.

    Attributes:
        name: name of the family's folder.
        least_parts: default number of parts, if there are fewer ranks.
        systems: its systems.
        entries: the algorithms that its systems consist of; at least one of kind ``parallel``.
        options: its own settings, including live ones, with an entry's kind as their owner.
        memories: (memory of a model, name of its ``parallel`` entry) -> ``exact``, or a description of the
            approximation.
        events: ``module:class`` of its events; ``words`` describes an event, ``ended`` a plan that ends.
        tables: record tables that it adds -> columns, beginning with ``step`` and ``epoch``.
        calibrated: system -> settings of short runs from which ``Forecast.advice`` calibrates rates.
        predicted: systems whose epochs ``Forecast.curves`` predicts -> True if that needs no partitions, so that it
            works for any number of ranks.
        curves_of: system -> curves of ``Forecast.curves`` that its measured runs are drawn beside.
        full_batch: its ``parallel`` entries that train on the whole training split in one step.
        same_plan: reason why runs of equal plans have equal losses.
        summary_meanings: number that it adds to the summary of every run -> its meaning.
        summary_tables: additional record tables that these numbers need.
        summary_columns: table -> the columns that they need of it; all of a table that is not named.
        card: title of its card on the dashboard, by default derived from the name; equal titles share a card.
        idea: sentence on that card; by default the summary of its first system.
        sketch: picture on that card, a row per node, a character per snapshot: the rank that computes it, ``c`` or
            ``d`` if rank 0 or 1 reads it from the other, ``.`` if none does, a blank for a gap.
        first_visit: system shown on a first visit to the dashboard; only one family sets it.
        setting_rows: rows of its settings among the main settings of the dashboard.
        pictures_note: source of the charts of :meth:`pictures`.
        memory_options: options that lower a rank's memory -> factor of each repeated change.
        small_settings: its options in the small runs of ``lab.testing``.
        repeatable_settings: its options with which measured times do not change losses.
    """

    name = ""
    least_parts = 1
    systems: tuple[System, ...] = ()
    entries: tuple[Entry, ...] = ()
    options: tuple[Option, ...] = ()
    memories: Mapping[tuple[str, str], str] = MappingProxyType({})
    events: tuple[str, ...] = ()
    tables: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    calibrated: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    predicted: Mapping[str, bool] = MappingProxyType({})
    curves_of: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    full_batch: tuple[str, ...] = ()
    same_plan = "both execute the same plan"
    summary_meanings: Mapping[str, str] = MappingProxyType({})
    summary_tables: tuple[str, ...] = ()
    summary_columns: Mapping[str, Sequence[str]] = MappingProxyType({})
    card = ""
    idea = ""
    sketch: tuple[str, ...] = ()
    first_visit = ""
    setting_rows: tuple[tuple[str, ...], ...] = ()
    pictures_note = "Computed now by this lab's planners, from a synthetic graph of 240 nodes and 24 snapshots."
    memory_options: Mapping[str, float] = MappingProxyType({})
    small_settings: Mapping[str, Any] = MappingProxyType({})
    repeatable_settings: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, name: str = "") -> None:
        self.name = name or self.name
        for attribute, value in catalogue.frozen(catalogue.DECLARED.get(self.name, {}).get("family", {})).items():
            setattr(self, attribute, value)

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise if the family rejects settings of a config, by flat name, or if ``links`` is invalid.

        Raises:
            ConfigError: as of :meth:`check_settings` and :func:`dtdg_lab.network.links.parse_links`.
        """
        self.check_settings(settings)
        if settings.get("links", "").strip():
            parse_links(settings["links"], settings["parts"])

    def check_settings(self, settings: Mapping[str, Any]) -> None:
        """Raise if settings of a config, by flat name, do not work together.

        Raises:
            ConfigError: settings conflict; the message says what to set instead.
        """

    def build(self, context: BuildContext) -> Strategy:
        """Return the strategy that trains a run on this rank.

        Raises:
            LabError: the config cannot be built on this graph and machine.
        """
        raise NotImplementedError(f"the family {self.name!r} builds no strategy.")

    def charts(self) -> Sequence[Chart]:
        """Return the charts of its systems: the pictures first, then supporting charts, then folded ones."""
        return ()

    def tiles(self, tables: RunTables) -> Sequence[Tile]:
        """Return up to five tiles of a run; if empty, the page shows the common tiles."""
        return ()

    def suggestions(self, config: RunConfig) -> Sequence[Suggestion]:
        """Return at most four changes of settings to try after a run with these settings."""
        return ()

    def effect(self, system: str) -> Effect | None:
        """Return the number to compare before and after each change of a run of one of its systems."""
        return None

    def sentence(self, system: str) -> str:
        """Return a sentence on one of its systems, for its card and the page's head."""
        return self.idea or catalogue.system(system).summary

    def event_texts(self) -> Mapping[str, Callable[[dict[str, Any]], str]]:
        """Return kind of event -> function that describes its data in a sentence."""
        return {event.kind: event.text for event in map(catalogue.load, self.events)}

    def summary(self, tables: Mapping[str, pd.DataFrame], everything: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
        """Return the family's numbers of a run; None for numbers that the run lacks.

        Args:
            tables: record tables without rows that a resume replaced.
            everything: record tables of all attempts, for totals such as bytes.
        """
        return {}

    def comparison(self, runs: Sequence[ComparedRun], target: float) -> str:
        """Return a sentence on runs that are compared by their time to a target loss; may be empty."""
        return ""

    def studies(self) -> Sequence[StudyPreset]:
        """Return shipped studies besides those declared in its file."""
        return ()

    def has_clock(self, config: RunConfig) -> bool:
        """Return True if measured times affect the losses of a run, so that losses cannot be reproduced."""
        return False

    def epoch_bounds(self, run: StoredRun, newest: int) -> pd.Series[float] | None:
        """Return seconds that no schedule of the run's measured tasks can beat, by epoch; None without a schedule.

        Args:
            run: a finished run.
            newest: number of epochs that count.
        """
        return None

    def energy_bound(self, run: StoredRun, raced: Sequence[StoredRun]) -> tuple[float, str, bool] | None:
        """Return a lower bound of an epoch's joules, its name, and True if it comes from a run in the race.

        Args:
            run: a finished run whose joules are known.
            raced: all finished runs of the race.
        """
        return None

    def calibration(self, config: RunConfig, **sizes: Any) -> Any:
        """Return the plan of ``lab.calibration.calibrate_here``: ``first``, ``configs`` and ``study`` of its runs.

        Args:
            config: the initial settings of the runs.
            sizes: sizes of the measurement, passed on unchanged.

        Raises:
            ConfigError: no policy of the system decides by costs, or too little would be measured.
        """
        raise ConfigError(f"system={config.system!r} fetches no features. Choose a system with a feature cache.")

    def pictures(self, system: System, graph: DynamicGraph) -> list[CaptionedFigure]:
        """Return one to four charts for the card of one of its systems, drawn from a small graph, with captions."""
        return []

    def workload(self, facts: Facts) -> EpochWork:
        """Return the work of each rank in an epoch of the facts' config.

        Raises:
            LabError: the graph does not suit the config, or the family predicts no work.
        """
        raise UnsupportedError(
            f"the family {self.name!r} predicts no work. Define its method workload(facts), or leave its systems out."
        )

    def memory_changes(self, config: RunConfig) -> Sequence[tuple[str, float]]:
        """Return options that lower a rank's memory, each with the factor of a repeated change."""
        return [(name, factor) for name, factor in self.memory_options.items() if name in config.flat]

    def curves(self, facts: Facts, ranks: Sequence[int], rates: Rates, *, quick: bool) -> list[Row]:
        """Return curves of ``Forecast.curves``, such as formulas and simulations of its own.

        Args:
            facts: facts of the config, with the options of snapshot groups.
            ranks: numbers of ranks.
            rates: rates of the machine.
            quick: True to take seconds rather than minutes.
        """
        return []

    def measured_step(
        self, run: StoredRun, graph: DynamicGraph | None = None, *, cores: int | None = None
    ) -> tuple[MeasuredStep, StepForecast, SequenceChanges]:
        """Return the median step of a run, its settings, and the changes of its graph, for ``Forecast.steps``.

        Args:
            run: run of a system of the family.
            graph: its data; loaded by default.
            cores: cores of its machine; those of this process by default.

        Raises:
            ConfigError: steps of the run cannot be extrapolated to other numbers of ranks.
        """
        raise ConfigError(
            f"run {run.id} is of system {run.config.system!r}, but steps of a system whose ranks have whole snapshots "
            "are needed. Record a run with snapshot parallelism."
        )


class AbsentFamily(SystemFamily):
    """A family that is not registered in this process; its runs can be shown, but not trained.

    Args:
        name: name of the family.
        remedy: what to register, for error messages.
    """

    def __init__(self, name: str, remedy: str) -> None:
        super().__init__(name)
        self.remedy = remedy

    def build(self, context: BuildContext) -> Strategy:
        """Raise an error with the remedy.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(self.remedy)

    def workload(self, facts: Facts) -> EpochWork:
        """Raise an error with the remedy.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(self.remedy)
