"""``lab.what_if``: forecast of a graph's costs over 1 to 1,024 ranks, with local measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.advisor.advise import Runs, found_runs, learn_errors, summed
from dtdg_lab.advisor.rates import ASSUMED_NETWORK, MeasuredRun, Rates, fit_rates
from dtdg_lab.advisor.workload import Facts, GroupWork, count_work
from dtdg_lab.core import catalogue
from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError, UnknownNameError, shortened
from dtdg_lab.core.message_passing import ways
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.core.units import format_bytes
from dtdg_lab.datasets.names import load_for
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.partition.base import make_partition
from dtdg_lab.partition.metrics import PartitionMeasures
from dtdg_lab.runs.html import text
from dtdg_lab.systems.feature_cache.policies.costs import CacheCosts
from dtdg_lab.systems.feature_cache.policies.shipped_costs import products
from dtdg_lab.systems.snapshot_blocks.cost_model import NetworkCosts, legs, redistributed, sent
from dtdg_lab.systems.snapshot_groups.schedulers.simulation import simulate
from dtdg_lab.systems.snapshot_groups.time_model import group_times, snapshot_times
from dtdg_lab.visualization.layout import Figure, percent
from dtdg_lab.visualization.scaling import what_if_ranks_figure

if TYPE_CHECKING:
    import pandas as pd


# Curves of the forecast over ranks: counted as far as possible, then extrapolated and marked as such.
#
# Rows are plain: ``quantity``, ``curve``, ``ranks``, ``value`` and ``kind``: ``counted`` on the graph, ``formula``
# (closed, exact or an expectation), ``simulated``, ``predicted`` (counts times rates), or ``fitted`` (a power of the
# ranks through what was counted).


Row = dict[str, Any]
PARTITIONERS = ("hash", "metis")
SCHEDULERS = ("psg", "longest_first", "dygnex_greedy")
GROWN_SCHEDULERS = ("psg", "longest_first", "fold")  # quick ones, for thousands of groups
WINDOWS = (1, 16, 64)
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


def schedule_rows(
    times_s: NDArray[np.float64],
    ranks: Sequence[int],
    allreduce_s: Callable[[int], float],
    *,
    quantity: str,
    schedulers: Sequence[str] = SCHEDULERS,
) -> list[Row]:
    """Results of schedulers for group times, and their lower bound.

    Args:
        times_s: (K,) seconds of each group on one rank.
        ranks: numbers of ranks.
        allreduce_s: ranks -> seconds of an exchange of gradients.
        quantity: ``epoch_s``, or ``efficiency``: throughput of a rank over that of one alone.
        schedulers: names.
    """
    name = "makespan_s" if quantity == "epoch_s" else "throughput"
    bound = "bound_s" if quantity == "epoch_s" else "bound_throughput"
    found: list[Row] = []
    for count in ranks:
        described = simulate(times_s, ranks=(count,), schedulers=schedulers, allreduce_s=allreduce_s(count))
        found += [_row(quantity, each.scheduler, count, float(getattr(each, name)), "simulated") for each in described]
        found.append(_row(quantity, "bound of schedules", count, float(getattr(described[0], bound)), "formula"))
    return found


def grown_times(times_s: NDArray[np.float64], snapshots: int, *, window: int, seed: int) -> NDArray[np.float64]:
    """Seconds of each group of a longer sequence that grows like this one, with 5 % noise: (snapshots - window + 1,).

    Args:
        times_s: (K,) seconds of this sequence's groups, in order of time.
        snapshots: T of the longer one.
        window: snapshots of a group.
        seed: of the noise.

    References: DyGNeX section 5.4 simulates 10,000 snapshots; that the growth is linear, from this sequence's first to
    its last, and the noise are ours.
    """
    first, last = float(times_s[0]), float(times_s[-1])
    if len(times_s) > 1:  # a line through all, because single groups may be outliers
        slope, start = np.polyfit(np.arange(len(times_s)), times_s, 1)
        least = float(times_s.min())
        first, last = max(float(start), least), max(float(start + slope * (len(times_s) - 1)), least)
    each = snapshot_times(snapshots, "linear", last=last / first, seed=seed)
    return group_times(each, window=window) * (first / window)


def snapshot_rows(facts: Facts, ranks: Sequence[int]) -> list[Row]:
    """Bytes that the busiest rank sends in a step of ESDG: exact, up to one rank per node.

    References: ESDG section 6.4: S N (R - 1) / R rows per all-to-all phase, for any graph.
    """
    config = facts.config
    pairs = facts.outputs if config["task"] == "link" else 0
    try:
        some = sent(
            legs(
                config.model, facts.graph.num_features, config.hidden, config.layers, pairs=pairs, **facts.model_options
            )
        )
    except LabError:  # the model's recurrence does not support snapshot parallelism
        return []
    found = []
    for count in ranks:
        if count > facts.graph.num_nodes:
            continue
        plan = SnapshotBlocks(range(len(facts.train)), 1, count, facts.graph.num_nodes)
        volume = redistributed(plan, some, config.layers)
        moved = sum(each.sum(axis=0) for each in volume.bytes(facts.itemsize).values())
        value = float(np.asarray(moved).sum(axis=1).max())
        found.append(_row("rank_bytes", "rows by snapshots (esdg)", count, value, "formula"))
    return found


def gradient_rows(facts: Facts, ranks: Sequence[int]) -> list[Row]:
    """Bytes of gradients that a rank sends in a step: 2 b (R - 1) / R."""
    size = 2 * facts.parameters * facts.itemsize
    return [
        _row("rank_bytes", "gradients, every system", count, size * (count - 1) / count, "formula") for count in ranks
    ]


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
    expected = {count: expected_halo(facts.snapshots, count, ways(facts.config.model)) for count in ranks}
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
        limits = {count: expected[count] for count in ranks}
        if name == "hash":
            described = [
                (count, halo.get(count, expected[count]), "counted" if count in halo else "formula") for count in ranks
            ]
        else:
            described, growth = _continued(halo, ranks, limits)
            if growth is not None:
                grown[f"rank_bytes: halo rows, {name}"] = growth
        rows += [
            _row("rank_bytes", f"halo rows, {name}", count, value * width / count, kind)
            for count, value, kind in described
        ]
        more, growth = _continued(copies, ranks, {count: alone * (1 - 1 / count) for count in ranks})
        if growth is not None:
            grown[f"held_rows: own and copies, {name}"] = growth
        rows += [
            _row("held_rows", f"own and copies, {name}", count, value + alone / count, kind)
            for count, value, kind in more
        ]
    rows += [_row("held_rows", "own alone", count, alone / count, "formula") for count in ranks]
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
        pulled = {
            "in": np.bincount(snapshot.indices, minlength=snapshot.num_nodes),
            "out": np.diff(snapshot.indptr),
        }
        for way in asked:
            total += float(((parts - 1) * -np.expm1(pulled[way] * np.log1p(-1 / parts))).sum())
    return total


def fetch_rows(costs: Callable[[int], CacheCosts], ranks: Sequence[int], delay_s: float) -> list[Row]:
    """Seconds of a step that fetches features, by cache window: with clean links, and with one slow link.

    Args:
        costs: partitions -> constants of step costs.
        ranks: numbers of ranks, each with one partition.
        delay_s: delay in seconds of one owner's replies.

    References: GreenDyGNN section IV-A.
    """
    found: list[Row] = []
    for count in [each for each in ranks if each > 1]:
        of = costs(count)
        even = np.array(of.asked)
        late = np.zeros(count - 1)
        late[0] = delay_s
        for window in WINDOWS:
            for name, delays in (("quiet links", np.zeros(count - 1)), ("one link late", late)):
                value = float(of.step_s(float(window), delays, np.inf, even))
                found.append(_row("fetch_s", f"W = {window}, {name}", count, value, "simulated"))
    return found


def allreduce_of(rates: Rates, facts: Facts) -> Callable[[int], float]:
    """Ranks -> seconds of an exchange of gradients: latency by log2 R (assumed), bytes by the ring's formula."""
    measured = rates.scaling.message_s is not None and rates.scaling.byte_s is not None
    message_s = rates.scaling.message_s if measured else ASSUMED_NETWORK.message_s
    byte_s = rates.scaling.byte_s if measured else 1 / (ASSUMED_NETWORK.rank_bytes_s or 1.0)

    def seconds(ranks: int) -> float:
        if ranks == 1:
            return 0.0
        moved = 2 * facts.parameters * facts.itemsize * (ranks - 1) / ranks
        return (message_s or 0.0) * log2(ranks) + (byte_s or 0.0) * moved

    return seconds


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
    return float(found / max(len(ways(facts.config.model)), 1))


def _measured(facts: Facts, name: str, parts: int) -> PartitionMeasures | None:
    try:
        return facts.measured(make_partition(name, facts.graph, parts, hops=facts.reach, seed=facts.config.seed))
    except LabError:  # a partitioner is not installed, or does not support as many partitions
        return None


def _row(quantity: str, curve: str, ranks: int, value: float, kind: str) -> Row:
    return {"quantity": quantity, "curve": curve, "ranks": ranks, "value": value, "kind": kind}


RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
MOST_RANKS = 4096
QUICK_PARTS, MOST_PARTS = 16, 128  # partitions that are computed
QUICK_GROWN, GROWN = 2_000, 10_000  # snapshots of the grown sequence; the second is DyGNeX's
DELAY_S = 0.02  # delay of the slow link
PREDICTED = ("esdg", "adgnn-t", "pygt-dist", "flaredtdg")  # beside schedules of groups
MEASURED_TOO = ("epoch_s", "rank_bytes")
KINDS: Mapping[str, str] = MappingProxyType(
    {
        "counted": "on the graph, in computed partitions",
        "formula": "closed form: exact, a bound, or (hash beyond the computed partitions) an expectation",
        "simulated": "schedules of the graph's groups, or the feature-fetch model, without training",
        "predicted": "counts times rates fitted to runs, or assumed",
        "fitted": "a power of the ranks through the counted points (extrapolated)",
        "measured": "local runs on this graph and model",
    }
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WhatIf:
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
    def table(self) -> pd.DataFrame:
        """The rows as a frame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    @property
    def figure(self) -> Figure:
        """A panel for each quantity, ranks on a logarithmic axis."""
        return what_if_ranks_figure(self.rows, measured_ranks=self.measured_ranks, title=self.described)

    def summary(self) -> str:
        """The values at the most ranks, and their sources."""
        return "\n".join([self.described + ".", *_ends(self.rows), *self.notes])

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{text(line)}</p>" for line in self.summary().split("\n"))
        kinds = "".join(f"<li><b>{text(name)}</b>: {text(words)}</li>" for name, words in KINDS.items())
        frame = self.table.pivot_table(index=["quantity", "curve"], columns="ranks", values="value", aggfunc="median")
        table = frame.to_html(float_format=lambda value: f"{value:.4g}", na_rep="")
        return f"{said}{table}<ul style='font-size:90%'>{kinds}</ul>"


def what_if(
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
        graph: data, or a name of ``lab.datasets()``.
        ranks: numbers of ranks.
        model: name in the catalogue.
        hidden: H.
        layers: of the model.
        runs: local runs, or folders of them; by default all of ``runs_dir``.
        runs_dir: folder of runs to use and to show; None for none.
        network: topology for predictions; by default as between the measured ranks.
        quick: compute up to 16 partitions, and grow the sequence of groups to 2,000 snapshots, in seconds; else
            128 and DyGNeX's 10,000, with its greedy scheduler: a minute or more.
        options: of systems, model and data, by name, as in ``lab.advise``.

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
    rows = _schedules(work.groups, facts, rates, counts, quick=quick)
    most = QUICK_PARTS if quick else MOST_PARTS
    left: list[str] = []
    for name in PREDICTED:
        try:
            mine = config.replace(system=name, **_of(name, model, options))
        except LabError as error:
            left.append(f"{name}: {error}")
            continue
        upto = [count for count in counts if count <= most or name == "esdg"]
        rows += _predicted([mine.replace(ranks=count, parts=count) for count in upto], graph, rates, network, left)
    divided, growth = partition_rows(facts, counts, most)
    rows += snapshot_rows(facts, counts) + divided + gradient_rows(facts, counts)
    rows += fetch_rows(products, counts, DELAY_S)
    same = [run for run in found.runs if _same(run, facts)]
    rows += _measured_what_if(same)
    notes = [*_notes(rates, growth, same, found.runs), *left]
    return WhatIf(tuple(rows), MappingProxyType(growth), rates, _to_dict(facts, counts, work.groups), tuple(notes))


def _checked(graph: Any, ranks: Any) -> tuple[int, ...]:
    if not isinstance(graph, DynamicGraph | str):
        raise ConfigError(f"what_if() got {shortened(graph)}: give a graph or a name from lab.datasets().")
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
    read = {name for each in data for room in catalogue.option_owners(system, each, model).values() for name in room}
    return {name: value for name, value in options.items() if name in read or name in ("seed", "protocol")}


def _to_dict(facts: Facts, counts: Sequence[int], groups: GroupWork) -> str:
    graph, config = facts.graph, facts.config
    return (
        f"{graph.name} on {min(counts)} to {max(counts):,} ranks: {graph.num_nodes:,} nodes, "
        f"{len(facts.train)} snapshots trained, {len(groups.passes)} groups; {config.model}, hidden {config.hidden}"
    )


def _schedules(
    groups: GroupWork, facts: Facts, rates: Rates, counts: Sequence[int], *, quick: bool
) -> list[dict[str, Any]]:
    """Epoch seconds of this graph's groups, and efficiency on a longer sequence that grows like it."""
    alone_s, exchange = groups.passes @ rates.scaling.compute, allreduce_of(rates, facts)
    rows = []
    for count in counts:
        rows += schedule_rows(alone_s * rates.factor("psg", count), (count,), exchange, quantity="epoch_s")
    config = facts.config
    grown = grown_times(
        alone_s * rates.factor("psg", 2),
        QUICK_GROWN if quick else GROWN,
        window=config["group_window"],
        seed=config.seed,
    )
    schedulers = GROWN_SCHEDULERS if quick else (*GROWN_SCHEDULERS, "dygnex_greedy")
    return rows + schedule_rows(grown, counts, exchange, quantity="efficiency", schedulers=schedulers)


def _predicted(
    configs: Sequence[RunConfig], graph: DynamicGraph, rates: Rates, network: NetworkCosts | None, left: list[str]
) -> list[dict[str, Any]]:
    """Epoch seconds of a system on growing numbers of ranks, while graph and model allow; ``left`` gives the reason."""
    found = []
    for config in configs:
        try:
            described = rates.predict(*count_work(config, graph), network)
        except LabError as error:
            left.append(
                f"{config.system} on {config.ranks} rank{'s' * (config.ranks > 1)} and more is not shown: {error}"
            )
            break
        found.append(
            {
                "quantity": "epoch_s",
                "curve": config.system,
                "ranks": config.ranks,
                "value": described.epoch_s,
                "kind": "predicted",
            }
        )
    return found


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
            found.append(
                {"quantity": quantity, "curve": run.system, "ranks": run.work.ranks, "value": value, "kind": "measured"}
            )
    return found


def _notes(
    rates: Rates, growth: Mapping[str, GrowthCurve], mine: Sequence[MeasuredRun], runs: Sequence[MeasuredRun]
) -> list[str]:
    notes = []
    if not rates.runs:
        notes.append(
            "Seconds rest on assumed rates, because there is no local run: only the shape of the curves is meaningful."
        )
    else:
        off = summed(learn_errors(runs), "epoch_s")
        known = "" if off is None else f", which predicted each other to {percent(off[0])} (worst {percent(off[1])})"
        assumed = f"; {', '.join(sorted(rates.assumed))} assumed" if rates.assumed else ""
        notes.append(f"Seconds rest on rates of {rates.runs} run{'s' * (rates.runs > 1)}{known}{assumed}.")
        notes += [f"Of the rates: {note}." for note in rates.notes]
    seen = max((run.work.ranks for run in mine), default=0)
    notes.append(
        f"Measured locally: {len(mine)} run{'s' * (len(mine) > 1)} on up to {seen} rank{'s' * (seen > 1)}; beyond, "
        "nothing is."
        if seen
        else "There is no local run of this graph and model, so no point is measured."
    )
    for name, each in growth.items():
        notes.append(
            f"{name.partition(': ')[2]}: extrapolated as ranks to the power {each.power:.2f}, within "
            f"{percent(each.error)} of the counted points it was fitted to."
        )
    notes.append(
        "Latency of an exchange is assumed to grow with log2 of the ranks. Features: constants of another "
        "cluster (four nodes, ogbn-products), with equal requests to every owner."
    )
    return notes


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
            f"{sent[least]['kind']}) and most for {most} ({format_bytes(sent[most]['value'])}, "
            f"{sent[most]['kind']})."
        )
    return said
