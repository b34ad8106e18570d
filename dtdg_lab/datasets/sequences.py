"""Convert parsed tables to base intervals: edges are cut by time, steps are already cut, static graphs grow."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta, tzinfo
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.config.options import option
from dtdg_lab.core.errors import ConfigError, DataError, shortened
from dtdg_lab.core.files import writable_folder
from dtdg_lab.core.rng import key
from dtdg_lab.core.time_length import LENGTHS, is_offset, parse_length
from dtdg_lab.datasets.archives import ArchiveMembers, Together, content
from dtdg_lab.datasets.download import LocalForm, one_at_a_time
from dtdg_lab.datasets.generators.base import checked_settings, growing_counts
from dtdg_lab.datasets.registry import Published
from dtdg_lab.datasets.tables import EdgeTable, StaticTable
from dtdg_lab.graphs.build import BUILD_VERSION
from dtdg_lab.graphs.calendar import Calendar
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.intervals import IntervalEdges, IntervalStream, cut_edges
from dtdg_lab.graphs.snapshot import Snapshot, distinct, keys_of, read_only, sources, targets
from dtdg_lab.graphs.storage import CACHE, graph_folder, holds_graph

# Cut graphs on disk: the first process builds them, all processes map them.


def cached_graph(parameters: Mapping[str, Any], make: Callable[[Path], object], *, source: str) -> DynamicGraph:
    """Return the graph that ``make`` builds, kept on disk under a hash of everything it depends on.

    Several processes may call it at once: the first builds the graph, the others wait, and all map the same files.

    Args:
        parameters: JSON values that the graph depends on, besides the code of ``graphs``: hashes of files, options.
        make: builds the graph in a folder, which appears whole or not at all.
        source: origin of the data this time; it may differ from the origin when the graph was cached.

    Raises:
        DataError: the cache cannot be written, or the cached graph is damaged.
    """
    text = json.dumps({"build": BUILD_VERSION, **parameters}, sort_keys=True)
    folder = graph_folder(hashlib.sha256(text.encode()).hexdigest()[:16])
    if not holds_graph(folder):
        writable_folder(folder, CACHE, DataError)
        with one_at_a_time(folder):
            if not holds_graph(folder):
                make(folder)
    return DynamicGraph.load(folder, source=source)


# A static graph made dynamic: every snapshot holds a random part of the edges, and its size follows a growth curve.
#
# Source: DyGNeX section 5.1 ("randomly deleting some of the edges from the static graph", after Fu et al. 2023, BLAD)
# and appendix E; Cora-T and Pubmed-T of DynaHB (table 1) are made so, with 50 snapshots.
#
# Ours, where the papers say nothing: edges are only added; the two directions of an undirected edge appear together;
# nodes, features, classes and split never change; the last snapshot holds all edges.
#
# Differs from DyGNeX: its curve is that of Stackoverflow, which it does not print. It deletes nodes of two of its three
# graphs; here a node without edges is isolated. Differs from DynaHB: its Cora-T has 0.05 million nodes, Cora 2,708, and
# its Pubmed-T 0.39 million for 19,717: twenty times as many, unexplained.


DELETION_VERSION = 1  # raise it when the same table and settings give other snapshots


@checked_settings
def grow(
    table: StaticTable, *, seed: int, snapshots: int, growth: float, growth_curve: str = "linear", noise: float = 0.0
) -> IntervalStream:
    """Generate B = ``snapshots`` base intervals over the table's N nodes. Duplicates are merged, self loops kept.

    Memory: 8 bytes for each of the table's E edges while the intervals are used, 50 during this call, and one snapshot
    at a time; never B times E.

    Args:
        table: the static graph.
        seed: seed of the random stream.
        snapshots: B.
        growth: edges of the last interval, which has all, over those of the first.
        growth_curve: ``linear``, ``exponential`` or ``logistic``.
        noise: relative standard deviation of the number of edges around the curve. The number never falls.

    Raises:
        ConfigError: a setting is out of its bounds.
    """
    if not 0 <= noise <= 1:
        raise ConfigError(f"noise={noise}; a share of the number of edges, from 0 to 1, is allowed.")
    keys = distinct(np.sort(keys_of(table.src, table.dst)))
    counts = growing_counts(
        (seed, "edge_deletion/counts"),
        len(keys),
        snapshots=snapshots,
        growth=growth,
        growth_curve=growth_curve,
        noise=noise,
    )
    counts = np.maximum.accumulate(counts).clip(max=len(keys))
    counts[-1] = len(keys)
    born = _born(_draws_of_pairs(seed, keys), counts)
    in_degree = np.bincount(targets(keys), minlength=table.num_nodes)
    return IntervalStream(
        num_intervals=snapshots,
        num_nodes=table.num_nodes,
        weighted=False,
        rows=len(table.src),
        make=partial(_snapshots, in_degree, sources(keys), born, snapshots),
        node_ids=table.node_ids,
        features=table.features,
        classes=table.classes,
        vertex_split=table.vertex_split,
    )


def _draws_of_pairs(seed: int, keys: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a random number for every edge, (E,), equal for both directions of a pair and different between pairs.

    Pair and seed are mixed twice by SplitMix64 (Steele, Lea, Flood 2014). Such draws need no table of pairs.
    """
    src, dst = sources(keys), targets(keys)
    draws = keys_of(np.maximum(src, dst), np.minimum(src, dst)).view(np.uint64)
    del src, dst
    both = key(seed, "edge_deletion/edges")
    for half in (both & (2**64 - 1), both >> 64):
        draws ^= np.uint64(half)
        draws ^= draws >> np.uint64(30)
        draws *= np.uint64(0xBF58476D1CE4E5B9)
        draws ^= draws >> np.uint64(27)
        draws *= np.uint64(0x94D049BB133111EB)
        draws ^= draws >> np.uint64(31)
    return draws


def _born(draws: NDArray[np.uint64], counts: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the first interval of every edge, (E,).

    Interval t has ``counts[t]`` edges, or one more to complete a pair.
    """
    limits = np.sort(draws)[counts - 1]
    return np.searchsorted(limits, draws).astype(np.int32)


def _snapshots(
    in_degree: NDArray[np.int64], src: NDArray[np.int32], born: NDArray[np.int32], snapshots: int
) -> Iterator[Snapshot]:
    occupied = in_degree > 0
    starts = (np.cumsum(in_degree) - in_degree)[occupied]  # where the edges into each node that has some begin
    for interval in range(snapshots):
        is_born = born <= interval
        indptr = np.zeros(len(in_degree) + 1, dtype=np.int64)
        indptr[1:][occupied] = np.add.reduceat(is_born, starts, dtype=np.int64)
        np.cumsum(indptr, out=indptr)
        yield Snapshot.trusted(read_only(indptr), read_only(src[is_born]))


def read(
    definition: Published, local_form: LocalForm, *, features: bool = True
) -> EdgeTable | IntervalEdges | StaticTable:
    """Read the table of a data set's files, and compare its counts with the published ones.

    Args:
        definition: the data set.
        local_form: its files.
        features: whether the features in the files are needed; some are large.

    Raises:
        DataError: a file cannot be read or parsed, or has other counts than were counted in the same file.
    """
    form = local_form.form
    parse_options = {**form.options, **({} if features else form.without_features)}
    if not form.by_name:
        data, source = content(local_form.paths[0], form.files[0].member)
        table = form.parse(data, source, **parse_options)
    elif len(local_form.paths) == 1:
        table = form.parse(ArchiveMembers(local_form.paths[0]), local_form.paths[0].name, **parse_options)
    else:
        table = form.parse(Together(form.files, local_form.paths), definition.name, **parse_options)
    rows = len(table.src) if isinstance(table, EdgeTable) else None
    _compare(definition, local_form, "rows", rows)
    _compare(definition, local_form, "nodes", getattr(table, "num_nodes", None))
    return table


def sequence(
    definition: Published, form: LocalForm, options: Mapping[str, Any], *, seed: int
) -> IntervalEdges | IntervalStream:
    """Return the base intervals of a published data set.

    Args:
        definition: the data set.
        form: its files.
        options: options of its kind: cutting edges, or growing a static graph; others are not read.
        seed: seed of the edges deleted from a static graph.

    Raises:
        DataError: as :func:`read`; or the edges cannot be cut by the options.
        ConfigError: the options do not go together.
    """
    table = read(definition, form, features=options["features"] == "given")
    if isinstance(table, IntervalEdges):
        return table
    if isinstance(table, StaticTable):
        return grow(
            table,
            seed=seed,
            snapshots=options["generated_snapshots"],
            growth=options["growth"],
            growth_curve=options["growth_curve"],
        )
    edges = _cut(definition, table, options, form.where)
    _compare(definition, form, "nodes", edges.num_nodes)
    return edges


def renamed(edges: IntervalEdges, node_ids: Any) -> IntervalEdges:
    """Replace ids that are positions in ``node_ids`` by the names there; None changes nothing."""
    return edges if node_ids is None else dataclasses.replace(edges, node_ids=node_ids[edges.node_ids])


def _cut(definition: Published, table: EdgeTable, options: Mapping[str, Any], source: str) -> IntervalEdges:
    window = options["interval"]
    if not options["cut"] and not window:
        window = definition.interval
        if options["cut_by"] == "edges":
            raise ConfigError(
                f"cut_by='edges' with cut=0 and interval=0: the own interval of {definition.name!r}, {window:g}, is a "
                "time. Give cut, the number of intervals, or interval, the edges of each."
            )
    try:
        edges = cut_edges(
            table.src,
            table.dst,
            table.time,
            weight=table.weight if definition.weights == "keep" else None,
            cut=options["cut"],
            cut_by=options["cut_by"],
            window=window or None,
            drop_first=options["drop_first"],
            drop_partial=options["drop_partial"],
        )
    except DataError as error:  # such as an interval longer than the data, or a negative weight
        raise DataError(f"{source}: {error}") from error
    return renamed(edges, table.node_ids)


def _compare(definition: Published, form: LocalForm, what: str, count: int | None) -> None:
    """Warn of counts that differ from the published ones; raise where these were counted in the file itself."""
    published = getattr(definition, what)
    if count is None or published is None or count == published:
        return
    problem = (
        f"{form.where} has {count:,} {what}; {published:,} are published for {definition.name!r}. "
        f"It may be another version: compare it with {definition.page}."
    )
    if definition.exact:
        raise DataError(problem)
    warnings.warn(problem, stacklevel=2)


IntervalLength = float | str | timedelta | np.timedelta64 | Any  # or an offset of pandas, which is not imported here


def check_one_way(cut: int, interval: float | Calendar) -> None:
    """Refuse a number and a length of intervals at once: one of the two would be ignored.

    Raises:
        ConfigError: both are given.
    """
    if cut and interval:
        raise ConfigError(
            f"cut={cut} and interval={_shown(interval)} are both given: cut is how many intervals there are, interval "
            "how long each is. Give one, and 0 for the other."
        )


def read_interval(interval: IntervalLength, times: NDArray[Any], cut_by: str, zone: tzinfo | None) -> float | Calendar:
    """Return the length of a base interval: in the unit of ``times``, in edges, or by the calendar; 0 for none.

    Args:
        interval: as in :func:`dtdg_lab.datasets.from_edges`.
        times: shape (E,), from ``read_times``.
        cut_by: ``time`` or ``edges``.
        zone: time zone of the times, whose calendar counts; None for UTC.

    Raises:
        DataError: a length of time for times that are numbers.
        ConfigError: a text that is no length, or a number out of the bounds of the option.
    """
    length = parse_length(interval, "interval")
    if not isinstance(length, timedelta) and not is_offset(length):
        return float(replace(option("interval"), high=None).check(length))
    if cut_by == "edges":
        raise DataError(
            f"interval={shortened(interval)} is a length of time, and the edges are cut by edges: give a number of "
            "edges."
        )
    if times.dtype.kind != "M":
        raise DataError(
            f"interval={shortened(interval)} is a length of time, and the edges have times that are numbers: give a "
            "number in their unit; or time_format='s' if they are seconds since 1970, and so on."
        )
    if not isinstance(length, timedelta):
        return _calendar_of(length, zone)
    nanoseconds = length / timedelta(microseconds=1) * 1000 + getattr(length, "nanoseconds", 0)
    return float(replace(option("interval"), high=None).check(nanoseconds))  # the unit that datetimes become


def _shown(interval: float | Calendar) -> str:
    return str(interval) if isinstance(interval, Calendar) else f"{interval:g}"


def _calendar_of(offset: Any, zone: tzinfo | None) -> Calendar:
    if offset.n < 1:
        raise ConfigError(f"interval={shortened(offset.freqstr)} goes back in time; {LENGTHS}, is allowed.")
    return Calendar(offset, zone)
