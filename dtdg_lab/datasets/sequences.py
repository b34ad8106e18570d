"""From what a parser gives to base intervals: edges are cut by time, steps are cut already, static graphs grow."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

from dtdg_lab.core.errors import ConfigError, DataError
from dtdg_lab.datasets.archives import Members
from dtdg_lab.datasets.contents import Together, content
from dtdg_lab.datasets.edge_deletion import grow
from dtdg_lab.datasets.fetch import Found
from dtdg_lab.datasets.published import Published
from dtdg_lab.datasets.tables import EdgeTable, StaticTable, StepTable, Table
from dtdg_lab.graphs.cutting import cut_edges
from dtdg_lab.graphs.intervals import IntervalEdges, IntervalStream


def read(definition: Published, found: Found, *, features: bool = True) -> Table:
    """The table in a data set's files, its counts compared with the published ones.

    Args:
        definition: the data set.
        found: its files.
        features: whether the features in the files are needed; some are too large to be read for nothing.

    Raises:
        DataError: a file cannot be read or understood, or has other counts than were counted in the same file.
    """
    form = found.form
    told = {**form.options, **({} if features else form.without_features)}
    if not form.by_name:
        data, where = content(found.paths[0], form.files[0].member)
        table = form.parse(data, where, **told)
    elif len(found.paths) == 1:
        table = form.parse(Members(found.paths[0]), found.paths[0].name, **told)
    else:
        table = form.parse(Together(form.files, found.paths), definition.name, **told)
    rows = len(table.src) if isinstance(table, EdgeTable) else None
    _compare(definition, found, "rows", rows)
    _compare(definition, found, "nodes", getattr(table, "num_nodes", None))
    return table


def sequence(
    definition: Published, found: Found, options: Mapping[str, Any], *, seed: int
) -> IntervalEdges | IntervalStream:
    """The base intervals of a published data set.

    Args:
        definition: the data set.
        found: its files.
        options: those of its kind: cutting edges, or growing a static graph; others are not read.
        seed: of the edges that are deleted from a static graph.

    Raises:
        DataError: as :func:`read`; or the edges cannot be cut as the options say.
        ConfigError: the options do not go together.
    """
    table = read(definition, found, features=options["features"] == "given")
    if isinstance(table, StepTable):
        return in_steps(table)
    if isinstance(table, StaticTable):
        return grow(
            table, seed=seed, snapshots=options["generated_snapshots"], growth=options["growth"],
            growth_curve=options["growth_curve"],
        )  # fmt: skip
    edges = _cut(definition, table, options, found.where)
    _compare(definition, found, "nodes", edges.num_nodes)
    return edges


def in_steps(table: StepTable) -> IntervalStream:
    """The steps of a sequence that is cut already, as base intervals."""
    edges = IntervalEdges(
        src=table.src, dst=table.dst, interval=table.step, num_intervals=table.num_steps, num_nodes=table.num_nodes,
        weight=table.weight, node_ids=table.node_ids,
    )  # fmt: skip
    return edges.stream(
        features=table.features, targets=table.targets, persistence=table.persistence, classes=table.classes
    )


def renamed(edges: IntervalEdges, node_ids: Any) -> IntervalEdges:
    """The edges of a table whose ids are positions in ``node_ids``, with those names as ids; None changes nothing."""
    return edges if node_ids is None else dataclasses.replace(edges, node_ids=node_ids[edges.node_ids])


def _cut(definition: Published, table: EdgeTable, options: Mapping[str, Any], where: str) -> IntervalEdges:
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
            table.src, table.dst, table.time, weight=table.weight if definition.weights == "keep" else None,
            cut=options["cut"], cut_by=options["cut_by"], window=window or None, drop_first=options["drop_first"],
            drop_partial=options["drop_partial"],
        )  # fmt: skip
    except DataError as error:  # such as an interval longer than the data, or a negative weight
        raise DataError(f"{where}: {error}") from error
    return renamed(edges, table.node_ids)


def _compare(definition: Published, found: Found, what: str, count: int | None) -> None:
    """Say where a file has other counts than published; an error where these were counted in the file itself."""
    published = getattr(definition, what)
    if count is None or published is None or count == published:
        return
    problem = (
        f"{found.where} has {count:,} {what}; {published:,} are published for {definition.name!r}. "
        f"It may be another version: compare it with {definition.page}."
    )
    if definition.exact:
        raise DataError(problem)
    warnings.warn(problem, stacklevel=2)
