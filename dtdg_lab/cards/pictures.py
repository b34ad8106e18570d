"""The pictures of a system's card: computed by our planners from a small synthetic graph, or taken from a run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.catalogue import System, family
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.visualization.cards import Panel
from dtdg_lab.visualization.layout import Figure

MOST = 4  # panels of a run
SMALL: Mapping[str, Any] = MappingProxyType(
    {"generated_nodes": 240, "generated_edges": 1600, "generated_snapshots": 24, "growth": 6.0}
)


def drawn_pictures(system: System) -> list[Panel]:
    """One to four charts with their captions, computed now from the small graph.

    Args:
        system: of the catalogue.
    """
    pictures: list[Panel] = family(system.family).pictures(system, small_graph())
    return pictures


def picture_note(system: System) -> str:
    """The data source of :func:`drawn_pictures`."""
    return str(family(system.family).pictures_note)


def run_pictures(system: System, run: Any) -> list[Panel]:
    """Charts of a run of the system, the first few that its records allow.

    Args:
        system: of the catalogue.
        run: with ``config`` and ``live``, such as that of ``lab.runs.open``.

    Raises:
        ConfigError: the run is of another system, or has recorded nothing that can be drawn yet.
    """
    if run.config.system != system.name:
        raise ConfigError(
            f"run {run.id} trained system {run.config.system!r}, and this is the card of {system.name!r}: "
            f"card({run.config.system!r}, run=...) draws it."
        )
    window = run.live
    views = [window.view(name) for name in family(system.family).card_views]
    panels = [panel for view in views for panel in view.panels() if _shows(panel[0])]
    if not panels:
        captions = window.captions()
        panels = [(figure, captions[name]) for name, figure in window.figures("steps").items() if name in captions]
    if not panels:
        raise ConfigError(f"run {run.id} has recorded nothing that can be drawn: wait for its first epoch.")
    return panels[:MOST]


@lru_cache(maxsize=1)
def small_graph() -> DynamicGraph:
    """A graph of 240 nodes whose 24 snapshots grow sixfold, from seed 0."""
    return load_dataset("growing", **SMALL)


def _shows(figure: Figure) -> bool:
    """Whether it contains anything but a note."""
    return any(value is not None for trace in figure["data"] for value in trace.get("x") or ())
