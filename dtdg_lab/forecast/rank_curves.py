"""How a graph's costs change over 1 to 1,024 ranks: counted as far as possible, then extrapolated and marked as such.

Rows are plain values: ``quantity``, ``curve``, ``ranks``, ``value`` and ``kind``. The kinds are ``counted`` on the
graph, ``formula`` (exact or an expected value), ``simulated``, ``predicted`` (counts times rates), and ``fitted`` (a
power law through the counted points).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import LabError
from dtdg_lab.core.units import format_bytes, percent
from dtdg_lab.forecast.measured_runs import MeasuredRun
from dtdg_lab.forecast.prediction_error import learn_errors, summarize_errors
from dtdg_lab.forecast.rates import Rates
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.partition.base import make_partition
from dtdg_lab.partition.measures import PartitionMeasures
from dtdg_lab.runs.html import template
from dtdg_lab.systems.workload import Facts, GroupWork, Row, curve_row
from dtdg_lab.visualization.chart import Figure
from dtdg_lab.visualization.studies.result import StudyResult, explained, paragraphs
from dtdg_lab.visualization.studies.scaling import what_if_ranks_figure

PARTITIONERS = ("hash", "metis")
GRADIENTS = "gradients, every system"
LEAST_POINTS = 3  # number of counted points needed to fit growth
LEAST_VERTICES = 8  # smallest mean size of a part for which partitions are computed


@dataclass(frozen=True, slots=True)
class GrowthCurve:
    """A power law c P^a fitted to counted points in logarithms.

    Attributes:
        scale: the factor c.
        power: the exponent a.
        error: the largest relative difference between a counted point and the fit.
    """

    scale: float
    power: float
    error: float

    @classmethod
    def through(cls, points: Mapping[int, float]) -> GrowthCurve | None:
        """Fit the half of the points with the most parts, at least three; return None if fewer values are above 0."""
        positive = [(parts, value) for parts, value in sorted(points.items()) if value > 0 and parts > 1]
        largest = positive[-max(LEAST_POINTS, len(positive) // 2) :]
        if len(largest) < LEAST_POINTS:
            return None
        parts, values = (np.array(column, float) for column in zip(*largest, strict=True))
        power, scale = np.polyfit(np.log(parts), np.log(values), 1)
        fitted = np.exp(scale) * parts**power
        return cls(float(np.exp(scale)), float(power), float(np.abs(fitted / values - 1).max()))

    def at(self, parts: int) -> float:
        """Return the value for P parts."""
        return float(self.scale * parts**self.power)


def gradient_rows(facts: Facts, ranks: Sequence[int]) -> list[Row]:
    """Return the gradient bytes that a rank sends per step: 2 b (R - 1) / R."""
    size = 2 * facts.parameters * facts.itemsize
    return [curve_row("rank_bytes", GRADIENTS, count, size * (count - 1) / count, "formula") for count in ranks]


def partition_rows(facts: Facts, ranks: Sequence[int], most_parts: int) -> tuple[list[Row], dict[str, GrowthCurve]]:
    """Return the halo bytes that a rank sends per step, and the replicated rows of a part, for each partitioner.

    Partitions are computed for up to ``most_parts``. Beyond that, halo rows of ``hash`` are the expected value for
    random partitions, and those of other partitioners grow as a power of the number of parts, at most to the value of
    hash. Replicas grow in the same way, at most to all nodes.

    Returns:
        The rows, and the growth of each extrapolated curve by ``quantity: curve``.
    """
    rows: list[Row] = []
    growth_curves: dict[str, GrowthCurve] = {}
    expected = {count: expected_halo(facts.snapshots, count, facts.directions) for count in ranks}
    width = _row_bytes(facts)
    nodes = facts.graph.num_nodes
    for name in PARTITIONERS:
        halo, copies = {}, {}
        for count in [count for count in ranks if 1 < count <= min(most_parts, nodes // LEAST_VERTICES)]:
            measures = _measured(facts, name, count)
            if measures is None:
                continue
            halo[count] = float(measures.halo.sum())
            copies[count] = float(measures.replicated.mean(axis=0).max())
        if name == "hash":
            points = [
                (count, halo.get(count, expected[count]), "counted" if count in halo else "formula") for count in ranks
            ]
        else:
            points, growth = _continued(halo, ranks, expected)
            if growth is not None:
                growth_curves[f"rank_bytes: halo rows, {name}"] = growth
        rows += [
            curve_row("rank_bytes", f"halo rows, {name}", count, value * width / count, kind)
            for count, value, kind in points
        ]
        copied, growth = _continued(copies, ranks, {count: nodes * (1 - 1 / count) for count in ranks})
        if growth is not None:
            growth_curves[f"held_rows: own and copies, {name}"] = growth
        rows += [
            curve_row("held_rows", f"own and copies, {name}", count, value + nodes / count, kind)
            for count, value, kind in copied
        ]
    rows += [curve_row("held_rows", "own alone", count, nodes / count, "formula") for count in ranks]
    return rows, growth_curves


def expected_halo(snapshots: Sequence[Snapshot], parts: int, directions: Sequence[str] = ("in",)) -> float:
    """Return the expected halo rows of all parts over snapshots if nodes are assigned at random; our derivation.

    A node from which d others aggregate is sent to each of the P - 1 other parts that has one of these, so the expected
    number is (P - 1) (1 - (1 - 1 / P)^d).

    Args:
        snapshots: snapshots of N nodes.
        parts: number of parts P.
        directions: edge directions of the aggregation.
    """
    if parts == 1:
        return 0.0
    total = 0.0
    for snapshot in snapshots:
        pulled = {"in": np.bincount(snapshot.indices, minlength=snapshot.num_nodes), "out": np.diff(snapshot.indptr)}
        for direction in directions:
            total += float(((parts - 1) * -np.expm1(pulled[direction] * np.log1p(-1 / parts))).sum())
    return total


def _continued(
    points: Mapping[int, float], ranks: Sequence[int], limits: Mapping[int, float]
) -> tuple[list[tuple[int, float, str]], GrowthCurve | None]:
    """Return the counted points, followed by growth that is neither below the last of them nor above a limit."""
    growth = GrowthCurve.through(points)
    continued = []
    last = max(points, default=0)
    for count in ranks:
        if count in points:
            continued.append((count, points[count], "counted"))
        elif count == 1:
            continued.append((1, 0.0, "counted"))
        elif growth is not None and count > last:
            continued.append((count, min(max(growth.at(count), points[last]), limits[count]), "fitted"))
    return continued, growth if any(kind == "fitted" for _, _, kind in continued) else None


def _row_bytes(facts: Facts) -> float:
    """Return the bytes of a halo row per step, forward and backward, over all aggregations in one edge direction."""
    row_bytes = sum(pull.width * facts.itemsize * (1 + pull.learned) for pull in facts.pulled)
    return float(row_bytes / max(len(facts.directions), 1))


def _measured(facts: Facts, name: str, parts: int) -> PartitionMeasures | None:
    try:
        partition = make_partition(
            name, facts.graph, parts, snapshots=facts.train, hops=facts.reach, seed=facts.config.seed
        )
        return facts.measured(partition)
    except LabError:  # a partitioner is not installed, or does not support this many parts
        return None


RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
MEASURED_TOO = ("epoch_s", "rank_bytes")
KINDS: Mapping[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RankCurves(StudyResult):
    """Curves of costs over the number of ranks.

    Attributes:
        rows: ``quantity`` (epoch_s, efficiency, rank_bytes, held_rows, fetch_s), ``curve``, ``ranks``, ``value`` and
            ``kind`` (one of ``KINDS``).
        growth: curve -> the power law with which it is extrapolated.
        rates: the rates used for the predictions.
        described: a description of the content.
        notes: remarks, one sentence each.
    """

    rows: tuple[dict[str, Any], ...]
    growth: Mapping[str, GrowthCurve]
    rates: Rates
    described: str
    notes: tuple[str, ...]

    @property
    def measured_ranks(self) -> int:
        """The largest number of measured ranks; 0 if nothing was measured."""
        return max((row["ranks"] for row in self.rows if row["kind"] == "measured"), default=0)

    @property
    def figure(self) -> Figure:
        """A panel for each quantity, with ranks on a logarithmic axis."""
        # system -> curves next to which its measured runs are drawn
        beside = {name: curves for family in catalogue.families() for name, curves in family.curves_of.items()}
        most, title = self.measured_ranks, self.described
        return what_if_ranks_figure(self.rows, measured_ranks=most, title=title, curves_of=beside)

    def summary(self) -> str:
        """Return the values for the largest number of ranks, and where they come from."""
        return "\n".join([self.described + ".", *_sentences(self.rows), *self.notes])

    def _repr_html_(self) -> str:
        frame = self.table.pivot_table(index=["quantity", "curve"], columns="ranks", values="value", aggfunc="median")
        table = frame.to_html(float_format=lambda value: f"{value:.4g}", na_rep="")
        return f"{paragraphs(self.summary())}{table}{explained(KINDS)}"


def describe(facts: Facts, counts: Sequence[int], groups: GroupWork) -> str:
    """Return a description of the curves' content."""
    graph, config = facts.graph, facts.config
    return (
        f"{graph.name} on {min(counts)} to {max(counts):,} ranks: {graph.num_nodes:,} nodes, "
        f"{len(facts.train)} snapshots trained, {len(groups.passes)} groups; {config.model}, hidden {config.hidden}"
    )


def is_same(run: MeasuredRun, facts: Facts) -> bool:
    """Return whether a run has the same data, model and sizes."""
    config, run_config = facts.config, run.facts.config
    return run.facts.graph.data_hash == facts.graph.data_hash and all(
        getattr(config, name) == getattr(run_config, name) for name in ("model", "hidden", "layers")
    )


def measured_rows(runs: Sequence[MeasuredRun]) -> list[Row]:
    """Return measured epoch times, and bytes per step: those of rows or, if none are sent, of gradients."""
    rows = []
    for run in runs:
        for quantity in MEASURED_TOO:
            value = run.quantities.get(quantity)
            if value is None:
                continue
            if quantity == "rank_bytes":
                value = (value - run.work.gradient_bytes * run.work.sent.any()) / max(run.work.steps, 1)
            rows.append(curve_row(quantity, run.system, run.work.ranks, value, "measured"))
    return rows


def notes(
    rates: Rates, growth: Mapping[str, GrowthCurve], same: Sequence[MeasuredRun], runs: Sequence[MeasuredRun]
) -> list[str]:
    """Return remarks on rates, errors and extrapolated curves.

    Args:
        rates: the rates of the predictions.
        growth: growth of the extrapolated curves.
        same: runs of the same data, model and sizes.
        runs: all measured runs.
    """
    errors = summarize_errors(learn_errors(runs), "epoch_s") if rates.runs else None
    measured_ranks = max((run.work.ranks for run in same), default=0)
    values = {"rates": rates, "errors": errors, "ranks": measured_ranks, "same": len(same), "growth": growth}
    return template("forecast/templates/rank_curves.txt").render(values).splitlines()


def _sentences(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return sentences on schedules, bytes and replicas for the largest number of ranks."""
    ranks = max(row["ranks"] for row in rows)
    at_most = [row for row in rows if row["ranks"] == ranks and row["kind"] != "measured"]
    sentences = []
    efficiency = {row["curve"]: row["value"] for row in at_most if row["quantity"] == "efficiency"}
    schedulers = {name: value for name, value in efficiency.items() if not name.startswith("bound")}
    if schedulers:
        best = max(schedulers, key=lambda name: schedulers[name])
        sentences.append(
            f"A longer sequence that grows like this one keeps {percent(schedulers[best])} of one rank's throughput on "
            f"each of {ranks:,} ranks by {best}, {percent(schedulers.get('psg', 0.0))} by psg; the bound is "
            f"{percent(efficiency['bound of schedules'])}. This graph has too few groups for most numbers of ranks."
        )
    sent = {row["curve"]: row for row in at_most if row["quantity"] == "rank_bytes"}
    if sent:
        smallest, largest = (pick(sent, key=lambda name: sent[name]["value"]) for pick in (min, max))
        sentences.append(
            f"There a rank sends least for {smallest} ({format_bytes(sent[smallest]['value'])} a step, "
            f"{sent[smallest]['kind']}) and most for {largest} ({format_bytes(sent[largest]['value'])}, "
            f"{sent[largest]['kind']})."
        )
    return sentences
