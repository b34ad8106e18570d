"""What a config computes on a graph, whatever its system: snapshots trained, pulls, sizes of rows and of gradients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.model_pulls import Pull, hops, pulls, ways
from dtdg_lab.core.plans import Partition
from dtdg_lab.core.protocols import PROTOCOLS
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.split import split
from dtdg_lab.partition.make import KNOBS, make_partition
from dtdg_lab.partition.measured import measures_for
from dtdg_lab.partition.measures import PartitionMeasures

Numbers = NDArray[np.float64]
SLOTS = 4  # numbers that ride behind the gradients beside one for each rank: version, choice, loss, groups
# assumed where too few runs tell: seconds of a unit of each column of Facts.passes, on a core
ASSUMED_COMPUTE = (2e-9, 2e-11, 5e-5, 5e-5, 0.0, 2e-3)
KEPT_OF_HIDDEN = 8  # assumed: numbers of the width H that backward needs of a row and layer (gates and states)


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """A config and its graph, with what every count needs of them.

    Attributes:
        config: settings.
        graph: T snapshots of N vertices.
        train: the snapshots trained.
        pulled: what the model pulls along edges in one snapshot.
        parameters: numbers of a gradient.
        outputs: numbers that the model gives of a vertex.
    """

    config: RunConfig
    graph: DynamicGraph
    train: range
    pulled: tuple[Pull, ...]
    parameters: int
    outputs: int

    @property
    def ranks(self) -> int:
        """R."""
        return self.config.ranks

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """Those trained."""
        return tuple(self.graph.snapshots[self.train.start : self.train.stop])

    @property
    def model_options(self) -> dict[str, Any]:
        """Of the model alone."""
        return dict(self.config.options.get("models", {}))

    @property
    def memory(self) -> str | None:
        """How the model remembers: per_vertex, weights, weights_from_data, neighbourhood, none."""
        return catalogue.entry("models", self.config.model).memory

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return int(np.dtype(self.config["dtype"]).itemsize)

    @property
    def reach(self) -> int:
        """Hops of all layers."""
        return hops(self.config.model, self.config.layers, **self.model_options)

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
        """Of the vertices into P parts, as a run of the config makes it."""
        config = self.config
        knobs = {knob: config[knob] for knob in KNOBS}
        return make_partition(
            config["partitioner"], self.graph, config.parts, hops=self.reach, seed=config.seed, **knobs
        )

    def measured(self, partition: Partition) -> PartitionMeasures:
        """Counts of a partition over the snapshots trained."""
        return measures_for(
            self.graph, partition, self.config.model, self.config.layers, snapshots=self.train, **self.model_options
        )

    def passes(self, edges: Any, rows: Any, snapshots: Any, pieces: Any) -> Numbers:
        """(R, 6) as ``StepWork.passes`` has them, forward and backward, with edges and rows in numbers worked on.

        So weighed, rates of a model with one hidden width stand near those of another: an edge counts the numbers read
        along it, a row the model's parameters, each of which is multiplied once for it. The sixth column is of pieces
        of work (a step's part, batch or group), for what each costs whatever its size.

        Args:
            edges: (R,) pulled along, in snapshots.
            rows: (R,) vertices times snapshots.
            snapshots: (R,) worked on, one after another.
            pieces: (R,) of work.
        """
        given = (edges, rows, snapshots, pieces)
        size = max(np.size(each) for each in given)
        of_edges, of_rows, of, some = (np.broadcast_to(np.asarray(each, np.float64), (size,)) for each in given)
        through = of * (self.memory == "per_vertex")
        none = np.zeros(size)
        found = np.stack([of_edges, of_rows * self.row_passes, of, through, none, some / 2], axis=1)
        return self.weighed(2.0 * found)

    @property
    def row_passes(self) -> int:
        """How often a row is passed over: once, and once more where it runs through time by itself."""
        return 1 + (self.memory == "per_vertex")

    def weighed(self, passes: Numbers) -> Numbers:
        """Passes whose edges and rows are counted as numbers worked on."""
        return np.asarray(passes * np.array([self.edge_numbers, self.parameters, 1.0, 1.0, 1.0, 1.0]))


def facts_of(config: RunConfig, graph: DynamicGraph) -> Facts:
    """What counts need of a config and its graph.

    Raises:
        LabError: the graph is too short for the protocol.
    """
    train = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[config.protocol]).train
    settings = dict(config.options.get("models", {}))
    asked = pulls(config.model, graph.num_features, config.hidden, config.layers, **settings)
    outputs = _outputs(config, graph)
    size = (graph.num_features, config.hidden, config.layers, outputs)
    counted = parameters(config.model, size, tuple(sorted(settings.items())))
    return Facts(config, graph, train, tuple(pull for pull in asked if pull.way != "top"), counted, outputs)


@lru_cache(maxsize=256)
def parameters(model: str, size: tuple[int, int, int, int], settings: tuple[tuple[str, Any], ...]) -> int:
    """Numbers of a model's parameters, counted on the model itself; ``size`` is features, hidden, layers, outputs."""
    features, hidden, layers, outputs = size
    made = catalogue.entry("models", model).load()(features, hidden, layers, outputs=outputs, seed=0, **dict(settings))
    return sum(int(each.numel()) for each in made.parameters())


def edge_ways(config: RunConfig) -> tuple[str, ...]:
    """Along which edges the config's model pulls."""
    return ways(config.model)


def whole_bytes(graph: DynamicGraph, snapshots: int, edges: int) -> int:
    """Bytes of some snapshots of a graph: float32 features and weights, int32 row starts and sources."""
    rows = graph.num_nodes * (1 if graph.static_features else snapshots)
    an_edge = 2 if graph.weighted else 1
    return 4 * (graph.num_features * rows + snapshots * (graph.num_nodes + 1) + an_edge * edges)


def _outputs(config: RunConfig, graph: DynamicGraph) -> int:
    if config["task"] == "classification":
        return max(int(graph.num_classes), 1)
    if config["task"] == "link":
        return 2 if config["link_head"] == "concat" else config.hidden
    return 1
