"""What shared code may ask of a family of systems: the one interface between the two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtdg_lab.core.catalogue import Entry, System
    from dtdg_lab.core.config import RunConfig
    from dtdg_lab.core.options import Option
    from dtdg_lab.engine.strategy import BuildContext, Strategy
    from dtdg_lab.visualization.run_view import RunView, SharedViews
    from dtdg_lab.visualization.run_window import RunWindow
    from dtdg_lab.widgets.run_page import PageContext, RunPage


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
    """

    name = ""
    systems: tuple[System, ...] = ()
    entries: tuple[Entry, ...] = ()
    options: tuple[Option, ...] = ()
    memories: Mapping[tuple[str, str], str] = MappingProxyType({})
    tables: Mapping[str, tuple[str, ...]] = MappingProxyType({})

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
