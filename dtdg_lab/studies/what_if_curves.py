"""What each part of the picture over ranks comes to: counted as far as can be, then continued and marked as such.

Rows are plain: ``quantity``, ``curve``, ``ranks``, ``value`` and ``kind``: ``counted`` on the graph, ``formula``
(closed, exact or an expectation), ``simulated``, ``predicted`` (counts times rates), or ``fitted`` (a power of the
ranks through what was counted).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.control.cache_costs import CacheCosts
from dtdg_lab.core.errors import LabError
from dtdg_lab.core.model_pulls import ways
from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.partition.make import make_partition
from dtdg_lab.partition.measures import PartitionMeasures
from dtdg_lab.partition.snapshot_legs import legs, sent
from dtdg_lab.partition.snapshot_volume import redistributed
from dtdg_lab.scheduling.growth import group_times, snapshot_times
from dtdg_lab.scheduling.simulate import simulate
from dtdg_lab.studies.advise_facts import Facts
from dtdg_lab.studies.advise_rates import ASSUMED_NETWORK, Rates

Row = dict[str, Any]
PARTITIONERS = ("hash", "metis")
SCHEDULERS = ("psg", "longest_first", "dygnex_greedy")
GROWN_SCHEDULERS = ("psg", "longest_first", "fold")  # quick ones, for thousands of groups
WINDOWS = (1, 16, 64)
LEAST_POINTS = 3  # counted, before growth is fitted
LEAST_VERTICES = 8  # of a part that is really made


@dataclass(frozen=True, slots=True)
class Growth:
    """c P^a through counted points, in logarithms.

    Attributes:
        scale: c.
        power: a.
        error: largest relative distance of a counted point from it.
    """

    scale: float
    power: float
    error: float

    @classmethod
    def through(cls, points: Mapping[int, float]) -> Growth | None:
        """Fitted to the larger half of the points, at least three; None where there are not as many above 0."""
        known = [(parts, value) for parts, value in sorted(points.items()) if value > 0 and parts > 1]
        known = known[-max(LEAST_POINTS, len(known) // 2) :]
        if len(known) < LEAST_POINTS:
            return None
        parts, values = (np.array(each, float) for each in zip(*known, strict=True))
        power, scale = np.polyfit(np.log(parts), np.log(values), 1)
        told = np.exp(scale) * parts**power
        return cls(float(np.exp(scale)), float(power), float(np.abs(told / values - 1).max()))

    def at(self, parts: int) -> float:
        """Its value for P parts."""
        return float(self.scale * parts**self.power)


def schedule_rows(
    times_s: NDArray[np.float64], ranks: Sequence[int], allreduce_s: Callable[[int], float], *, quantity: str,
    schedulers: Sequence[str] = SCHEDULERS,
) -> list[Row]:  # fmt: skip
    """What schedulers make of group times, and what none can beat.

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
        told = simulate(times_s, ranks=(count,), schedulers=schedulers, allreduce_s=allreduce_s(count))
        found += [_row(quantity, each.scheduler, count, float(getattr(each, name)), "simulated") for each in told]
        found.append(_row(quantity, "bound of schedules", count, float(getattr(told[0], bound)), "formula"))
    return found


def grown_times(times_s: NDArray[np.float64], snapshots: int, *, window: int, seed: int) -> NDArray[np.float64]:
    """Seconds of each group of a longer sequence that grows as this one, with 5 % of noise: (snapshots - window + 1,).

    Args:
        times_s: (K,) seconds of this sequence's groups, in order of time.
        snapshots: T of the longer one.
        window: snapshots of a group.
        seed: of the noise.

    References: DyGNeX section 5.4 simulates 10,000 snapshots; that the growth is linear, from this sequence's first to
    its last, and the noise are ours.
    """
    first, last = float(times_s[0]), float(times_s[-1])
    if len(times_s) > 1:  # a line through all, for one group may be an odd one
        slope, start = np.polyfit(np.arange(len(times_s)), times_s, 1)
        least = float(times_s.min())
        first, last = max(float(start), least), max(float(start + slope * (len(times_s) - 1)), least)
    each = snapshot_times(snapshots, "linear", last=last / first, seed=seed)
    return group_times(each, window=window) * (first / window)


def snapshot_rows(facts: Facts, ranks: Sequence[int]) -> list[Row]:
    """Bytes that the busiest rank sends in a step of ESDG: exact, as far as there are vertices for the ranks.

    References: ESDG section 6.4: S N (R - 1) / R rows a leg, whatever the graph.
    """
    config = facts.config
    pairs = facts.outputs if config["task"] == "link" else 0
    try:
        some = sent(
            legs(config.model, facts.graph.num_features, config.hidden, config.layers, pairs=pairs,
                 **facts.model_options)
        )  # fmt: skip
    except LabError:  # the model's memory cannot be divided by snapshots
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


def partition_rows(facts: Facts, ranks: Sequence[int], most: int) -> tuple[list[Row], dict[str, Growth]]:
    """Halo bytes that a rank sends in a step, and rows of copies that a part holds, by partitioner.

    Partitions are made up to ``most`` parts. Beyond, halo rows of ``hash`` are those expected of parts dealt at random,
    and the others grow as a power of the parts, at most as hash's do; copies grow likewise, at most to all vertices.

    Returns:
        Rows, and the growth of each continued curve, by ``quantity: curve``.
    """
    rows: list[Row] = []
    grown: dict[str, Growth] = {}
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
            told = [(count, halo.get(count, expected[count]), "counted" if count in halo else "formula")
                    for count in ranks]  # fmt: skip
        else:
            told, growth = _continued(halo, ranks, limits)
            if growth is not None:
                grown[f"rank_bytes: halo rows, {name}"] = growth
        rows += [_row("rank_bytes", f"halo rows, {name}", count, value * width / count, kind)
                 for count, value, kind in told]  # fmt: skip
        more, growth = _continued(copies, ranks, {count: alone * (1 - 1 / count) for count in ranks})
        if growth is not None:
            grown[f"held_rows: own and copies, {name}"] = growth
        rows += [_row("held_rows", f"own and copies, {name}", count, value + alone / count, kind)
                 for count, value, kind in more]  # fmt: skip
    rows += [_row("held_rows", "own alone", count, alone / count, "formula") for count in ranks]
    return rows, grown


def expected_halo(snapshots: Sequence[Snapshot], parts: int, asked: Sequence[str] = ("in",)) -> float:
    """Halo rows of all parts over snapshots, expected where vertices are dealt at random; ours.

    A vertex from which d others pull is sent to each of the P - 1 other parts that has one of these:
    (P - 1) (1 - (1 - 1 / P)^d).

    Args:
        snapshots: of N vertices.
        parts: P.
        asked: along which edges vertices pull.
    """
    if parts == 1:
        return 0.0
    total = 0.0
    for snapshot in snapshots:
        pulled = {
            "in": np.bincount(snapshot.indices, minlength=snapshot.num_nodes), "out": np.diff(snapshot.indptr),
        }  # fmt: skip
        for way in asked:
            total += float(((parts - 1) * -np.expm1(pulled[way] * np.log1p(-1 / parts))).sum())
    return total


def fetch_rows(costs: Callable[[int], CacheCosts], ranks: Sequence[int], delay_s: float) -> list[Row]:
    """Seconds of a step that fetches features, by window of the cache: quiet links, and one that is late.

    Args:
        costs: parts -> constants of what steps cost.
        ranks: numbers of ranks, each with a part.
        delay_s: seconds that one owner's replies are late where one is.

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
) -> tuple[list[tuple[int, float, str]], Growth | None]:
    """Counted points, and growth beyond the last of them, never below it nor above a limit."""
    growth = Growth.through(points)
    told = []
    last = max(points, default=0)
    for count in ranks:
        if count in points:
            told.append((count, points[count], "counted"))
        elif count == 1:
            told.append((1, 0.0, "counted"))
        elif growth is not None and count > last:
            told.append((count, min(max(growth.at(count), points[last]), limits[count]), "fitted"))
    return told, growth if any(kind == "fitted" for _, _, kind in told) else None


def _row_bytes(facts: Facts) -> float:
    """Bytes that a halo row takes in one step, forward and back, of all pulls of the layers that go one way."""
    found = sum(pull.width * facts.itemsize * (1 + pull.learned) for pull in facts.pulled)
    return float(found / max(len(ways(facts.config.model)), 1))


def _measured(facts: Facts, name: str, parts: int) -> PartitionMeasures | None:
    try:
        return facts.measured(make_partition(name, facts.graph, parts, hops=facts.reach, seed=facts.config.seed))
    except LabError:  # a partitioner that is not here, or cannot make as many parts
        return None


def _row(quantity: str, curve: str, ranks: int, value: float, kind: str) -> Row:
    return {"quantity": quantity, "curve": curve, "ranks": ranks, "value": value, "kind": kind}
