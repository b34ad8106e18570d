"""The chosen graph's statistics, computed by a thread: the page must not wait for a file or a generator."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.dash.actions import describe
from dtdg_lab.dash.choices import is_generated, is_stored
from dtdg_lab.dash.newest_first import NewestFirst
from dtdg_lab.datasets import DatasetInfo, datasets, load_for
from dtdg_lab.graphs.describe import GraphStatistics
from dtdg_lab.graphs.kept_statistics import statistics_of

MOST_ROWS = 3_000_000  # edges of a file, or of all snapshots of a generator, that are loaded only to be drawn
MOST_ALIVE = 10 * MOST_ROWS  # each counted once for every interval it lives
KEPT = 12
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Described:
    """What there is to draw of a choice: statistics, or in ``why_not`` why there are none."""

    config: RunConfig
    statistics: GraphStatistics | None = None
    why_not: str = ""


def data_key(config: RunConfig) -> tuple[Any, ...]:
    """Everything the graph and its split depend on: equal keys, equal pictures."""
    options = tuple(sorted(config.options.get("datasets", {}).items()))
    return (config.dataset, config.protocol, config.seed if is_generated(config.dataset) else 0, options)


def why_not(config: RunConfig) -> str:
    """Why a graph is not loaded only to be drawn; empty where it is."""
    if is_stored(config.dataset):
        return ""
    if is_generated(config.dataset):
        rows = config["generated_edges"] * config["generated_snapshots"]
    else:
        if not is_here(config):
            return "not on this machine yet; the first run downloads it"
        rows = _info(config).rows or 0
    if rows <= MOST_ROWS and rows * config["edge_life"] <= MOST_ALIVE:
        return ""
    return f"{rows:,} edges that live {config['edge_life']} intervals are too many to cut only for a picture"


def is_here(config: RunConfig) -> bool:
    """Whether a config's graph can be had without the web."""
    return is_stored(config.dataset) or is_generated(config.dataset) or _info(config).on_this_machine


def _info(config: RunConfig) -> DatasetInfo:
    return next(info for info in datasets() if info.name == config.dataset)


def describe_data(config: RunConfig) -> Described:
    """Load the graph of a config and describe it; errors become words."""
    try:
        refused = why_not(config)
        return Described(config, why_not=refused) if refused else Described(config, statistics_of(load_for(config)))
    except LabError as error:
        return Described(config, why_not=str(error))


class GraphLoader:
    """Describes the graph asked for last; what was asked for before it and has not begun is passed over.

    ``on_done(described)`` is called by the thread.
    """

    def __init__(self, on_done: Callable[[Described], None]) -> None:
        self._on_done = on_done
        self._known: dict[tuple[Any, ...], Described] = {}
        self._worker = NewestFirst(self._work, "dashboard-graph")

    def ask(self, config: RunConfig) -> None:
        """Describe this graph next."""
        self._worker.ask(config)

    def close(self) -> None:
        """End the thread once it has finished what it does."""
        self._worker.close()

    def _work(self, config: RunConfig) -> None:
        key = data_key(config)
        found = self._known.get(key) or self._described(config)
        if found.statistics is not None:  # what cannot be drawn now may be once a run has fetched it
            self._known[key] = found
        while len(self._known) > KEPT:
            self._known.pop(next(iter(self._known)))
        self._on_done(found)

    def _described(self, config: RunConfig) -> Described:
        try:
            return describe_data(config)
        except Exception as error:  # there is no caller to raise to: the page says it
            _LOG.exception("%s could not be described", config.dataset)
            return Described(config, why_not=describe(error))
