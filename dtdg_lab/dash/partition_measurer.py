"""Partitions of the chosen graph, made and measured by a thread: the page must not wait for a partitioner."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.dash.actions import describe
from dtdg_lab.dash.graph_loader import is_here
from dtdg_lab.dash.newest_first import NewestFirst
from dtdg_lab.datasets import load_for
from dtdg_lab.partition.measured import partition_graph
from dtdg_lab.views.partition_facts import PartitionFacts, facts_of

if TYPE_CHECKING:
    from dtdg_lab.graphs.dynamic_graph import DynamicGraph

NOT_HERE = "The graph is not on this machine yet: a run, or lab.load_dataset({name!r}), downloads it."
PARTITION_OPTIONS = ("dealing", "imbalance", "partition_file")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Measure a config's graph cut in ``parts`` by each of the partitioners; the config's model pulls."""

    config: RunConfig
    parts: int
    partitioners: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one partitioner: what its partition would cost, or in ``why_not`` why there is none."""

    partitioner: str
    facts: PartitionFacts | None = None
    why_not: str = ""


class PartitionMeasurer:
    """Measures what was asked for last; partitioners of an earlier request that have not begun are passed over.

    ``on_outcome(wanted, outcome)`` is called by the thread for each partitioner, ``on_end(wanted, why_not)`` after the
    last; ``why_not`` says why the graph could not be read, else it is empty.
    """

    def __init__(self, on_outcome: Callable[[Wanted, Outcome], None], on_end: Callable[[Wanted, str], None]) -> None:
        self._on_outcome, self._on_end = on_outcome, on_end
        self._worker = NewestFirst(self._work, "dashboard-partitions")

    def ask(self, wanted: Wanted) -> None:
        """Measure this next."""
        self._worker.ask(wanted)

    def close(self) -> None:
        """End the thread once it has finished what it does."""
        self._worker.close()

    def _work(self, wanted: Wanted) -> None:
        self._on_end(wanted, self._measure_all(wanted))

    def _measure_all(self, wanted: Wanted) -> str:
        config = wanted.config
        try:
            if not is_here(config):
                return NOT_HERE.format(name=config.dataset)
            graph = load_for(config)
        except Exception as error:  # there is no caller to raise to: the page says it
            return _told(error, f"{config.dataset} could not be read")
        for name in wanted.partitioners:
            if self._worker.overtaken:
                break
            self._on_outcome(wanted, _outcome(graph, name, wanted))
        return ""


def _outcome(graph: DynamicGraph, name: str, wanted: Wanted) -> Outcome:
    try:
        measured = partition_graph(graph, name, wanted.parts, **_settings(wanted.config))
        return Outcome(name, facts_of(measured.told()))
    except Exception as error:  # a partitioner that fails leaves the others; there is no caller to raise to
        return Outcome(name, why_not=_told(error, f"partitioner {name} failed"))


def _settings(config: RunConfig) -> dict[str, Any]:
    """What partitions, and the rows that a model pulls between their parts, depend on."""
    read = ("seed", "model", "layers", "hidden", "protocol")
    options = {**config.options["models"], **{name: config[name] for name in PARTITION_OPTIONS}}
    return {**{name: config[name] for name in read}, **options}


def _told(error: Exception, what: str) -> str:
    if not isinstance(error, LabError):
        _LOG.exception("%s", what)
    return describe(error)
