"""``lab.estimate.scaling_forecast``: forecast of a graph's costs over 1 to 1,024 ranks, with local measurements."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from dtdg_lab.advisor.advise import Runs, found_runs, learn_errors, summed
from dtdg_lab.advisor.rates import MeasuredRun, Rates, fit_rates
from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError, UnknownNameError, shortened
from dtdg_lab.core.units import format_bytes, percent
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.partition.base import make_partition
from dtdg_lab.partition.measures import PartitionMeasures
from dtdg_lab.runs.html import template
from dtdg_lab.systems.step_time import NetworkCosts
from dtdg_lab.systems.workload import Facts, GroupWork, Row, count_work, curve_row
from dtdg_lab.visualization.layout import Figure
from dtdg_lab.visualization.studies.result import StudyResult, explained, paragraphs
from dtdg_lab.visualization.studies.scaling import what_if_ranks_figure

# Curves of the forecast over ranks: counted as far as possible, then extrapolated and marked as such.
#
# Rows are plain: ``quantity``, ``curve``, ``ranks``, ``value`` and ``kind``: ``counted`` on the graph, ``formula``
# (closed, exact or an expectation), ``simulated``, ``predicted`` (counts times rates), or ``fitted`` (a power of the
# ranks through what was counted).


PARTITIONERS = ("hash", "metis")
GRADIENTS = "gradients, every system"
LEAST_POINTS = 3  # counted points needed to fit growth
LEAST_VERTICES = 8  # of a partition that is computed


@dataclass(frozen=True, slots=True)
class GrowthCurve:
    """c P^a through counted points, in logarithms.

    Attributes:
        scale: c.
        power: a.
        error: largest relative deviation of a counted point from it.
    """

    scale: float
    power: float
    error: float

    @classmethod
    def through(cls, points: Mapping[int, float]) -> GrowthCurve | None:
        """Fitted to the larger half of the points, at least three; None if fewer are above 0."""
        known = [(parts, value) for parts, value in sorted(points.items()) if value > 0 and parts > 1]
        known = known[-max(LEAST_POINTS, len(known) // 2) :]
        if len(known) < LEAST_POINTS:
            return None
        parts, values = (np.array(each, float) for each in zip(*known, strict=True))
        power, scale = np.polyfit(np.log(parts), np.log(values), 1)
        described = np.exp(scale) * parts**power
        return cls(float(np.exp(scale)), float(power), float(np.abs(described / values - 1).max()))

    def at(self, parts: int) -> float:
        """Its value for P partitions."""
        return float(self.scale * parts**self.power)


def gradient_rows(facts: Facts, ranks: Sequence[int]) -> list[Row]:
    """Bytes of gradients that a rank sends in a step: 2 b (R - 1) / R."""
    size = 2 * facts.parameters * facts.itemsize
    return [curve_row("rank_bytes", GRADIENTS, count, size * (count - 1) / count, "formula") for count in ranks]


def partition_rows(facts: Facts, ranks: Sequence[int], most: int) -> tuple[list[Row], dict[str, GrowthCurve]]:
    """Halo bytes that a rank sends in a step, and replicated rows in a partition, by partitioner.

    Partitions are computed up to ``most``. Beyond, halo rows of ``hash`` are the expectation for random partitions;
    the others grow as a power of the partitions, at most to the value of hash. Replicas grow likewise, at most to all
    nodes.

    Returns:
        Rows, and the growth of each extrapolated curve, by ``quantity: curve``.
    """
    rows: list[Row] = []
    grown: dict[str, GrowthCurve] = {}
    expected = {count: expected_halo(facts.snapshots, count, facts.directions) for count in ranks}
    width = _row_bytes(facts)
    alone = facts.graph.num_nodes
    for name in PARTITIONERS:
        halo, copies = {}, {}
        for count in [each for each in ranks if 1 < each <= min(most, alone // LEAST_VERTICES)]:
            measures = _measured(facts, name, count)
            if measures is None:
                continue
            halo[count] = float(measures.halo.sum())
            copies[count] = float(measures.replicated.mean(axis=0).max())
        if name == "hash":
            described = [
                (count, halo.get(count, expected[count]), "counted" if count in halo else "formula") for count in ranks
            ]
        else:
            described, growth = _continued(halo, ranks, expected)
            if growth is not None:
                grown[f"rank_bytes: halo rows, {name}"] = growth
        rows += [
            curve_row("rank_bytes", f"halo rows, {name}", count, value * width / count, kind)
            for count, value, kind in described
        ]
        more, growth = _continued(copies, ranks, {count: alone * (1 - 1 / count) for count in ranks})
        if growth is not None:
            grown[f"held_rows: own and copies, {name}"] = growth
        rows += [
            curve_row("held_rows", f"own and copies, {name}", count, value + alone / count, kind)
            for count, value, kind in more
        ]
    rows += [curve_row("held_rows", "own alone", count, alone / count, "formula") for count in ranks]
    return rows, grown


def expected_halo(snapshots: Sequence[Snapshot], parts: int, asked: Sequence[str] = ("in",)) -> float:
    """Expected halo rows of all partitions over snapshots, if nodes are assigned at random; ours.

    A node from which d others aggregate is sent to each of the P - 1 other partitions that has one of these:
    (P - 1) (1 - (1 - 1 / P)^d).

    Args:
        snapshots: of N nodes.
        parts: P.
        asked: edge direction of the aggregation.
    """
    if parts == 1:
        return 0.0
    total = 0.0
    for snapshot in snapshots:
        pulled = {"in": np.bincount(snapshot.indices, minlength=snapshot.num_nodes), "out": np.diff(snapshot.indptr)}
        for direction in asked:
            total += float(((parts - 1) * -np.expm1(pulled[direction] * np.log1p(-1 / parts))).sum())
    return total


def _continued(
    points: Mapping[int, float], ranks: Sequence[int], limits: Mapping[int, float]
) -> tuple[list[tuple[int, float, str]], GrowthCurve | None]:
    """Counted points, and growth beyond the last of them, never below it nor above a limit."""
    growth = GrowthCurve.through(points)
    described = []
    last = max(points, default=0)
    for count in ranks:
        if count in points:
            described.append((count, points[count], "counted"))
        elif count == 1:
            described.append((1, 0.0, "counted"))
        elif growth is not None and count > last:
            described.append((count, min(max(growth.at(count), points[last]), limits[count]), "fitted"))
    return described, growth if any(kind == "fitted" for _, _, kind in described) else None


def _row_bytes(facts: Facts) -> float:
    """Bytes of a halo row in one step, forward and backward, over all aggregations in one edge direction."""
    found = sum(pull.width * facts.itemsize * (1 + pull.learned) for pull in facts.pulled)
    return float(found / max(len(facts.directions), 1))


def _measured(facts: Facts, name: str, parts: int) -> PartitionMeasures | None:
    try:
        return facts.measured(make_partition(name, facts.graph, parts, hops=facts.reach, seed=facts.config.seed))
    except LabError:  # a partitioner is not installed, or does not support as many partitions
        return None


RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
MOST_RANKS = 4096
QUICK_PARTS, MOST_PARTS = 16, 128  # partitions that are computed
MEASURED_TOO = ("epoch_s", "rank_bytes")
KINDS: Mapping[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WhatIf(StudyResult):
    """Curves over ranks.

    Attributes:
        rows: ``quantity`` (epoch_s, efficiency, rank_bytes, held_rows, fetch_s), ``curve``, ``ranks``, ``value``,
            ``kind`` (``KINDS``).
        growth: curve -> its power for extrapolation.
        rates: used for the predictions.
        described: what is shown, in words.
        notes: remarks, one sentence each.
    """

    rows: tuple[dict[str, Any], ...]
    growth: Mapping[str, GrowthCurve]
    rates: Rates
    described: str
    notes: tuple[str, ...]

    @property
    def measured_ranks(self) -> int:
        """Largest number of measured ranks; 0 for none."""
        return max((row["ranks"] for row in self.rows if row["kind"] == "measured"), default=0)

    @property
    def figure(self) -> Figure:
        """A panel for each quantity, ranks on a logarithmic axis."""
        # curves beside which the measured runs of a system are drawn
        beside = {name: of for family in catalogue.families() for name, of in family.curves_of.items()}
        most, title = self.measured_ranks, self.described
        return what_if_ranks_figure(self.rows, measured_ranks=most, title=title, curves_of=beside)

    def summary(self) -> str:
        """The values at the most ranks, and their sources."""
        return "\n".join([self.described + ".", *_ends(self.rows), *self.notes])

    def _repr_html_(self) -> str:
        frame = self.table.pivot_table(index=["quantity", "curve"], columns="ranks", values="value", aggfunc="median")
        table = frame.to_html(float_format=lambda value: f"{value:.4g}", na_rep="")
        return f"{paragraphs(self.summary())}{table}{explained(KINDS)}"


def scaling_forecast(
    graph: DynamicGraph | str,
    ranks: Sequence[int] = RANKS,
    *,
    model: str = "tgcn",
    hidden: int = 32,
    layers: int = 1,
    runs: Runs = (),
    runs_dir: str | Path | None = "runs",
    network: NetworkCosts | None = None,
    quick: bool = True,
    **options: Any,
) -> WhatIf:
    """Epoch times, efficiency, bytes, replicas and fetches of a graph over numbers of ranks; nothing is trained.

    Every rank is assumed to have its own core or GPU. The forecast ignores network contention on many nodes, and
    processor caches.

    Args:
        graph: data, or a name of ``lab.datasets.list()``.
        ranks: numbers of ranks.
        model: name in the catalogue.
        hidden: H.
        layers: of the model.
        runs: local runs, or folders of them; by default all of ``runs_dir``.
        runs_dir: folder of runs to use and to show; None for none.
        network: topology for predictions; by default as between the measured ranks.
        quick: compute up to 16 partitions, and grow the sequence of groups to 2,000 snapshots, in seconds; else
            128 and DyGNeX's 10,000, with its greedy scheduler: a minute or more.
        options: of systems, model and data, by name, as in ``lab.estimate.advise``.

    Raises:
        ConfigError: a number of ranks, or a setting, is invalid.
        UnknownNameError: a name is not in the catalogue.

    References: DyGNeX section 5.4 (simulation to 1,024 ranks), ESDG sections 6.3 and 6.4, GreenDyGNN section IV-A.
    """
    counts = _checked(graph, ranks)
    config = RunConfig(
        system="psg", dataset=graph, model=model, hidden=hidden, layers=layers, **_of("psg", model, options)
    )
    graph = graph if isinstance(graph, DynamicGraph) else load_for(config)
    work, facts = count_work(config, graph)
    found = found_runs(runs, runs_dir, graph, None)
    rates = fit_rates(found.runs, facts)
    assert work.groups is not None
    most = QUICK_PARTS if quick else MOST_PARTS
    rows: list[Row] = []
    left: list[str] = []
    for family in catalogue.families():
        rows += family.curves(facts, counts, rates, quick=quick)
    # system -> whether it is predicted on any number of ranks
    predicted = {name: anywhere for family in catalogue.families() for name, anywhere in family.predicted.items()}
    for name in (each for each in catalogue.names("systems") if each in predicted):
        try:
            mine = config.replace(system=name, **_of(name, model, options))
        except LabError as error:
            left.append(f"{name}: {error}")
            continue
        upto = [count for count in counts if count <= most or predicted[name]]
        for count in upto:
            try:
                described = rates.predict(*count_work(mine.replace(ranks=count, parts=count), graph), network)
            except LabError as error:
                left.append(f"{name} on {count} rank{'s' * (count > 1)} and more is not shown: {error}")
                break
            rows.append(curve_row("epoch_s", name, count, described.epoch_s, "predicted"))
    divided, growth = partition_rows(facts, counts, most)
    rows += divided + gradient_rows(facts, counts)
    same = [run for run in found.runs if _same(run, facts)]
    rows += _measured_what_if(same)
    notes = [*_notes(rates, growth, same, found.runs), *left]
    return WhatIf(tuple(rows), MappingProxyType(growth), rates, _to_dict(facts, counts, work.groups), tuple(notes))


def _checked(graph: Any, ranks: Any) -> tuple[int, ...]:
    if not isinstance(graph, DynamicGraph | str):
        raise ConfigError(
            f"scaling_forecast() got {shortened(graph)}: give a graph or a name from lab.datasets.list()."
        )
    counts = list(ranks) if isinstance(ranks, Sequence) and not isinstance(ranks, str) else []
    if not counts or any(isinstance(each, bool) or not isinstance(each, int) for each in counts):
        raise ConfigError(f"ranks={shortened(ranks)}: give whole numbers, such as (1, 2, 4, 1024).")
    if min(counts) < 1 or max(counts) > MOST_RANKS:
        raise ConfigError(f"ranks from {min(counts)} to {max(counts)}: 1 to {MOST_RANKS} are allowed.")
    return tuple(sorted(set(counts)))


def _of(system: str, model: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that a system reads; the others belong to other systems."""
    for name in options:
        if name not in OPTIONS:
            raise UnknownNameError("option", name, OPTIONS)
    data = [entry.name for entry in catalogue.ENTRIES if entry.kind == "datasets"]
    owners = [catalogue.option_owners(system, dataset, model, options) for dataset in data]
    read = {name for of_kinds in owners for names in of_kinds.values() for name in names}
    return {name: value for name, value in options.items() if name in read or name in ("seed", "protocol")}


def _to_dict(facts: Facts, counts: Sequence[int], groups: GroupWork) -> str:
    graph, config = facts.graph, facts.config
    return (
        f"{graph.name} on {min(counts)} to {max(counts):,} ranks: {graph.num_nodes:,} nodes, "
        f"{len(facts.train)} snapshots trained, {len(groups.passes)} groups; {config.model}, hidden {config.hidden}"
    )


def _same(run: MeasuredRun, facts: Facts) -> bool:
    """Whether a run is of the same data, model and sizes."""
    mine, other = facts.config, run.facts.config
    return run.facts.graph.data_hash == facts.graph.data_hash and all(
        getattr(mine, name) == getattr(other, name) for name in ("model", "hidden", "layers")
    )


def _measured_what_if(runs: Sequence[MeasuredRun]) -> list[dict[str, Any]]:
    """Epoch seconds, and bytes of a step: of rows or, if none are sent, of gradients, as in the curves."""
    found = []
    for run in runs:
        for quantity in MEASURED_TOO:
            value = run.quantities.get(quantity)
            if value is None:
                continue
            if quantity == "rank_bytes":
                value = (value - run.work.gradient_bytes * run.work.sent.any()) / max(run.work.steps, 1)
            found.append(curve_row(quantity, run.system, run.work.ranks, value, "measured"))
    return found


def _notes(
    rates: Rates, growth: Mapping[str, GrowthCurve], mine: Sequence[MeasuredRun], runs: Sequence[MeasuredRun]
) -> list[str]:
    off, seen = summed(learn_errors(runs), "epoch_s") if rates.runs else None, [run.work.ranks for run in mine]
    given = {"rates": rates, "off": off, "seen": max(seen, default=0), "mine": len(mine), "growth": growth}
    return template("advisor/templates/what_if.txt").render(given).splitlines()


def _ends(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Schedules, bytes and replicas at the most ranks."""
    last = max(row["ranks"] for row in rows)
    at = {(row["quantity"], row["curve"]): row for row in rows if row["ranks"] == last and row["kind"] != "measured"}
    said = []
    efficient = {curve: row["value"] for (quantity, curve), row in at.items() if quantity == "efficiency"}
    schedulers = {name: value for name, value in efficient.items() if not name.startswith("bound")}
    if schedulers:
        best = max(schedulers, key=lambda name: schedulers[name])
        said.append(
            f"A longer sequence that grows like this one keeps {percent(schedulers[best])} of one rank's throughput on "
            f"each of {last:,} ranks by {best}, {percent(schedulers.get('psg', 0.0))} by psg; the bound is "
            f"{percent(efficient['bound of schedules'])}. This graph has too few groups for most numbers of ranks."
        )
    sent = {curve: row for (quantity, curve), row in at.items() if quantity == "rank_bytes"}
    if sent:
        least, most = (pick(sent, key=lambda name: sent[name]["value"]) for pick in (min, max))
        said.append(
            f"There a rank sends least for {least} ({format_bytes(sent[least]['value'])} a step, "
            f"{sent[least]['kind']}) and most for {most} ({format_bytes(sent[most]['value'])}, {sent[most]['kind']})."
        )
    return said
