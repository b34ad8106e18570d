"""``lab.partition.partition``: a partition of a graph's nodes together with its cost for a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.model_facts import model_facts
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.core.errors import ConfigError, UnknownNameError, shortened
from dtdg_lab.core.plans import Partition
from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.split import split
from dtdg_lab.partition import base
from dtdg_lab.partition.measures import Counts, PartitionMeasures, measures_for
from dtdg_lab.partition.volume import predicted_bytes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MeasuredPartition:
    """Partition and its cost for one model over the training snapshots.

    Attributes:
        partition: which part owns each node.
        measures: cut edges, halo rows, replicated rows, load and memory.
        predicted: ``forward`` and ``backward``, (L, P, P): bytes of float32 halo rows that part q sends to part p for
            layer l in one step, at [l, q, p].
        graph_name: name of the graph.
        partitioner: name of the partitioner; for a given partition its description, or ``manual``.
        model: description of the model.
    """

    partition: Partition
    measures: PartitionMeasures
    predicted: Mapping[str, Counts]
    graph_name: str
    partitioner: str
    model: str

    @property
    def seconds(self) -> float:
        """Seconds of making the partition."""
        return self.partition.seconds

    @property
    def bytes_per_step(self) -> int:
        """Predicted bytes of halo rows per step, over all parts, forward and backward."""
        return sum(int(sent.sum()) for sent in self.predicted.values())

    def __repr__(self) -> str:
        measures, snapshots = self.measures, self.measures.snapshots
        uneven = ", ".join(f"{name} {value:.2f}" for name, value in measures.imbalance.items())
        forward, backward = (
            format_bytes(float(self.predicted[pass_name].sum())) for pass_name in ("forward", "backward")
        )
        halo, cached = (
            format_bytes(float(bytes_by_part.max())) for bytes_by_part in (measures.halo_bytes, measures.cached_bytes)
        )
        return "\n".join(
            [
                f"{self.graph_name!r} in {measures.parts} parts by {self.partition.made_by or 'manual assignment'}, "
                f"made in {format_seconds(self.seconds)}; snapshots {snapshots.start} to {snapshots.stop - 1}, "
                f"{self.model}",
                f"  cut edges        {measures.cut_share:6.1%} of {measures.all_edges.sum():,}",
                f"  halo rows        {measures.halo_share:6.1%} of the rows that are read: {measures.halo.sum():,}",
                f"  replicated rows  {measures.replicated_share:6.1%} of the rows held within {measures.hops} "
                f"hop{'s' if measures.hops > 1 else ''}: {measures.replicated.sum():,}",
                f"  largest / mean   {uneven}",
                f"  largest memory   {halo} with exchanged rows, {cached} with replicated rows",
                f"  bytes per step   {forward} of rows forward, {backward} of gradients backward",
            ]
        )

    def to_dict(self, columns: int = 64) -> dict[str, Any]:
        """Return plain numbers, as in the event ``partition`` of a run."""
        return {
            "partitioner": self.partitioner,
            "parts": self.measures.parts,
            "seconds": self.seconds,
            "measures": self.measures.to_dict(columns),
            "predicted": {pass_name: sent.tolist() for pass_name, sent in self.predicted.items()},
        }

    def save(self, path: str | Path) -> Path:
        """Save the partition to a file for ``partitioner="file", partition_file=path``.

        Raises:
            DataError: the file cannot be written.
        """
        return base.save_partition(self.partition, path)


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
    **settings: Any,
) -> MeasuredPartition:
    """Partition a graph's nodes and compute the cost of the partition, without training.

    Args:
        graph: T snapshots of N nodes.
        name: a partitioner of the catalogue, such as ``"metis"``, or a Partition (then ``parts`` is ignored).
        parts: P, 1 to N.
        seed: seed of randomised partitioners.
        model: model whose communication is counted.
        layers: layers of the model.
        hidden: hidden width of the model, H.
        protocol: protocol that selects the training snapshots, from which the partition is made.
        **settings: settings of partitioners (``assignment_order``, ``imbalance``, ``partition_file``) and of the model
            (``gc_layers``, ``heads``, ``diffusion_steps``); they default to the glossary's values.

    Raises:
        PartitionError: there are more parts than nodes, the partitioner failed, or the given partition belongs to
            another graph.
        ConfigError: a name or value is not allowed.
        DataError: the graph has too few snapshots for the protocol.
    """
    if not isinstance(graph, DynamicGraph):
        raise ConfigError(f"partition() got {shortened(graph)}. Give a graph, such as lab.datasets.load(name).")
    if not isinstance(protocol, str) or protocol not in PROTOCOLS:
        raise UnknownNameError("protocol", protocol, PROTOCOLS)
    if not isinstance(model, str):
        raise UnknownNameError("model", model, catalogue.names("models"))
    seed = OPTIONS["seed"].check(seed)
    hidden, layers = OPTIONS["hidden"].check(hidden), OPTIONS["layers"].check(layers)
    partitioner_settings, model_settings = _split_settings(settings)
    facts = model_facts(model, graph.num_features, hidden, layers, **model_settings)
    train = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[protocol]).train
    if isinstance(name, Partition):
        base.check_graph("the partition", name, graph)
        partition, partitioner = name, name.made_by or "manual"
    else:
        partition = base.make_partition(
            name, graph, parts, snapshots=train, hops=facts.hops, seed=seed, **partitioner_settings
        )
        partitioner = name
    measures = measures_for(graph, partition, facts, snapshots=train)
    description = f"{model} of {layers} layer{'s' if layers > 1 else ''}, hidden {hidden}"
    return MeasuredPartition(
        partition, measures, predicted_bytes(measures, facts.pulls), graph.name, partitioner, description
    )


def compare_partitions(
    graph: DynamicGraph, names: Sequence[str] = (), parts: int = 2, **settings: Any
) -> list[MeasuredPartition]:
    """Partition the same graph by several partitioners and compare them; see :func:`partition_graph`.

    Args:
        graph: the graph.
        names: names of partitioners; by default all that do not read a file.
        parts: number of parts, P.
        settings: as for :func:`partition_graph`.
    """
    names = names or tuple(name for name in catalogue.names("partition") if not base.reads_file(name))
    return [partition_graph(graph, name, parts, **settings) for name in names]


def _split_settings(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split settings into partitioner settings and model settings."""
    partitioner_names = base.partition_settings()
    model_names = [name for name, option in OPTIONS.items() if option.owner == "models"]
    for name in settings:
        if name not in partitioner_names and name not in model_names:
            raise UnknownNameError("setting of lab.partition.partition", name, [*partitioner_names, *model_names])
    partitioner_settings = {name: value for name, value in settings.items() if name in partitioner_names}
    return partitioner_settings, {name: value for name, value in settings.items() if name not in partitioner_names}
