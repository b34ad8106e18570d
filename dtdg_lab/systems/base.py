"""What shared code may ask of a family of systems: the one interface between the two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.errors import ConfigError

if TYPE_CHECKING:
    from dtdg_lab.advisor.rates import Rates
    from dtdg_lab.core.catalogue import Entry, System
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.core.options import Option
    from dtdg_lab.engine.strategy import BuildContext, Strategy
    from dtdg_lab.graphs.delta import SequenceChanges
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph
    from dtdg_lab.runs.run import StoredRun
    from dtdg_lab.systems.step_time import MeasuredStep, StepForecast
    from dtdg_lab.systems.workload import EpochWork, Facts, Row
    from dtdg_lab.visualization.run_view import RunView, SharedViews
    from dtdg_lab.visualization.run_window import RunWindow
    from dtdg_lab.widgets.run_page import PageContext, RunPage

GRADIENTS = "gradients, every system"  # a curve of ``lab.estimate.scaling_forecast``


class SystemFamily:
    """A family of systems: their strategies, views, page and workload. The base class is the null behaviour.

    Methods import what they return inside their bodies: listing families imports neither torch nor panel.

    A family from outside the package also brings what the catalogue holds of the others, and is added by
    :func:`dtdg_lab.register`.

    Attributes:
        name: of its folder.
        systems: its systems.
        entries: the algorithms that they are composed of; at least one of kind ``parallel``.
        options: its own settings, live ones included, with an entry's kind as their owner.
        memories: (memory of a model, name of its ``parallel`` entry) -> ``exact``, or how it approximates.
        tables: record tables that it adds -> columns, beginning with ``step`` and ``epoch``.
        calibrated: system -> settings of short runs that ``lab.estimate.advise`` calibrates rates with.
        predicted: systems whose epochs ``lab.estimate.scaling_forecast`` predicts -> whether without making partitions,
            so on any ranks.
        curves_of: system -> curves of ``lab.estimate.scaling_forecast`` beside which its measured runs are drawn.
    """

    name = ""
    systems: tuple[System, ...] = ()
    entries: tuple[Entry, ...] = ()
    options: tuple[Option, ...] = ()
    memories: Mapping[tuple[str, str], str] = MappingProxyType({})
    tables: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    calibrated: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    predicted: Mapping[str, bool] = MappingProxyType({})
    curves_of: Mapping[str, tuple[str, ...]] = MappingProxyType({})

    def build(self, context: BuildContext) -> Strategy:
        """The strategy that trains a run on this rank.

        Raises:
            LabError: the config cannot be built on this graph and machine.
        """
        raise NotImplementedError(f"the family {self.name!r} builds no strategy.")

    def views(self, config: RunConfig, shared: SharedViews) -> Sequence[RunView]:
        """The charts that it adds to those of every run, in the order in which they are shown.

        Args:
            config: the settings with which the run began.
            shared: what charts share, such as the marks of changed settings.
        """
        return ()

    def event_texts(self) -> Mapping[str, Callable[[dict[str, Any]], str]]:
        """Kind of event -> a sentence about its data, for lists of events."""
        return {}

    def comparison(self, runs: Sequence[tuple[str, RunWindow]]) -> str:
        """What it says of labelled runs that are compared over wall time; empty where it has nothing to say."""
        return ""

    def page(self, context: PageContext) -> RunPage | None:
        """Its page of the dashboard."""
        return None

    def workload(self, facts: Facts) -> EpochWork:
        """What each rank does in an epoch of the facts' config.

        Raises:
            LabError: the graph does not serve the config.
        """
        raise NotImplementedError(f"the family {self.name!r} counts no work.")

    def memory_changes(self, config: RunConfig) -> Sequence[tuple[str, float]]:
        """Options that lower a rank's memory, each with the factor by which it is changed again and again."""
        return ()

    def curves(self, facts: Facts, ranks: Sequence[int], rates: Rates, *, quick: bool) -> list[Row]:
        """Curves of ``lab.estimate.scaling_forecast`` beside the predicted epochs: formulas and simulations of its own.

        Args:
            facts: of the config, with the options of snapshot groups.
            ranks: numbers of ranks.
            rates: of the machine.
            quick: whether to take seconds rather than minutes.
        """
        return []

    def measured_step(
        self, run: StoredRun, graph: DynamicGraph | None = None, *, cores: int | None = None
    ) -> tuple[MeasuredStep, StepForecast, SequenceChanges]:
        """The median step of a run, what it computes, and its graph: what ``lab.estimate.extrapolate`` continues.

        Args:
            run: of a system of the family.
            graph: its data; loaded where not given.
            cores: of the machine it ran on; those of this process where not given.

        Raises:
            ConfigError: steps of the run cannot be continued to other numbers of ranks.
        """
        raise ConfigError(
            f"run {run.id} is of system {run.config.system!r}; steps of a system whose ranks have whole snapshots are "
            "needed. Record one with snapshot parallelism."
        )
