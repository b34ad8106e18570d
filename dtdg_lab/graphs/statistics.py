"""Statistics of dynamic graphs, computed once and cached."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.files import replacing
from dtdg_lab.graphs.graph_data import GraphData
from dtdg_lab.graphs.snapshot import edge_keys, read_only, repeats, stored_once
from dtdg_lab.graphs.storage import cache_folder

if TYPE_CHECKING:
    from dtdg_lab.graphs.snapshot import Snapshot


# Tail of a degree distribution: the exponent of a power law fitted to the largest degrees.
LEAST_IN_TAIL = 50  # fewer values are too few to fit


@dataclass(frozen=True, slots=True)
class Tail:
    """A power law p(x) ~ x^-exponent for x of at least ``start``, fitted to ``values`` values.

    Attributes:
        exponent: alpha.
        start: the smallest degree of the tail, chosen so that the law fits best.
        values: how many degrees are in the tail.
        distance: largest distance between the distribution of the tail and the law's, 0 (equal) to 1.
    """

    exponent: float
    start: int
    values: int
    distance: float


def fit_tail(histogram: NDArray[np.int64]) -> Tail | None:
    """Return the power law that fits the tail of a distribution best; None where no tail has 50 values of two sizes.

    Args:
        histogram: shape (largest degree + 1,): how often each degree occurs; degree 0 does not count.

    Source: Clauset, Shalizi, Newman, "Power-law distributions in empirical data" (2009): the estimate of equation 3.7,
    the start by the smallest Kolmogorov-Smirnov distance (section 3.3). The estimate is an approximation, a few per
    cent low for tails that start below 6.
    """
    degrees = np.flatnonzero(histogram[1:]) + 1
    counts = histogram[degrees]
    above = np.cumsum(counts[::-1])[::-1]  # values at least as large as each degree
    starts = np.flatnonzero(above[:-1] >= LEAST_IN_TAIL)
    fits = [_fit_from(degrees[start:], counts[start:]) for start in starts.tolist()]
    return min(fits, key=lambda fit: fit.distance, default=None)


def _fit_from(degrees: NDArray[np.int64], counts: NDArray[np.int64]) -> Tail:
    """Return the law for a tail given as its distinct degrees, rising, and how often each occurs."""
    total, start = int(counts.sum()), int(degrees[0])
    logs = np.log(degrees / (start - 0.5))
    exponent = 1 + total / float(counts @ logs)
    shares = np.cumsum(counts[::-1])[::-1] / total  # share at least as large
    law = np.exp(logs * (1 - exponent)) * ((degrees - 0.5) / degrees) ** (1 - exponent)
    return Tail(exponent, start, total, float(np.abs(shares - law).max()))


# Statistics of a dynamic graph.


QUANTILES = (0.5, 0.9, 0.99, 1.0)
SERIES = ("edges", "active", "jaccard", "kept", "degrees", "degree_counts", "persistence_errors", "mean_errors")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GraphStatistics:
    """Statistics of a graph of T labelled snapshots; print it to read it.

    S, V, E and EL are the columns of the papers' tables. S and EL count the last window too, which is only a label;
    the series are over the T labelled snapshots.

    Attributes:
        name: the graph's name.
        S: snapshots cut, as the papers count them; T where the graph was not cut here.
        V: nodes.
        E: distinct edges of every base interval, summed; None if unknown.
        EL: distinct edges of every snapshot, summed.
        rows: edges in the source, duplicates included; None if unknown.
        edge_life: base intervals an edge lives.
        weighted: whether edges carry weights.
        features: F.
        self_loops: self loops of every snapshot, summed.
        edges: distinct edges of every snapshot, shape (T,).
        active: nodes with an edge in every snapshot, shape (T,).
        jaccard: edges that two consecutive snapshots share, over those that either has, shape (T - 1,); NaN where
            both are empty.
        kept: share of a snapshot's edges that the next one has too, shape (T - 1,); NaN where it is empty.
        empty: ranges of snapshots without edges.
        in_degrees: quantile -> in-degree, over all nodes with in-neighbours in all snapshots.
        tail: the power law of those in-degrees' tail; None where they have none.
        degrees: the in-degrees above 0 that occur, rising, shape (D,).
        degree_counts: how often each of ``degrees`` occurs, over all nodes and snapshots, shape (D,).
        classes: how many nodes have each class; nodes count once a snapshot where classes change.
        unlabelled: how many have none; None where there are no classes.
        persistence_mse: mean squared error of persistence over all targets.
        mean_mse: mean squared error of the mean of all targets: their variance.
        persistence_errors: ``persistence_mse`` of every snapshot, shape (T,).
        mean_errors: ``mean_mse`` of every snapshot, shape (T,).
    """

    name: str
    S: int
    V: int
    E: int | None
    EL: int
    rows: int | None
    edge_life: int
    weighted: bool
    features: int
    self_loops: int
    edges: NDArray[np.int64]
    active: NDArray[np.int64]
    jaccard: NDArray[np.float64]
    kept: NDArray[np.float64]
    empty: tuple[range, ...]
    in_degrees: dict[float, int]
    tail: Tail | None
    degrees: NDArray[np.int64]
    degree_counts: NDArray[np.int64]
    classes: tuple[int, ...]
    unlabelled: int | None
    persistence_mse: float
    mean_mse: float
    persistence_errors: NDArray[np.float64]
    mean_errors: NDArray[np.float64]

    def to_dict(self) -> dict[str, Any]:
        """Return all values for JSON: NaN becomes None, a range its first and last entry."""
        values: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in SERIES:
            values[name] = [None if math.isnan(value) else value for value in values[name].tolist()]
        values["empty"] = [[part.start, part.stop - 1] for part in self.empty]
        values["in_degrees"] = {str(share): degree for share, degree in self.in_degrees.items()}
        values["tail"] = None if self.tail is None else asdict(self.tail)
        values["classes"] = list(self.classes)
        return values

    def __repr__(self) -> str:
        """Return the printed text, for notebooks."""
        return str(self)

    def __str__(self) -> str:
        """Return the statistics in a dozen lines."""
        base = "not known" if self.E is None else f"{self.E:,} distinct in their base intervals"
        lines = [
            f"{self.name}: {self.S:,} snapshots (S), {len(self.edges):,} of them labelled; edges live {self.edge_life} "
            f"base interval{'s' * (self.edge_life > 1)}",
            f"nodes (V)     {self.V:,}; with an edge {_range(self.active)} a snapshot",
            f"edges (E)        {base}{'' if self.rows is None else f'; {self.rows:,} rows'}"
            f"{'; weighted' if self.weighted else ''}",
            f"edges alive (EL) {self.EL:,}; {_range(self.edges)} a snapshot; {self.self_loops:,} self loops",
            f"empty snapshots  {', '.join(_ends(part) for part in self.empty) or 'none'}",
            f"overlap          {_mean(self.kept)} of a snapshot's edges are in the next one; Jaccard "
            f"{_mean(self.jaccard)}",
            f"in-degrees       {', '.join(f'{degree:,} at {share:g}' for share, degree in self.in_degrees.items())}",
            "tail of in-degrees "
            + (f"exponent {self.tail.exponent:.2f} from {self.tail.start}" if self.tail else "not heavy enough to fit"),
            f"features         {self.features}",
            f"baselines (MSE)  persistence {self.persistence_mse:.4g}, mean {self.mean_mse:.4g}",
        ]
        if self.unlabelled is not None:
            counts = ", ".join(f"{count:,}" for count in self.classes)
            lines.append(f"classes          {len(self.classes)}: {counts}; {self.unlabelled:,} unlabelled")
        return "\n".join(lines)


def describe(graph: GraphData) -> GraphStatistics:
    """Compute the statistics of a graph, from one or two snapshots at a time."""
    series = [_of_snapshot(snapshot) for snapshot in graph.snapshots]
    overlap = np.array(_overlaps(graph), dtype=np.float64).reshape(-1, 2)
    histogram = _in_degrees(graph)
    classes, unlabelled = _classes(graph)
    degrees, errors = np.flatnonzero(histogram[1:]) + 1, _baselines(graph)
    counts, alive = graph.counts, int(graph.num_edges.sum())
    return GraphStatistics(
        name=graph.name,
        S=counts.windows if counts else graph.num_snapshots,
        V=graph.num_nodes,
        E=counts.interval_edges if counts else alive if graph.edge_life == 1 else None,
        EL=counts.window_edges if counts else alive,
        rows=counts.rows if counts else None,
        edge_life=graph.edge_life,
        weighted=graph.weighted,
        features=graph.num_features,
        self_loops=sum(loops for _, loops in series),
        edges=graph.num_edges,
        active=read_only(np.array([active for active, _ in series], dtype=np.int64)),
        jaccard=read_only(overlap[:, 0].copy()),
        kept=read_only(overlap[:, 1].copy()),
        empty=runs_of(graph.num_edges == 0),
        in_degrees=_quantiles(histogram),
        tail=fit_tail(histogram),
        degrees=read_only(degrees),
        degree_counts=read_only(histogram[degrees]),
        classes=classes,
        unlabelled=unlabelled,
        persistence_mse=float(errors[:, 0].mean()),
        mean_mse=float(errors[:, 1].mean()),
        persistence_errors=read_only(errors[:, 0].copy()),
        mean_errors=read_only(errors[:, 1].copy()),
    )


def _of_snapshot(snapshot: Snapshot) -> tuple[int, int]:
    """Count the nodes with an edge, and the self loops."""
    active = np.diff(snapshot.indptr) > 0
    active[snapshot.indices] = True
    return int(np.count_nonzero(active)), int(np.count_nonzero(snapshot.rows() == snapshot.indices))


def _overlaps(graph: GraphData) -> list[tuple[float, float]]:
    """Return the Jaccard index and the share of kept edges of each pair of consecutive snapshots."""
    shares, previous_keys = [], edge_keys(graph.snapshots[0])
    for snapshot in graph.snapshots[1:]:
        after = edge_keys(snapshot)
        both = np.concatenate([previous_keys, after])
        both.sort(kind="stable")  # two rising runs: merged in one go
        shared, either = int(np.count_nonzero(both[1:] == both[:-1])), len(both)
        jaccard = shared / (either - shared) if either else np.nan
        shares.append((jaccard, shared / len(previous_keys) if len(previous_keys) else np.nan))
        previous_keys = after
    return shares


def _in_degrees(graph: GraphData) -> NDArray[np.int64]:
    """Return how often each in-degree occurs, over all nodes and snapshots."""
    histogram = np.zeros(1, dtype=np.int64)
    for snapshot in graph.snapshots:
        part = np.bincount(np.diff(snapshot.indptr))
        if len(part) > len(histogram):
            histogram = np.pad(histogram, (0, len(part) - len(histogram)))
        histogram[: len(part)] += part
    return histogram


def _quantiles(histogram: NDArray[np.int64]) -> dict[float, int]:
    """Return quantiles of the degrees above 0; empty without edges."""
    reached = np.cumsum(histogram[1:])
    if not len(reached) or not reached[-1]:
        return {}
    return {share: int(np.searchsorted(reached, share * reached[-1])) + 1 for share in QUANTILES}


def _classes(graph: GraphData) -> tuple[tuple[int, ...], int | None]:
    if graph.classes is None:
        return (), None
    classes = stored_once(graph.classes)
    counts = np.zeros(graph.num_classes + 1, dtype=np.int64)
    for row in [classes] if repeats(graph.classes) else classes:
        counts += np.bincount(row.astype(np.int64) + 1, minlength=len(counts))
    return tuple(counts[1:].tolist()), int(counts[0])


def _baselines(graph: GraphData) -> NDArray[np.float64]:
    """Return the mean squared errors of persistence and of the targets' mean, for each snapshot; shape (T, 2)."""
    mean = float(np.mean([row.mean(dtype=np.float64) for row in graph.targets]))
    errors = np.empty((len(graph.targets), 2))
    for t, (target, expected) in enumerate(zip(graph.targets, graph.persistence, strict=True)):
        wide = target.astype(np.float64)
        errors[t] = np.mean((expected - wide) ** 2), np.mean((mean - wide) ** 2)
    return errors


def runs_of(flags: NDArray[np.bool_]) -> tuple[range, ...]:
    """Return the ranges of consecutive true flags."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return tuple(range(start, stop) for start, stop in edges.reshape(-1, 2).tolist())


def _range(values: NDArray[np.int64]) -> str:
    return f"{values.min():,} to {values.max():,}"


def _ends(part: range) -> str:
    return f"{part.start}" if len(part) == 1 else f"{part.start}-{part.stop - 1}"


def _mean(values: NDArray[np.float64]) -> str:
    finite = values[~np.isnan(values)]
    return f"{finite.mean():.2f}" if len(finite) else "-"


# Statistics of a graph, computed once and kept in the cache under its data hash.


# raise it when the statistics of a graph change, so that older ones are not taken from a cache
STATISTICS_VERSION = 1
_INTEGERS = ("edges", "active", "degrees", "degree_counts")


def statistics_of(graph: GraphData) -> GraphStatistics:
    """Return ``graph.describe()``, from the cache if it holds it.

    Where the cache cannot be read or written, the statistics are computed.
    """
    path = cache_folder() / "statistics" / f"{graph.data_hash[:32]}-{STATISTICS_VERSION}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return _from_dict({**json.loads(path.read_text(encoding="utf-8")), "name": graph.name})
    statistics = describe(graph)
    with contextlib.suppress(OSError):
        text = json.dumps(statistics.to_dict(), allow_nan=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as draft:
            draft.write_text(text, encoding="utf-8")
    return statistics


def _from_dict(values: dict[str, Any]) -> GraphStatistics:
    """Return the statistics from the values of ``GraphStatistics.to_dict``."""
    series = {
        name: read_only(np.array(values[name], dtype=np.int64 if name in _INTEGERS else np.float64)) for name in SERIES
    }
    tail = values["tail"]
    return GraphStatistics(
        **{
            **values,
            **series,
            "empty": tuple(range(first, last + 1) for first, last in values["empty"]),
            "in_degrees": {float(share): degree for share, degree in values["in_degrees"].items()},
            "tail": None if tail is None else Tail(**tail),
            "classes": tuple(values["classes"]),
        }
    )
