"""The work of an epoch, predicted without training: what each rank computes, sends, transfers and keeps.

Each family predicts it in its ``workload`` module; :func:`count_work` finds the family of a config.
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

# Facts of a config and its graph, independent of the system.


Numbers = NDArray[np.float64]
Row = dict[str, Any]
SLOTS = 4  # numbers sent with the gradients besides one per rank: version, choice, loss, groups
# used if too few runs are known: seconds per unit of each column of Facts.passes, on a core
ASSUMED_COMPUTE = (2e-9, 2e-11, 5e-5, 5e-5, 0.0, 2e-3)
KEPT_OF_HIDDEN = 8  # assumed number of values of width H kept for backward per row and layer (gates and states)


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """A config, its graph, and the facts on the model that predictions need.

    Attributes:
        config: the run's settings.
        graph: T snapshots of N nodes.
        train: the training snapshots.
        model: facts on the model.
        parameters: number of parameters.
        outputs: outputs of the model per node.
    """

    config: RunConfig
    graph: DynamicGraph
    train: range
    model: ModelFacts
    parameters: int
    outputs: int

    @property
    def ranks(self) -> int:
        """Number of ranks R."""
        return self.config.ranks

    @property
    def layout(self) -> str:
        """The system's entry of kind ``parallel``."""
        return catalogue.system(self.config.system).parts["parallel"]

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """The training snapshots."""
        return tuple(self.graph.snapshots[self.train.start : self.train.stop])

    @property
    def pulled(self) -> tuple[Pull, ...]:
        """The model's aggregations along edges in one snapshot."""
        return self.model.along_edges

    @property
    def memory(self) -> str:
        """Memory of the model: per_vertex, weights, weights_from_data, neighbourhood or none."""
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
        """Edge directions that the model aggregates along."""
        return self.model.directions

    @property
    def edge_numbers(self) -> int:
        """Values read along one edge of a snapshot, over all layers."""
        return sum(pull.width for pull in self.pulled)

    @property
    def row_numbers(self) -> int:
        """Assumed number of values per row that are kept for backward."""
        return self.graph.num_features + KEPT_OF_HIDDEN * self.config.hidden * self.config.layers

    @property
    def gradient_bytes(self) -> int:
        """Exact bytes that a rank sends per step: 2 b (R - 1) / R in a ring, slots included."""
        numbers = self.parameters + SLOTS + self.ranks
        return 2 * numbers * self.itemsize * (self.ranks - 1) // self.ranks

    @property
    def edges(self) -> NDArray[np.int64]:
        """(S,) edges of the training snapshots."""
        return np.asarray(self.graph.num_edges[self.train.start : self.train.stop], np.int64)

    @property
    def graph_bytes(self) -> int:
        """Bytes of the training snapshots in float32 and int32: features, row starts, sources, weights."""
        return whole_bytes(self.graph, len(self.train), int(self.edges.sum()))

    def partition(self) -> Partition:
        """Partition the nodes into P parts, like a run of the config."""
        config = self.config
        live_settings = {name: config[name] for name in partition_settings(config["partitioner"])}
        return make_partition(
            config["partitioner"],
            self.graph,
            config.parts,
            snapshots=self.train,
            hops=self.reach,
            seed=config.seed,
            **live_settings,
        )

    def measured(self, partition: Partition) -> PartitionMeasures:
        """Measure a partition over the trained snapshots."""
        return measures_for(self.graph, partition, self.model, snapshots=self.train)

    def passes(self, edges: Any, rows: Any, snapshots: Any, pieces: Any) -> Numbers:
        """Return (R, 6) passes as in ``StepWork.passes``, forward and backward, with edges and rows counted in values.

        Counted in values, the rates of models with different hidden widths are comparable: an edge counts the values
        read along it, a row the model's parameters, since each is multiplied once for it. The sixth column counts
        pieces of work (a step's part, batch or group), for costs independent of size.

        Args:
            edges: (R,) edges aggregated along, over snapshots.
            rows: (R,) nodes times snapshots.
            snapshots: (R,) snapshots computed one after another.
            pieces: (R,) pieces of work.
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
        """Number of passes over a row: 1, and another one for the temporal part."""
        return 1 + (self.memory == "per_vertex")

    def weighed(self, passes: Numbers) -> Numbers:
        """Return passes with edges and rows counted in values."""
        return np.asarray(passes * np.array([self.edge_numbers, self.parameters, 1.0, 1.0, 1.0, 1.0]))


def facts_of(config: RunConfig, graph: DynamicGraph) -> Facts:
    """Collect the facts of a config and its graph.

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
    """Return the number of a model's parameters; ``size`` is features, hidden, layers, outputs."""
    return _count_parameters(catalogue.entry("models", model).load(), size, settings)


@lru_cache(maxsize=256)
def _count_parameters(make: Any, size: tuple[int, int, int, int], settings: tuple[tuple[str, Any], ...]) -> int:
    make_model = catalogue.load("dtdg_lab.models.base:make_model")  # loaded by name, since it needs torch
    features, hidden, layers, outputs = size
    model = make_model(make, features, hidden, layers, outputs=outputs, **dict(settings))
    return sum(int(parameter.numel()) for parameter in model.parameters())


def whole_bytes(graph: DynamicGraph, snapshots: int, edges: int) -> int:
    """Return the bytes of some snapshots of a graph: float32 features and weights, int32 row starts and sources."""
    rows = graph.num_nodes * (1 if graph.static_features else snapshots)
    an_edge = 2 if graph.weighted else 1
    return 4 * (graph.num_features * rows + snapshots * (graph.num_nodes + 1) + an_edge * edges)


def _outputs(config: RunConfig, graph: DynamicGraph) -> int:
    task = catalogue.entry("tasks", config["task"])
    options = {name: config[name] for name in task.options}
    return int(task.load().count_outputs(graph, hidden=config.hidden, **options))


# The work of each rank in an epoch of a system, and its memory.


EXACT = ("rows", "bytes")  # counts that may be known exactly
DRAWN_PARTS = 4  # maximum number of parts whose batches are drawn and counted
FRONT_BYTES = 40  # header before the rows for each other rank: clock, count and place, five numbers (comm.rows)


@dataclass(frozen=True, slots=True, eq=False)
class StepWork:
    """The work of R ranks in one step. A pass is forward, its rerun, or backward; each counts.

    Attributes:
        nodes: N.
        edges: edges of the S training snapshots, counted once.
        passes: (R, 5): edges of own snapshots; their rows plus rows of own nodes through time; own snapshots; snapshots
            of the temporal part, sequential on any number of ranks; the same again with several ranks, which run
            their nodes in pieces so that pieces can be sent.
        sent: (R, R) bytes from rank to rank.
        exchanges: number of exchanges of rows, plus one of gradients; 0 on one rank.
        brought: (R, 3): transferred snapshots, their bytes, and their bytes if transferred in full.
    """

    nodes: int
    edges: int
    passes: Numbers
    sent: Numbers
    exchanges: int
    brought: Numbers

    @property
    def ranks(self) -> int:
        """Number of ranks R."""
        return len(self.sent)


@dataclass(frozen=True, slots=True, eq=False)
class GroupWork(ABC):
    """Groups of snapshots that a scheduler assigns to ranks by their times.

    Attributes:
        passes: (K, 6) passes of each group, as in ``Facts.passes``.
    """

    passes: Numbers

    @abstractmethod
    def epoch(self, times_s: Numbers, ranks: int) -> tuple[float, float | None, float]:
        """Return the seconds of the stragglers of all iterations, a lower bound of any schedule, and the imbalance.

        Args:
            times_s: (K,) seconds of each group.
            ranks: R.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Fetching:
    """Features fetched in a step; means over parts.

    Attributes:
        owners: number of owners that a step fetches from, all at once.
        bytes: bytes of the rows.
        ahead: True if they are fetched during the previous step.
    """

    owners: float
    bytes: float
    ahead: bool


@dataclass(frozen=True, slots=True, eq=False)
class EpochWork:
    """The work of an epoch of R ranks.

    Attributes:
        system: name of the system.
        steps: updates of the model.
        passes: (R, 6) as in ``Facts.passes``, with edges and rows counted in values.
        rows: (R,) nodes times snapshots in the forward pass, counted once, with copies.
        edges: (R,) edges aggregated along, counted once.
        sent: (R, R) bytes of rows from rank to rank.
        exchanges: number of exchanges of rows.
        gradient_bytes: bytes of gradients that a rank sends in the epoch, by the ring's formula.
        brought: (R, 3) as in ``StepWork.brought``.
        alive: (R, 2) rows and edges kept for backward in the largest step.
        held_bytes: (R,) bytes of a rank's data, apart from the memory of a step.
        exact: names of ``EXACT`` that are counts, not estimates.
        waits: True if ranks wait for each other in every step.
        groups: snapshot groups, if a scheduler assigns them.
        fetching: fetched features, if any.
        round_bytes: bytes that a rank sends for a round of averaging models, and seconds between rounds, if any.
        notes: assumptions of the estimates.
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
        """Number of ranks R."""
        return len(self.sent)

    @property
    def rank_bytes(self) -> float:
        """Bytes that the busiest rank sends in an epoch: rows, gradients, served features; not averaging rounds."""
        fronts = FRONT_BYTES * self.exchanges * (self.ranks - 1)
        return float(self.sent.sum(axis=1).max()) + fronts + self.gradient_bytes

    def step(self) -> StepWork:
        """Return the mean step for the scaling model; gradients are sent around a ring."""
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
    """Return work whose passes are derived from its edges, rows and snapshots.

    Args:
        facts: config and graph.
        steps: steps of an epoch.
        edges: (R,) edges of an epoch.
        rows: (R,) rows of an epoch.
        snapshots: snapshots of an epoch, (R,) or one number for all.
        pieces: pieces of work; by default one per step.
        **attributes: attributes that replace the derived ones.
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
    """Sum the P parts of each of R ranks, in order: (P, ...) -> (R, ...)."""
    parts = np.asarray(of_parts, np.float64)
    return np.asarray(parts.reshape(ranks, len(parts) // ranks, *parts.shape[1:]).sum(axis=1))


def on_largest(of_parts: Numbers, ranks: int) -> Numbers:
    """Return the largest part of each rank, which computes its parts sequentially: (P,) -> (R,)."""
    return np.asarray(np.asarray(of_parts, float).reshape(ranks, -1).max(axis=1))


def some_parts(parts: int) -> list[int]:
    """Return the indices of a few parts, evenly spaced."""
    return np.unique(np.linspace(0, parts - 1, min(parts, DRAWN_PARTS)).astype(int)).tolist()


def count_work(config: RunConfig, graph: DynamicGraph) -> tuple[EpochWork, Facts]:
    """Predict the work of each rank in an epoch, without training, and return it with its facts.

    Args:
        config: config with its numbers of ranks and parts.
        graph: its data.

    Raises:
        LabError: the graph does not suit the config: too short, too few nodes, or a partitioner that fails.
    """
    facts = facts_of(config, graph)
    return catalogue.family(catalogue.system(config.system).family).workload(facts), facts


def curve_row(quantity: str, curve: str, ranks: int, value: float, kind: str) -> Row:
    """Return one point of a curve of ``Forecast.curves``."""
    return {"quantity": quantity, "curve": curve, "ranks": ranks, "value": value, "kind": kind}
