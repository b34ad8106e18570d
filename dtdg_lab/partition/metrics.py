"""Metrics of a partition: cut, halo, load and memory, computed and cached."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.model_facts import PASSES, ModelFacts, Pull, model_facts
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.core.errors import ConfigError, PlanError, UnknownNameError, shortened
from dtdg_lab.core.files import read_arrays, write_arrays
from dtdg_lab.core.plans import Partition
from dtdg_lab.core.system_errors import DAMAGE
from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.datasets.download import one_at_a_time
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot, give_up
from dtdg_lab.graphs.split import split
from dtdg_lab.graphs.storage import cache_folder
from dtdg_lab.partition import base
from dtdg_lab.partition.halo import count_replicated, distinct_rows, pulled_rows, pulls_of
from dtdg_lab.partition.simple import vertex_loads

# The cost of a partition, computed before training: cut edges, halo rows, replicated rows, load and memory.


Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PartitionMeasures:
    """Counts of T snapshots over N nodes in P parts; made by :func:`measure`.

    Attributes:
        snapshots: the T snapshots counted, by number in the graph.
        hops: D, the receptive field of the model in hops.
        directions: edge directions of aggregation: ``in``, ``out``.
        static: whether replicated rows are the same in all snapshots.
        owned: (P,) nodes of each part.
        edges: (T, P) edges into each part's own nodes.
        all_edges: (T,) edges.
        cut_edges: (T,) edges between different parts.
        halo: (T, P) rows that each part receives for one aggregation per direction.
        matrix: for each direction (P, P): rows that part q sends to part p, at [q, p], summed over the snapshots.
        first_matrix: the same for the first of the snapshots only.
        replicated: (T, P) nodes that a part does not own, within D hops of its own.
        replicated_edges: (T, P) edges that a part holds for them: the edges of nodes within D - 1 hops, in each
            direction.
        load: (P,) DynaHB's load of each part: walks of up to D hops over all snapshots of the graph.
        halo_bytes: (P,) memory of a part's share of the data where rows are exchanged: features of its own rows
            (float32, once where they never change); for each snapshot and way its own rows' edges (int32 row starts
            and sources, float32 weights where there are any) and the numbers of the rows sent and received (int32).
        cached_bytes: (P,) the same where rows are replicated: features and row starts of own and replicated rows,
            edges of own rows and of those within D - 1 hops; nothing is sent.
    """

    snapshots: range
    hops: int
    directions: tuple[str, ...]
    static: bool
    owned: Counts
    edges: Counts
    all_edges: Counts
    cut_edges: Counts
    halo: Counts
    matrix: Mapping[str, Counts]
    first_matrix: Mapping[str, Counts]
    replicated: Counts
    replicated_edges: Counts
    load: NDArray[np.float64]
    halo_bytes: Counts
    cached_bytes: Counts

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            for array in value.values() if isinstance(value, Mapping) else (value,):
                if isinstance(array, np.ndarray):
                    give_up(array)

    @property
    def parts(self) -> int:
        """P."""
        return len(self.owned)

    @property
    def cut_share(self) -> float:
        """Share of cut edges among all edges of all snapshots; 0 without edges."""
        return _share(self.cut_edges.sum(), self.all_edges.sum())

    @property
    def halo_share(self) -> float:
        """Rows received over rows received and owned, of all snapshots and ways."""
        return _share(self.halo.sum(), self.halo.sum() + self._rows * len(self.directions))

    @property
    def replicated_share(self) -> float:
        """Replicated rows over replicated and owned ones, of all snapshots."""
        return _share(self.replicated.sum(), self.replicated.sum() + self._rows)

    @property
    def imbalance(self) -> dict[str, float]:
        """The largest part over the mean of the parts, by ``vertices``, ``edges`` and ``load``; 1 is even."""
        return {
            "vertices": _imbalance(self.owned),
            "edges": _imbalance(self.edges.sum(axis=0)),
            "load": _imbalance(self.load),
        }

    @property
    def _rows(self) -> int:
        return len(self.snapshots) * int(self.owned.sum())

    def to_dict(self, columns: int = 64) -> dict[str, Any]:
        """Plain numbers for an event or a chart; snapshots are binned into B <= ``columns`` bins.

        Returns:
            ``parts`` P, ``vertices`` N, ``hops``, ``ways``, ``static``; ``bins`` (B + 1,) bounds: bin b stands for
            snapshots bins[b] to bins[b + 1] - 1; ``edges``, ``halo``, ``replicated``, ``replicated_edges`` (P, B) and
            ``all_edges``, ``cut_edges`` (B,): means of the bin's snapshots; ``owned``, ``load``, ``halo_bytes``,
            ``cached_bytes`` (P,); ``matrix`` {way: (P, P)}, rows of all snapshots; ``totals``: rows and edges of all
            snapshots and parts, by name; ``cut_share``, ``halo_share``, ``replicated_share``; ``imbalance``
            {``vertices``, ``edges``, ``load``}.
        """
        bounds = np.unique(np.linspace(0, len(self.snapshots), max(columns, 1) + 1).astype(np.int64))
        by_part = ("edges", "halo", "replicated", "replicated_edges")
        over_all = ("all_edges", "cut_edges")
        return {
            "parts": self.parts,
            "vertices": int(self.owned.sum()),
            "hops": self.hops,
            "ways": list(self.directions),
            "static": self.static,
            "bins": (bounds + self.snapshots.start).tolist(),
            **{name: _bin_means(getattr(self, name), bounds).T.tolist() for name in (*by_part, *over_all)},
            **{name: getattr(self, name).tolist() for name in ("owned", "load", "halo_bytes", "cached_bytes")},
            "matrix": {direction: rows.tolist() for direction, rows in self.matrix.items()},
            "totals": {name: int(getattr(self, name).sum()) for name in (*by_part, *over_all)},
            "cut_share": self.cut_share,
            "halo_share": self.halo_share,
            "replicated_share": self.replicated_share,
            "imbalance": self.imbalance,
        }


def measure(
    graph: DynamicGraph,
    partition: Partition,
    *,
    snapshots: range | None = None,
    hops: int = 1,
    directions: Sequence[str] = ("in",),
    static: bool = True,
) -> PartitionMeasures:
    """Compute the metrics of a partition on some snapshots of a graph.

    Args:
        graph: T snapshots of N nodes.
        partition: of the same nodes.
        snapshots: consecutive ones; all by default.
        hops: D = layers times hops per layer, at least 1.
        directions: edge directions that the model aggregates over: ``in``, ``out`` or both.
        static: replicate the D-hop neighbourhood of the union of the snapshots (for memories ``per_vertex`` and
            ``neighbourhood``, whose state runs through all of them), instead of that of each snapshot.

    Raises:
        PlanError: the partition is of other nodes, or snapshots, hops or ways are not allowed.
    """
    chosen = range(graph.num_snapshots) if snapshots is None else snapshots
    if hops < 1 or not chosen or chosen.step != 1 or chosen.start < 0 or chosen.stop > graph.num_snapshots:
        raise PlanError(
            f"snapshots {chosen} with hops={hops}: give at least one consecutive snapshot of 0 to "
            f"{graph.num_snapshots - 1}, and at least 1 hop."
        )
    times = [graph.snapshots[t] for t in chosen]
    pulled = {direction: _count_pulls(times, partition, direction) for direction in dict.fromkeys(("in", *directions))}
    used = {direction: pulled[direction] for direction in dict.fromkeys(directions)}
    replicated, replicated_edges = count_replicated(times, partition, hops, tuple(used), static=static)
    return PartitionMeasures(
        snapshots=chosen,
        hops=hops,
        directions=tuple(used),
        static=static,
        owned=partition.counts,
        edges=pulled["in"].edges,
        all_edges=graph.num_edges[chosen.start : chosen.stop],
        cut_edges=pulled["in"].cut,
        halo=sum((counts.halo for counts in used.values()), np.zeros_like(replicated)),
        matrix={direction: counts.matrix for direction, counts in used.items()},
        first_matrix={direction: counts.first_matrix for direction, counts in used.items()},
        replicated=replicated,
        replicated_edges=replicated_edges,
        load=np.bincount(partition.owner, vertex_loads(graph, hops), partition.parts).astype(np.float64),
        **_memory(graph, partition, used, replicated, replicated_edges),
    )


@dataclass(frozen=True, slots=True)
class _Pulls:
    """Counts of one edge direction: edges (T, P), cut edges (T,), rows received (T, P), rows sent (P, P)."""

    edges: Counts
    cut: Counts
    halo: Counts
    matrix: Counts
    first_matrix: Counts


def _count_pulls(times: Sequence[Snapshot], partition: Partition, direction: str) -> _Pulls:
    parts = partition.parts
    edges, halo = np.zeros((2, len(times), parts), np.int64)
    cut = np.zeros(len(times), np.int64)
    first, matrix = np.zeros((2, parts * parts), np.int64)
    for row, snapshot in enumerate(times):
        to_part, sources = pulls_of(snapshot, partition, direction)
        edges[row] = np.bincount(to_part, minlength=parts)
        across = np.flatnonzero(to_part != partition.owner[sources])
        cut[row] = len(across)
        part, source = distinct_rows(to_part[across], sources[across], partition)
        halo[row] = np.bincount(part, minlength=parts)
        sent = np.bincount(partition.owner[source] * parts + part, minlength=parts * parts)
        matrix += sent
        if row == 0:
            first = sent
    return _Pulls(edges, cut, halo, matrix.reshape(parts, parts), first.reshape(parts, parts))


def _memory(
    graph: DynamicGraph, partition: Partition, pulled: Mapping[str, _Pulls], replicated: Counts, edges: Counts
) -> dict[str, Counts]:
    """``halo_bytes`` and ``cached_bytes``, (P,); every number takes 4 bytes."""
    an_edge = 2 if graph.weighted else 1
    own_edges = sum((counts.edges.sum(axis=0) for counts in pulled.values()), np.zeros(partition.parts, np.int64))
    own_rows = np.broadcast_to(partition.counts, replicated.shape)
    all_rows = own_rows + replicated
    moved = sum(
        (counts.matrix.sum(axis=0) + counts.matrix.sum(axis=1) for counts in pulled.values()),
        np.zeros(partition.parts, np.int64),
    )

    def held(rows: Counts) -> Counts:  # a value for each feature, and where each row of edges starts
        values = rows.max(axis=0) if graph.static_features else rows.sum(axis=0)
        return graph.num_features * values + len(pulled) * (rows + 1).sum(axis=0)

    return {
        "halo_bytes": 4 * (held(own_rows) + an_edge * own_edges + moved),
        "cached_bytes": 4 * (held(all_rows) + an_edge * (own_edges + edges.sum(axis=0))),
    }


def _bin_means(counts: Counts, bounds: Counts) -> NDArray[np.float64]:
    """Means over bins of snapshots, (T, ...) -> (B, ...), rounded to a tenth."""
    sums = np.add.reduceat(counts, bounds[:-1], axis=0)
    lengths = np.diff(bounds).reshape(-1, *(1,) * (counts.ndim - 1))
    return np.round(sums / lengths, 1)


def _share(part: np.integer | int, whole: np.integer | int) -> float:
    return float(part) / float(whole) if whole else 0.0


def _imbalance(of_parts: NDArray[Any] | Sequence[float]) -> float:
    values = np.asarray(of_parts, dtype=np.float64)
    return float(values.max() / values.mean()) if values.any() else 1.0


# increase it when measures change, so that cached ones are not reused
MEASURES_VERSION = 1
_MATRICES = ("matrix", "first_matrix")
_ASKED = ("snapshots", "hops", "directions", "static")
_ARRAYS = tuple(name for name in PartitionMeasures.__slots__ if name not in (*_ASKED, *_MATRICES))


def kept_measures(
    graph: DynamicGraph,
    partition: Partition,
    *,
    snapshots: range | None = None,
    hops: int = 1,
    directions: Sequence[str] = ("in",),
    static: bool = True,
) -> PartitionMeasures:
    """:func:`measure` with a cache on disk, keyed by the graph, the owners of the nodes and the arguments.

    Several processes may ask at once: the
    first counts, the others wait and read it. A damaged file is replaced; an unwritable cache is ignored.
    """
    chosen = range(graph.num_snapshots) if snapshots is None else snapshots
    asked = {
        "version": MEASURES_VERSION,
        "graph": graph.data_hash,
        "owner": hashlib.sha256(partition.owner.tobytes()).hexdigest(),
        "parts": partition.parts,
        "snapshots": [chosen.start, chosen.stop, chosen.step],
        "hops": hops,
        "ways": list(directions),
        "static": static,
    }
    key = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:32]
    file = cache_folder() / "partition-measures" / f"{key}.npz"
    with one_at_a_time(file):
        with contextlib.suppress(*DAMAGE):  # missing or damaged
            return _read(file, chosen, hops, tuple(dict.fromkeys(directions)), static)
        measures = measure(graph, partition, snapshots=chosen, hops=hops, directions=directions, static=static)
        arrays = {name: getattr(measures, name) for name in _ARRAYS}
        for name in _MATRICES:
            arrays |= {f"{name}-{direction}": rows for direction, rows in getattr(measures, name).items()}
        with contextlib.suppress(OSError):  # an unwritable cache is not an error
            write_arrays(file, arrays)
    return measures


def _read(file: Path, snapshots: range, hops: int, directions: tuple[str, ...], static: bool) -> PartitionMeasures:
    arrays = read_arrays(file)
    given: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
    for name in _MATRICES:
        given[name] = {direction: arrays[f"{name}-{direction}"] for direction in directions}
    return PartitionMeasures(snapshots=snapshots, hops=hops, directions=directions, static=static, **given)


# Predicted bytes of halo rows between parts.


def predicted_bytes(
    measures: PartitionMeasures, pulls: Sequence[Pull], *, itemsize: int = 4, reuse: bool = False
) -> dict[str, Counts]:
    """Bytes of halo rows in one full-batch step over the measured snapshots.

    This is for a single time block. :func:`between_parts` also counts what
    several time blocks send again. If DCRNN or EvolveGCN-H would keep more than 2 GiB in one block, each snapshot is
    recomputed (:mod:`dtdg_lab.engine.backprop.time_blocks`) and exchanged again, which is not counted.

    Rows received forward are sent back as gradients, so backward is the transpose of forward for learned inputs. Not
    counted are parameter gradients and ``top``, whose candidates are all-gathered.

    Args:
        measures: of the partition and the training snapshots. If ranks run several parts each, measure
            ``partition.on_ranks(R)``.
        pulls: of the model, see :class:`dtdg_lab.config.model_facts.ModelFacts`.
        itemsize: bytes per number: 4 for float32, 8 for float64.
        reuse: whether halo rows of input features are cached (option ``halo_reuse``).

    Returns:
        ``forward`` and ``backward``, each (L, P, P) int64: [l, q, p] bytes that part q sends to part p for layer l.

    Raises:
        PlanError: the model uses an edge direction that was not measured.
    """
    along = [pull for pull in pulls if pull.direction != "top"]
    unknown = {pull.direction for pull in along} - set(measures.directions)
    if unknown:
        raise PlanError(
            f"the model aggregates over {', '.join(sorted(unknown))}, but directions={measures.directions} were "
            "measured. Measure the partition with the directions of dtdg_lab.config.model_facts.model_facts."
        )
    layers = 1 + max((pull.layer for pull in along), default=0)
    forward, backward = np.zeros((2, layers, measures.parts, measures.parts), np.int64)
    for pull in along:
        rows = measures.matrix[pull.direction]
        if not (reuse and pull.of_features):
            forward[pull.layer] += rows * (pull.width * itemsize)
        if pull.learned:
            returned = rows if pull.at_first else rows - measures.first_matrix[pull.direction]
            backward[pull.layer] += returned.T * (pull.width * itemsize)
    return {"forward": forward, "backward": backward}


# Rows, numbers and bytes that ranks send each other in one step.

RERUN_MEMORIES = ("per_vertex", "weights_from_data", "neighbourhood")  # others need no block before to run one


@dataclass(frozen=True, slots=True, eq=False)
class Volume:
    """What ranks send each other in one step: for each pass (L, R, R), from rank q to rank p for layer l at [l, q, p].

    Attributes:
        rows: pass -> rows; collectives of a pass and layer together.
        numbers: pass -> numbers in these rows; bytes are these times the size of one.
    """

    rows: Mapping[str, Counts]
    numbers: Mapping[str, Counts]

    def __post_init__(self) -> None:
        for counts in (*self.rows.values(), *self.numbers.values()):
            give_up(counts)

    def __add__(self, other: Volume) -> Volume:
        return Volume(
            {pass_name: self.rows[pass_name] + other.rows[pass_name] for pass_name in PASSES},
            {pass_name: self.numbers[pass_name] + other.numbers[pass_name] for pass_name in PASSES},
        )

    @property
    def total(self) -> int:
        """Numbers sent in a step, of all ranks, layers and ways."""
        return sum(int(numbers.sum()) for numbers in self.numbers.values())

    def bytes(self, itemsize: int = 4) -> dict[str, Counts]:
        """Bytes, (L, R, R) for each pass; ``itemsize`` is 4 for float32, 8 for float64."""
        return {pass_name: numbers * itemsize for pass_name, numbers in self.numbers.items()}


def between_parts(
    snapshots: Sequence[Snapshot],
    partition: Partition,
    pulls: Sequence[Pull],
    *,
    rerun_before: int = 0,
    reuse: bool = False,
) -> Volume:
    """Volume of a step where ranks own nodes and exchange halo rows: what hypergraph node partition sends.

    Args:
        snapshots: those trained.
        partition: of their nodes into R parts, one for each rank.
        pulls: of the model.
        rerun_before: how many of the snapshots, from the first, are pulled again on the way back: those of all blocks
            of time but the last; 0 where there is one block, or nothing to rerun. Where there are some, gradients of
            states go back to the first block's beginning too, which one block does without.
        reuse: whether pulls of the data alone are kept from an earlier step.
    """

    def moved(pull: Pull, every: Counts) -> dict[str, Counts]:
        ahead = not (reuse and pull.of_features)
        return {
            "forward": every.sum(axis=0) * ahead,
            "rerun": every[:rerun_before].sum(axis=0) * ahead,
            "backward": every[0 if pull.at_first or rerun_before else 1 :].sum(axis=0).T * pull.learned,
        }

    return pulled_volume(snapshots, partition, pulls, partition.parts, moved)


def pulled_volume(
    snapshots: Sequence[Snapshot],
    partition: Partition,
    pulls: Sequence[Pull],
    ranks: int,
    moved: Callable[[Pull, Counts], Mapping[str, Counts]],
) -> Volume:
    """Volume of the pulls of a step on R ranks; ``moved`` turns a pull and its halo rows (T, P, P) into pass -> (R, R).

    What ``top`` gathers is not in it.
    """
    layers = 1 + max(pull.layer for pull in pulls)
    rows, numbers = empty_counts(layers, ranks), empty_counts(layers, ranks)
    along = [pull for pull in pulls if pull.direction != "top"]
    of_direction = {
        direction: pulled_rows(snapshots, partition, direction)
        for direction in dict.fromkeys(pull.direction for pull in along)
    }
    for pull in along:
        for pass_name, sent in moved(pull, of_direction[pull.direction]).items():
            rows[pass_name][pull.layer] += sent
            numbers[pass_name][pull.layer] += sent * pull.width
    return Volume(rows, numbers)


def empty_counts(layers: int, ranks: int) -> dict[str, Counts]:
    """Way -> (L, R, R) zeros."""
    return {pass_name: np.zeros((layers, ranks, ranks), np.int64) for pass_name in PASSES}


# ``lab.partition.partition``: a partition of a graph's nodes together with what it will cost a model.


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MeasuredPartition:
    """A partition and its cost for one model over the training snapshots.

    Attributes:
        partition: which part owns each node.
        measures: cut edges, halo rows, replicated rows, load and memory.
        predicted: ``forward`` and ``backward``, (L, P, P): bytes that part q sends to part p for layer l in one step,
            float32, at [l, q, p], where halo rows are exchanged.
        graph_name: of the graph.
        partitioner: its name; for a given partition how it was made, or ``manual``.
        model: description, with its layers.
    """

    partition: Partition
    measures: PartitionMeasures
    predicted: Mapping[str, Counts]
    graph_name: str
    partitioner: str
    model: str

    @property
    def seconds(self) -> float:
        """Seconds that making the partition took."""
        return self.partition.seconds

    @property
    def bytes_per_step(self) -> int:
        """Predicted bytes of halo rows per step, over all parts, forward and backward."""
        return sum(int(sent.sum()) for sent in self.predicted.values())

    def __repr__(self) -> str:
        measures, counted = self.measures, self.measures.snapshots
        uneven = ", ".join(f"{name} {value:.2f}" for name, value in measures.imbalance.items())
        forward, backward = (
            format_bytes(float(self.predicted[pass_name].sum())) for pass_name in ("forward", "backward")
        )
        halo, cached = (format_bytes(float(held.max())) for held in (measures.halo_bytes, measures.cached_bytes))
        return "\n".join(
            [
                f"{self.graph_name!r} in {measures.parts} parts by {self.partition.made_by or 'manual assignment'}, "
                f"made in {format_seconds(self.seconds)}; snapshots {counted.start} to {counted.stop - 1}, "
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
        """Plain numbers, as in the event ``partition`` of a run."""
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
            DataError: it cannot be written.
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
        seed: of randomised partitioners.
        model: whose communication is counted.
        layers: of the model.
        hidden: H of the model.
        protocol: whose training snapshots are counted.
        **settings: settings of partitioners (``assignment_order``, ``imbalance``, ``partition_file``) and of the model
            (``gc_layers``, ``heads``, ``diffusion_steps``); they default to the glossary's values.

    Raises:
        PartitionError: there are more parts than nodes, the partitioner failed, or the given partition belongs to
            another graph.
        ConfigError: a name or value is not allowed.
        DataError: the graph has too few snapshots for the protocol.
    """
    if not isinstance(graph, DynamicGraph):
        raise ConfigError(f"partition() got {shortened(graph)}; a graph is needed: lab.datasets.load(name).")
    if not isinstance(protocol, str) or protocol not in PROTOCOLS:
        raise UnknownNameError("protocol", protocol, PROTOCOLS)
    if not isinstance(model, str):
        raise UnknownNameError("model", model, catalogue.names("models"))
    seed = OPTIONS["seed"].check(seed)
    hidden, layers = OPTIONS["hidden"].check(hidden), OPTIONS["layers"].check(layers)
    of_partitioner, of_model = _sorted_settings(settings)
    facts = model_facts(model, graph.num_features, hidden, layers, **of_model)
    if isinstance(name, Partition):
        base.check_graph("the partition", name, graph)
        partition, partitioner = name, name.made_by or "manual"
    else:
        partition = base.make_partition(name, graph, parts, hops=facts.hops, seed=seed, **of_partitioner)
        partitioner = name
    train = split(graph.num_snapshots, graph.edge_life, PROTOCOLS[protocol]).train
    measures = measures_for(graph, partition, facts, snapshots=train)
    words = f"{model} of {layers} layer{'s' if layers > 1 else ''}, hidden {hidden}"
    return MeasuredPartition(
        partition, measures, predicted_bytes(measures, facts.pulls), graph.name, partitioner, words
    )


def compare_partitions(
    graph: DynamicGraph, names: Sequence[str] = (), parts: int = 2, **settings: Any
) -> list[MeasuredPartition]:
    """Partition the same graph by several partitioners and compare them; see :func:`partition_graph`.

    Args:
        graph: to be partitioned.
        names: of partitioners; by default all that make a partition, rather than read one.
        parts: P.
        settings: as for :func:`partition_graph`.
    """
    chosen = names or tuple(name for name in catalogue.names("partition") if not base.reads_file(name))
    return [partition_graph(graph, name, parts, **settings) for name in chosen]


def measures_for(
    graph: DynamicGraph, partition: Partition, facts: ModelFacts, *, snapshots: range
) -> PartitionMeasures:
    """The metrics of a partition for a model's receptive field, edge directions and memory.

    Args:
        graph: T snapshots of N nodes.
        partition: of the same nodes.
        facts: of the model.
        snapshots: of the training split.
    """
    return kept_measures(
        graph,
        partition,
        snapshots=snapshots,
        hops=facts.hops,
        directions=facts.directions,
        static=facts.memory in ("per_vertex", "neighbourhood"),
    )


def _sorted_settings(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split settings into those of partitioners and those of models."""
    known = base.partition_settings()
    of_models = [name for name, option in OPTIONS.items() if option.owner == "models"]
    for name in settings:
        if name not in known and name not in of_models:
            raise UnknownNameError("setting of lab.partition.partition", name, [*known, *of_models])
    mine = {name: value for name, value in settings.items() if name in known}
    return mine, {name: value for name, value in settings.items() if name not in known}
