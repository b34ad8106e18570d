"""The work of an epoch: what each rank computes, sends, brings and keeps, counted before anything is trained.

Families count it in their ``workload`` modules; :func:`count_work` finds the one that a config needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.model_facts import ModelFacts, Pull, model_facts
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.split import split
from dtdg_lab.partition.base import make_partition, partition_settings
from dtdg_lab.partition.measures import PartitionMeasures, measures_for

# What a config computes on a graph, whatever its system: snapshots trained, pulls, sizes of rows and of gradients.


Numbers = NDArray[np.float64]
Row = dict[str, Any]
SLOTS = 4  # numbers that ride behind the gradients beside one for each rank: version, choice, loss, groups
# assumed where too few runs are known: seconds of a unit of each column of Facts.passes, on a core
ASSUMED_COMPUTE = (2e-9, 2e-11, 5e-5, 5e-5, 0.0, 2e-3)
KEPT_OF_HIDDEN = 8  # assumed: numbers of the width H that backward needs of a row and layer (gates and states)


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """A config and its graph, with what every count needs of them.

    Attributes:
        config: settings.
        graph: T snapshots of N nodes.
        train: the snapshots trained.
        model: what training must know of the model.
        parameters: numbers of a gradient.
        outputs: numbers that the model gives of a node.
    """

    config: RunConfig
    graph: DynamicGraph
    train: range
    model: ModelFacts
    parameters: int
    outputs: int

    @property
    def ranks(self) -> int:
        """R."""
        return self.config.ranks

    @property
    def layout(self) -> str:
        """Entry of the kind ``parallel`` that the system is made of."""
        return catalogue.system(self.config.system).parts["parallel"]

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """Those trained."""
        return tuple(self.graph.snapshots[self.train.start : self.train.stop])

    @property
    def pulled(self) -> tuple[Pull, ...]:
        """What the model pulls along edges in one snapshot."""
        return self.model.along_edges

    @property
    def memory(self) -> str:
        """How the model remembers: per_vertex, weights, weights_from_data, neighbourhood, none."""
        return self.model.memory

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return int(np.dtype(self.config["dtype"]).itemsize)

    @property
    def reach(self) -> int:
        """Hops of all layers."""
        return self.model.hops

    @property
    def directions(self) -> tuple[str, ...]:
        """Along which edges the model pulls."""
        return self.model.directions

    @property
    def edge_numbers(self) -> int:
        """Numbers that are read along one edge of a snapshot, over all layers."""
        return sum(pull.width for pull in self.pulled)

    @property
    def row_numbers(self) -> int:
        """Numbers of one row that are assumed to be kept for backward."""
        return self.graph.num_features + KEPT_OF_HIDDEN * self.config.hidden * self.config.layers

    @property
    def gradient_bytes(self) -> int:
        """That one rank sends for one step: 2 b (R - 1) / R of a ring, slots included; exact."""
        numbers = self.parameters + SLOTS + self.ranks
        return 2 * numbers * self.itemsize * (self.ranks - 1) // self.ranks

    @property
    def edges(self) -> NDArray[np.int64]:
        """(S,) of the snapshots trained."""
        return np.asarray(self.graph.num_edges[self.train.start : self.train.stop], np.int64)

    @property
    def graph_bytes(self) -> int:
        """Of the snapshots trained, whole, float32 and int32: features, row starts, sources, weights."""
        return whole_bytes(self.graph, len(self.train), int(self.edges.sum()))

    def partition(self) -> Partition:
        """Partition the nodes into P parts, as a run of the config does."""
        config = self.config
        live_settings = {name: config[name] for name in partition_settings(config["partitioner"])}
        return make_partition(
            config["partitioner"], self.graph, config.parts, hops=self.reach, seed=config.seed, **live_settings
        )

    def measured(self, partition: Partition) -> PartitionMeasures:
        """Measure a partition over the trained snapshots."""
        return measures_for(self.graph, partition, self.model, snapshots=self.train)

    def passes(self, edges: Any, rows: Any, snapshots: Any, pieces: Any) -> Numbers:
        """(R, 6) as ``StepWork.passes`` has them, forward and backward, with edges and rows in numbers worked on.

        So weighed, rates of a model with one hidden width stand near those of another: an edge counts the numbers read
        along it, a row the model's parameters, since each is multiplied once for it. The sixth column is of pieces
        of work (a step's part, batch or group), for what each costs whatever its size.

        Args:
            edges: (R,) pulled along, in snapshots.
            rows: (R,) nodes times snapshots.
            snapshots: (R,) worked on, one after another.
            pieces: (R,) of work.
        """
        counts = (edges, rows, snapshots, pieces)
        size = max(np.size(count) for count in counts)
        of_edges, of_rows, of_snapshots, of_pieces = (
            np.broadcast_to(np.asarray(count, np.float64), (size,)) for count in counts
        )
        through = of_snapshots * (self.memory == "per_vertex")
        none = np.zeros(size)
        columns = np.stack([of_edges, of_rows * self.row_passes, of_snapshots, through, none, of_pieces / 2], axis=1)
        return self.weighed(2.0 * columns)

    @property
    def row_passes(self) -> int:
        """How often a row is passed over: once, and once more where it runs through time by itself."""
        return 1 + (self.memory == "per_vertex")

    def weighed(self, passes: Numbers) -> Numbers:
        """Return passes whose edges and rows are counted in values."""
        return np.asarray(passes * np.array([self.edge_numbers, self.parameters, 1.0, 1.0, 1.0, 1.0]))


def facts_of(config: RunConfig, graph: DynamicGraph) -> Facts:
    """Return the facts of a config and its graph that counts need.

    Raises:
        LabError: the graph is too short for the protocol.
    """
    train = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[config.protocol]).train
    settings = dict(config.options.get("models", {}))
    of_model = model_facts(config.model, graph.num_features, config.hidden, config.layers, **settings)
    outputs = _outputs(config, graph)
    size = (graph.num_features, config.hidden, config.layers, outputs)
    counted = parameters(config.model, size, tuple(sorted(settings.items())))
    return Facts(config, graph, train, of_model, counted, outputs)


def parameters(model: str, size: tuple[int, int, int, int], settings: tuple[tuple[str, Any], ...]) -> int:
    """Count the numbers of a model's parameters; ``size`` is features, hidden, layers, outputs."""
    return _count_parameters(catalogue.entry("models", model).load(), size, settings)


@lru_cache(maxsize=256)
def _count_parameters(make: Any, size: tuple[int, int, int, int], settings: tuple[tuple[str, Any], ...]) -> int:
    make_model = catalogue.load("dtdg_lab.models.base:make_model")  # by text: it needs torch
    features, hidden, layers, outputs = size
    model = make_model(make, features, hidden, layers, outputs=outputs, **dict(settings))
    return sum(int(parameter.numel()) for parameter in model.parameters())


def whole_bytes(graph: DynamicGraph, snapshots: int, edges: int) -> int:
    """Bytes of some snapshots of a graph: float32 features and weights, int32 row starts and sources."""
    rows = graph.num_nodes * (1 if graph.static_features else snapshots)
    an_edge = 2 if graph.weighted else 1
    return 4 * (graph.num_features * rows + snapshots * (graph.num_nodes + 1) + an_edge * edges)


def _outputs(config: RunConfig, graph: DynamicGraph) -> int:
    task = catalogue.entry("tasks", config["task"])
    options = {name: config[name] for name in task.options}
    return int(task.load().count_outputs(graph, hidden=config.hidden, **options))


# What each rank does in an epoch of a system, counted from the graph, and what it keeps in memory meanwhile.


EXACT = ("rows", "bytes")  # counts that may be known exactly
DRAWN_PARTS = 4  # of all, where batches of a few parts are drawn and counted
FRONT_BYTES = 40  # before the rows for each other rank: clock, count and place, five numbers (comm.rows)


@dataclass(frozen=True, slots=True, eq=False)
class StepWork:
    """One step of R ranks. A pass is forward, its rerun, or backward; what is passed over thrice counts thrice.

    Attributes:
        nodes: N.
        edges: of the S snapshots trained, once.
        passes: (R, 5): edges of own snapshots; rows of these and of own nodes through time; own snapshots; snapshots
            that run through time one after another, on however many ranks; the same where there are several ranks, for
            these run their nodes in pieces, so that pieces can travel.
        sent: (R, R) bytes from rank to rank.
        exchanges: of rows, and one of gradients; 0 on one rank.
        brought: (R, 3): snapshots brought, bytes of these, and bytes they would take whole.
    """

    nodes: int
    edges: int
    passes: Numbers
    sent: Numbers
    exchanges: int
    brought: Numbers

    @property
    def ranks(self) -> int:
        """R."""
        return len(self.sent)


@dataclass(frozen=True, slots=True, eq=False)
class GroupWork(ABC):
    """Groups of snapshots that a schedule assigns to ranks; which rank computes which follows from their times.

    Attributes:
        passes: (K, 6) of each group, as ``Facts.passes``.
    """

    passes: Numbers

    @abstractmethod
    def epoch(self, times_s: Numbers, ranks: int) -> tuple[float, float | None, float]:
        """Seconds of the stragglers of all iterations, the least that any schedule needs, and imbalance.

        Args:
            times_s: (K,) of each group.
            ranks: R.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Fetching:
    """Features fetched in a step, means over parts.

    Attributes:
        owners: that a step fetches from, all at once.
        bytes: of the rows.
        ahead: whether they are fetched while the step before is computed.
    """

    owners: float
    bytes: float
    ahead: bool


@dataclass(frozen=True, slots=True, eq=False)
class EpochWork:
    """An epoch of R ranks.

    Attributes:
        system: its name.
        steps: updates of the model.
        passes: (R, 6) as ``Facts.passes``: edges and rows in numbers worked on.
        rows: (R,) nodes times snapshots that are run forward once, copies included.
        edges: (R,) pulled along, once.
        sent: (R, R) bytes of rows from rank to rank.
        exchanges: of rows.
        gradient_bytes: that one rank sends in the epoch by the ring's formula, for gradients.
        brought: (R, 3) as ``StepWork.brought``.
        alive: (R, 2) rows and edges kept for backward in the largest step.
        held_bytes: (R,) of the data that a rank needs, beside what a step makes.
        exact: which of ``EXACT`` are counts, not estimates.
        waits: whether ranks meet in every step.
        groups: where a scheduler assigns snapshot groups.
        fetching: where features are fetched.
        round_bytes: that a rank sends for a round of averaging models, and seconds between two; where there are any.
        notes: what an estimate rests on, in words.
    """

    system: str
    steps: int
    passes: Numbers
    rows: Numbers
    edges: Numbers
    sent: Numbers
    exchanges: int
    gradient_bytes: float
    brought: Numbers
    alive: Numbers
    held_bytes: Numbers
    exact: frozenset[str] = frozenset()
    waits: bool = True
    groups: GroupWork | None = None
    fetching: Fetching | None = None
    round_bytes: tuple[float, float] | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def ranks(self) -> int:
        """R."""
        return len(self.sent)

    @property
    def rank_bytes(self) -> float:
        """Bytes that the busiest rank sends in an epoch: rows, gradients, features served; not rounds of averaging."""
        fronts = FRONT_BYTES * self.exchanges * (self.ranks - 1)
        return float(self.sent.sum(axis=1).max()) + fronts + self.gradient_bytes

    def step(self) -> StepWork:
        """Return the mean step, as the scaling model takes it; gradients go round a ring."""
        ranks, share = self.ranks, 1.0 / max(self.steps, 1)
        sent = self.sent * share
        if ranks > 1 and self.waits:
            sent = sent + np.roll(np.eye(ranks), 1, axis=1) * (self.gradient_bytes * share)
        exchanges = round(self.exchanges * share) + 1 if ranks > 1 else 0
        return StepWork(0, int(self.edges.sum()), self.passes * share, sent, exchanges, self.brought * share)


def plain_work(
    facts: Facts,
    *,
    steps: int,
    edges: Numbers,
    rows: Numbers,
    snapshots: Numbers | float,
    pieces: Numbers | float | None = None,
    **attributes: object,
) -> EpochWork:
    """Return work whose passes follow from its edges, rows and snapshots.

    Args:
        facts: config and graph.
        steps: of an epoch.
        edges: (R,) of an epoch.
        rows: (R,) of an epoch.
        snapshots: of an epoch, (R,) or one number for all.
        pieces: of work, each at once; one a step where not given.
        **attributes: further attributes, in place of the derived ones.
    """
    ranks = facts.ranks
    pieces = np.full(ranks, float(steps)) if pieces is None else pieces
    defaults: dict[str, object] = {
        "sent": np.zeros((ranks, ranks)),
        "exchanges": 0,
        "brought": np.zeros((ranks, 3)),
        "gradient_bytes": float(facts.gradient_bytes * steps),
        "held_bytes": np.full(ranks, float(facts.graph_bytes)),
        "alive": np.stack([rows, edges], axis=1) / max(steps, 1),
    }
    return EpochWork(
        system=facts.config.system,
        steps=steps,
        passes=facts.passes(edges, rows, snapshots, pieces),
        rows=rows,
        edges=edges,
        **{**defaults, **attributes},  # type: ignore[arg-type]
    )


def on_ranks(of_parts: NDArray[np.floating] | NDArray[np.integer], ranks: int) -> Numbers:
    """Sum P parts over the R ranks that have them, in order: (P, ...) -> (R, ...)."""
    parts = np.asarray(of_parts, np.float64)
    return np.asarray(parts.reshape(ranks, len(parts) // ranks, *parts.shape[1:]).sum(axis=1))


def on_largest(of_parts: Numbers, ranks: int) -> Numbers:
    """Return the largest part of each rank, which computes one after another: (P,) -> (R,)."""
    return np.asarray(np.asarray(of_parts, float).reshape(ranks, -1).max(axis=1))


def some_parts(parts: int) -> list[int]:
    """Numbers of a few of the parts, evenly spaced."""
    return np.unique(np.linspace(0, parts - 1, min(parts, DRAWN_PARTS)).astype(int)).tolist()


def count_work(config: RunConfig, graph: DynamicGraph) -> tuple[EpochWork, Facts]:
    """Count the work of each rank in an epoch, and return it with its facts; nothing is trained.

    Args:
        config: with its number of ranks and parts.
        graph: its data.

    Raises:
        LabError: the graph does not serve the config: too short, too few nodes, a partitioner that fails.
    """
    facts = facts_of(config, graph)
    return catalogue.family(catalogue.system(config.system).family).workload(facts), facts


def curve_row(quantity: str, curve: str, ranks: int, value: float, kind: str) -> Row:
    """One point of a curve of ``Forecast.curves``."""
    return {"quantity": quantity, "curve": curve, "ranks": ranks, "value": value, "kind": kind}
