"""``lab.partition_graph``: a partition of a graph's vertices together with what it will cost a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtdg_lab.core import catalogue
from dtdg_lab.core.errors import ConfigError, PartitionError, UnknownNameError, shortened
from dtdg_lab.core.model_pulls import hops, pulls, ways
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.core.plans import Partition
from dtdg_lab.core.protocols import PROTOCOLS
from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import split
from dtdg_lab.partition.kept_measures import kept_measures
from dtdg_lab.partition.make import KNOBS, make_partition
from dtdg_lab.partition.measures import Counts, PartitionMeasures
from dtdg_lab.partition.predict import predicted_bytes
from dtdg_lab.partition.store import save_partition


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MeasuredPartition:
    """A partition and what it costs one model over the snapshots it trains on.

    Attributes:
        partition: which part owns each vertex.
        measures: cut edges, halo rows, replicated rows, load and memory.
        predicted: ``forward`` and ``backward``, (L, P, P): bytes that part q sends to part p for layer l in one step,
            float32, at [l, q, p], where halo rows are exchanged.
        graph_name: of the graph.
        partitioner: its name; how a partition that was given was made, or ``by hand``.
        model: in words, with its layers.
    """

    partition: Partition
    measures: PartitionMeasures
    predicted: Mapping[str, Counts]
    graph_name: str
    partitioner: str
    model: str

    @property
    def seconds(self) -> float:
        """Making the partition took."""
        return self.partition.seconds

    @property
    def bytes_per_step(self) -> int:
        """Predicted bytes of halo rows in one step, of all parts, forward and backward."""
        return sum(int(sent.sum()) for sent in self.predicted.values())

    def __repr__(self) -> str:
        measures, counted = self.measures, self.measures.snapshots
        uneven = ", ".join(f"{name} {value:.2f}" for name, value in measures.imbalance.items())
        forward, backward = (format_bytes(float(self.predicted[way].sum())) for way in ("forward", "backward"))
        halo, cached = (format_bytes(float(held.max())) for held in (measures.halo_bytes, measures.cached_bytes))
        return "\n".join(
            [
                f"{self.graph_name!r} in {measures.parts} parts by {self.partition.made_by or 'hand'}, made "
                f"in {format_seconds(self.seconds)}; snapshots {counted.start} to {counted.stop - 1}, {self.model}",
                f"  cut edges        {measures.cut_share:6.1%} of {measures.all_edges.sum():,}",
                f"  halo rows        {measures.halo_share:6.1%} of the rows that are pulled: {measures.halo.sum():,}",
                f"  replicated rows  {measures.replicated_share:6.1%} of the rows held within {measures.hops} "
                f"hop{'s' if measures.hops > 1 else ''}: {measures.replicated.sum():,}",
                f"  largest / mean   {uneven}",
                f"  largest memory   {halo} where rows are exchanged, {cached} where they are replicated",
                f"  bytes a step     {forward} of rows forward, {backward} of gradients backward",
            ]
        )

    def told(self, columns: int = 64) -> dict[str, Any]:
        """Plain numbers, as the event ``partition`` of a run has them; ``measures`` as of its ``told``."""
        return {
            "partitioner": self.partitioner,
            "parts": self.measures.parts,
            "seconds": self.seconds,
            "measures": self.measures.told(columns),
            "predicted": {way: sent.tolist() for way, sent in self.predicted.items()},
        }

    def save(self, path: str | Path) -> Path:
        """Write the partition into a file, which ``partitioner="file", partition_file=path`` reads.

        Raises:
            DataError: it cannot be written.
        """
        return save_partition(self.partition, path)


def partition_graph(
    graph: DynamicGraph,
    name: str | Partition = "metis",
    parts: int = 2,
    *,
    seed: int = 0,
    model: str = "tgcn",
    layers: int = 1,
    hidden: int = 32,
    protocol: str = "warm",
    **knobs: Any,
) -> MeasuredPartition:
    """Divide a graph's vertices among parts and count what that costs, before anything is trained.

    Args:
        graph: T snapshots of N vertices.
        name: a partitioner of the catalogue, such as ``"metis"``; or a Partition made by hand, whose parts count.
        parts: P, 1 to N.
        seed: of partitioners that draw lots.
        model: whose pulls are counted.
        layers: of the model.
        hidden: H of the model.
        protocol: whose training snapshots are counted.
        knobs: settings of partitioners (``dealing``, ``imbalance``, ``partition_file``) and of the model
            (``gc_layers``, ``heads``, ``diffusion_steps``); the glossary's defaults where not given.

    Raises:
        PartitionError: there are more parts than vertices, the partitioner failed, or a partition that was given is of
            another graph.
        ConfigError: a name or value is not allowed.
        DataError: the graph has too few snapshots for the protocol.
    """
    if not isinstance(graph, DynamicGraph):
        raise ConfigError(f"partition_graph() got {shortened(graph)}; a graph is needed: lab.load_dataset(name).")
    if not isinstance(protocol, str) or protocol not in PROTOCOLS:
        raise UnknownNameError("protocol", protocol, PROTOCOLS)
    if not isinstance(model, str):
        raise UnknownNameError("entry of models", model, catalogue.names("models"))
    seed = OPTIONS["seed"].check(seed)
    hidden, layers = OPTIONS["hidden"].check(hidden), OPTIONS["layers"].check(layers)
    of_partitioner, of_model = _sorted_knobs(knobs)
    pulled = pulls(model, graph.num_features, hidden, layers, **of_model)
    if isinstance(name, Partition):
        partition, partitioner = _of_this(graph, name), name.made_by or "by hand"
    else:
        reach = hops(model, layers, **of_model)
        partition = make_partition(name, graph, parts, hops=reach, seed=seed, **of_partitioner)
        partitioner = name
    train = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[protocol]).train
    measures = measures_for(graph, partition, model, layers, snapshots=train, **of_model)
    words = f"{model} of {layers} layer{'s' if layers > 1 else ''}, hidden {hidden}"
    return MeasuredPartition(partition, measures, predicted_bytes(measures, pulled), graph.name, partitioner, words)


def compare_partitions(
    graph: DynamicGraph, names: Sequence[str] = (), parts: int = 2, **settings: Any
) -> list[MeasuredPartition]:
    """The same graph divided by several partitioners, each measured; see :func:`partition_graph`.

    Args:
        graph: to be divided.
        names: of partitioners; all of the catalogue but ``file`` where none are given.
        parts: P.
        settings: as for :func:`partition_graph`.
    """
    chosen = names or tuple(name for name in catalogue.names("partition") if name != "file")
    return [partition_graph(graph, name, parts, **settings) for name in chosen]


def measures_for(
    graph: DynamicGraph, partition: Partition, model: str, layers: int, *, snapshots: range, **options: Any
) -> PartitionMeasures:
    """What a partition costs a model: as far as it reaches, along the ways it pulls, by what it remembers.

    Args:
        graph: T snapshots of N vertices.
        partition: of the same vertices.
        model: name in the catalogue.
        layers: of the model.
        snapshots: that it trains on.
        options: of the model, such as ``gc_layers``.
    """
    memory = catalogue.entry("models", model).memory
    return kept_measures(
        graph,
        partition,
        snapshots=snapshots,
        hops=hops(model, layers, **options),
        ways=ways(model),
        static=memory in ("per_vertex", "neighbourhood"),
    )


def _of_this(graph: DynamicGraph, partition: Partition) -> Partition:
    if partition.data_hash and partition.data_hash != graph.data_hash:
        raise PartitionError(
            f"the partition was made for another graph: its data hash is {partition.data_hash[:16]}, that of "
            f"{graph.name!r} is {graph.data_hash[:16]}. Make a partition of this graph."
        )
    if len(partition.owner) != graph.num_nodes:
        raise PartitionError(
            f"the partition is of {len(partition.owner):,} vertices, and {graph.name!r} has {graph.num_nodes:,}. Make "
            "a partition of this graph."
        )
    return partition


def _sorted_knobs(knobs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those of partitioners, and those of models."""
    of_models = [name for name, option in OPTIONS.items() if option.owner == "models"]
    for knob in knobs:
        if knob not in KNOBS and knob not in of_models:
            raise UnknownNameError("setting of partition_graph", knob, [*KNOBS, *of_models])
    mine = {knob: value for knob, value in knobs.items() if knob in KNOBS}
    return mine, {knob: value for knob, value in knobs.items() if knob not in KNOBS}
