"""What charts and tiles of fetched features read from a run's tables: links, caches, hits, waiting and replies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dtdg_lab.config import catalogue
from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.rows import Array, Rows, as_objects
from dtdg_lab.systems.feature_cache.events import CACHELESS, Congestion, FeatureFacts

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables

STACKED_PARTS = 8  # parts up to which caches are drawn by whose rows they hold
RECENT = 100  # steps of numbers "now"


# The run.


def fetches_features(tables: RunTables) -> bool:
    """Return whether the run's system fetches features of other parts."""
    return "features" in catalogue.system(tables.system).parts


def part_count(tables: RunTables) -> int:
    """Return P."""
    facts = tables.event(FeatureFacts)
    return tables.config.parts if facts is None else facts.parts


def policy_in_use(tables: RunTables) -> str:
    """Return the cache policy in use; before the first step, the one that is set."""
    facts = tables.event(FeatureFacts)
    return str(tables.setting("cache_policy")) if facts is None else facts.policy


def has_cache(tables: RunTables) -> bool:
    """Return whether the policy in use keeps caches."""
    return policy_in_use(tables) not in CACHELESS


def first_step(tables: RunTables) -> int:
    """Return the step from which numbers of parts mean the present parts."""

    def find() -> int:
        plans, since = tables.typed(FeatureFacts), 0
        for (record, facts), (_, before) in zip(plans[:0:-1], plans[-2::-1], strict=True):
            if facts is None or before is None or (facts.parts, facts.rows) != (before.parts, before.rows):
                since = int(record["step"] or 0)
                break
        return since

    return tables.once("features since", find)


def recent_rows(tables: RunTables, table: str, steps: int | None = None) -> Rows:
    """Return the exact rows of a table of the present parts, of the newest steps or all in memory."""
    rows, first = tables.rows(table), first_step(tables)
    if steps is not None:
        first = max(first, newest_step(tables) + 1 - steps)
    return rows.where(rows["step"] >= first)


def newest_step(tables: RunTables) -> int:
    """Return the newest step that any rank has done; -1 before there is one."""
    return max(tables.steps.values(), default=-1)


# Links.


@dataclass(frozen=True, slots=True, eq=False)
class LinkHistory:
    """How slow each owner's replies were made, from one step to the next change.

    Attributes:
        steps: (C,) at which a state begins.
        delay_ms: (C, P) added to the slowest link of each owner.
        mbit: (C, P) rate of its narrowest link; infinite where none is limited.
    """

    steps: Array
    delay_ms: Array
    mbit: Array

    @property
    def is_slow(self) -> Array:
        """(C,) whether a link is late or limited."""
        return np.any((self.delay_ms > 0) | np.isfinite(self.mbit), axis=1)

    def ends(self, last: float) -> Array:
        """(C,) where each state ends; the newest one at ``last``."""
        return np.append(self.steps[1:], last)[: len(self.steps)]

    def between(self, first: float, last: float) -> LinkHistory:
        """Return the states that hold between two steps."""
        chosen = (self.ends(last) > first) & (self.steps < last)
        return LinkHistory(self.steps[chosen], self.delay_ms[chosen], self.mbit[chosen])

    def delay_at(self, step: float, owner: int) -> float:
        """Return the delay of an owner at a step, in milliseconds."""
        place = int(np.searchsorted(self.steps, step, side="right")) - 1
        return float(self.delay_ms[place, owner]) if place >= 0 and owner < self.delay_ms.shape[1] else 0.0

    def stretches(self, values: Array, first: float, last: float) -> Iterator[tuple[float, float, float]]:
        """Yield begin, end and value between two steps, of states in a row with the same value."""
        ends = self.ends(last)
        bounds = [0, *(np.flatnonzero(values[1:] != values[:-1]) + 1).tolist(), len(values)] if len(values) else []
        for begin, until in pairwise(bounds):
            left, right = max(first, float(self.steps[begin])), min(last, float(ends[until - 1]))
            if right > left:
                yield left, right, float(values[begin])

    def stairs(self, values: Array, first: float, last: float) -> tuple[list[float], list[float]]:
        """Return corners of a line over the values between two steps; none where all are 0."""
        x: list[float] = []
        y: list[float] = []
        for begin, end, value in self.stretches(values, first, last):
            x += [begin, end]
            y += [value, value]
        return (x, y) if any(y) else ([], [])


def link_history(tables: RunTables) -> LinkHistory:
    """Return the states of the links; of several changes at one step, the last one holds."""

    def read() -> LinkHistory:
        parts = part_count(tables)
        plans: dict[int, Congestion] = {}  # equal events are one object, and a pattern repeats few
        states: dict[int, int] = {}
        for record, links in tables.typed(Congestion):
            if links is not None and links.parts == parts:
                plans[id(links)] = links
                states[int(record["step"] or 0)] = id(links)
        delays = np.array([links.owner_delays_ms for links in plans.values()], np.float64).reshape(-1, parts)
        rates = np.array([links.owner_mbit for links in plans.values()], np.float64).reshape(-1, parts)
        place = {key: number for number, key in enumerate(plans)}
        of_state = np.array([place[key] for key in states.values()], np.int64)
        limits = np.where(np.isnan(rates), np.inf, rates)
        return LinkHistory(np.array([*states], np.float64), delays[of_state], limits[of_state])

    return tables.once("link history", read)


# Caches: which rows each part holds, from swap to swap.


def _by_owner(rows: Rows) -> Rows:
    """Return a row for each owner whose rows a cache can hold, of few parts."""
    owned = [*map(list, rows["by_owner"].tolist())] if len(rows) else []
    owned = [counts if len(counts) <= STACKED_PARTS else [] for counts in owned]
    repeats = np.array([len(counts) for counts in owned], np.int64)
    columns = {
        name: np.repeat(rows[name], repeats) for name in ("rank", "attempt", "step", "part", "length", "capacity")
    }
    columns["late"] = np.repeat(rows["late_steps"] > 0, repeats).astype(np.float64)
    columns["owner"] = np.array([owner for counts in owned for owner in range(len(counts))], np.int64)
    columns["rows"] = np.array([count for counts in owned for count in counts], np.float64)
    return Rows.of(columns)


HELD = Rollup(
    "windows",
    by=("part", "owner"),
    sums=("rows", "capacity", "length", "late"),
    points=37,  # of each part and owner
    prepare=_by_owner,
)
LENGTHS = Rollup("windows", by=("part",), sums=("length",))


@dataclass(frozen=True, slots=True, eq=False)
class Caches:
    """Caches in order of part and step, each from its swap to the next; of old ones, means over some steps.

    Attributes:
        part: (n,)
        begin: (n,) step of the swap.
        end: (n,) step of the next one; of the newest cache, the step after the newest.
        length: (n,) W.
        late_steps: (n,) by which the swap was late; of means 1 where most were late.
        biased: (n,) part that is preferred; -1 for none.
        capacity: (n,) rows that may be held.
        by_owner: (n,) of the rows held by owner, (P,) each.
        are_means: whether they are means over some steps.
    """

    part: Array
    begin: Array
    end: Array
    length: Array
    late_steps: Array
    biased: Array
    capacity: Array
    by_owner: Array
    are_means: bool = False

    def __len__(self) -> int:
        return len(self.part)

    def held(self, parts: int) -> Array:
        """(n, P) rows held, by owner."""
        held = np.zeros((len(self), parts))
        for place, counts in enumerate(self.by_owner.tolist()):
            held[place, : len(counts)] = counts[:parts]
        return held

    def between(self, first: float, last: float) -> Caches:
        """Return the caches that serve between two steps, cut at the first."""
        chosen = (self.end > first) & (self.begin < last)
        cut = {name: getattr(self, name)[chosen] for name in _COLUMNS}
        cut["begin"] = np.maximum(cut["begin"], first)
        return replace(self, **cut)


_COLUMNS = tuple(field.name for field in fields(Caches) if field.name != "are_means")


def recent_caches(tables: RunTables) -> Caches:
    """Return the caches in memory."""

    def read() -> Caches:
        rows = recent_rows(tables, "windows")
        rows = rows.sort("part", "step") if len(rows) else rows
        part, begin = rows["part"].astype(np.int64), rows["step"].astype(np.float64)
        numbers = [rows[name].astype(np.float64) for name in ("length", "late_steps", "biased", "capacity")]
        length, late_steps, biased, capacity = numbers
        end = _ends(part, begin, _last_end(tables))
        return Caches(part, begin, end, length, late_steps, biased, capacity, rows["by_owner"])

    return tables.once("recent caches", read)


def mean_caches(tables: RunTables) -> Caches:
    """Return the caches of the whole run, in the mean over the swaps in each bucket of steps."""

    def read() -> Caches:
        rows, parts, width = tables.rollup(HELD), part_count(tables), tables.width(HELD)
        rows = (
            rows.where((rows["bucket"] >= first_step(tables) // width) & (rows["owner"] < parts)) if len(rows) else rows
        )
        if not len(rows):
            return recent_caches(tables)
        keys, first, place = np.unique(
            np.stack([rows["part"], rows["bucket"]]), axis=1, return_index=True, return_inverse=True
        )
        held = np.zeros((keys.shape[1], parts))
        held[place.ravel(), rows["owner"].astype(np.int64)] = rows["rows"] / rows["rows_known"]
        one = rows.where(first)
        part, begin = keys[0].astype(np.int64), keys[1] * width
        length, capacity, late = (one[name] / one[f"{name}_known"] for name in ("length", "capacity", "late"))
        unknown = np.full(len(part), -1.0)
        end = _ends(part, begin, _last_end(tables))
        by_owner = as_objects([*held])
        return Caches(part, begin, end, length, np.round(late), unknown, capacity, by_owner, are_means=True)

    return tables.once("mean caches", read)


def _last_end(tables: RunTables) -> float:
    """Return the step up to which the newest caches serve: now, or where a policy without caches came into use."""
    end = newest_step(tables) + 1
    for record, facts in reversed(tables.typed(FeatureFacts)):
        if facts is None or facts.cached:
            break
        end = int(record["step"] or 0)
    return end


def _ends(part: Array, begin: Array, last: float) -> Array:
    """Return where each cache ends: at the next of its part."""
    ends = np.append(begin[1:], last).astype(np.float64)
    ends[np.append(part[1:] != part[:-1], True)] = last
    return ends


def mean_lengths(tables: RunTables) -> tuple[Array, Array, Array]:
    """Return part, step and mean W of the swaps in each bucket of the whole run, in order of part and step."""

    def read() -> tuple[Array, Array, Array]:
        rows, width = tables.rollup(LENGTHS), tables.width(LENGTHS)
        rows = rows.where((rows["bucket"] >= first_step(tables) // width) & (rows["part"] < part_count(tables)))
        rows = rows.sort("part", "bucket")
        return rows["part"].astype(np.int64), rows["bucket"] * width, rows["length"] / rows["length_known"]

    return tables.once("mean lengths", read)


# Batches: rows that were in a cache, and how long training stood still for the others.


def _with_hits(rows: Rows) -> Rows:
    """Return rows of ``resolved`` with the hits of all owners together."""
    names = ("rank", "attempt", "step", "part", "remote", "bytes", "wait_s")
    hits = np.array([sum(counts or ()) for counts in rows["hits"].tolist()] if len(rows) else [], np.float64)
    return Rows.of({**{name: rows[name] for name in names}, "hit": hits})


RESOLVED = Rollup("resolved", by=("part",), sums=("remote", "hit", "wait_s"), prepare=_with_hits)


@dataclass(frozen=True, slots=True, eq=False)
class BatchSums:
    """What batches asked for in the whole run, in stretches of steps.

    Attributes:
        begin: (n,) first step of each stretch.
        width: steps of a stretch.
        remote: (n,) rows of other parts that were asked for.
        hit: (n,) those of them that were in a cache.
    """

    begin: Array
    width: float
    remote: Array
    hit: Array

    def __len__(self) -> int:
        return len(self.begin)

    def rates(self, most: int) -> tuple[Array, Array]:
        """Return the middles of at most so many stretches, and the share of rows that were in a cache in each."""
        merged = max(1, -(-len(self) // most))
        starts = np.arange(0, len(self), merged)
        if not len(starts):
            return self.begin, self.remote
        remote, hit = (np.add.reduceat(values, starts) for values in (self.remote, self.hit))
        ends = np.append(self.begin[starts[1:]], self.begin[-1] + self.width)
        return ((self.begin[starts] + ends) / 2)[remote > 0], (hit / np.maximum(remote, 1))[remote > 0]


def _batches(tables: RunTables) -> Rows:
    """Return the sums of batches of the present parts."""
    rows, width = tables.rollup(RESOLVED), tables.width(RESOLVED)
    return rows.where((rows["bucket"] >= first_step(tables) // width) & (rows["part"] < part_count(tables)))


def batch_sums(tables: RunTables) -> BatchSums:
    """Return the sums of the whole run."""

    def read() -> BatchSums:
        rows, width = _batches(tables), tables.width(RESOLVED)
        buckets, place = np.unique(rows["bucket"], return_inverse=True)
        remote, hit = (np.bincount(place, rows[name], len(buckets)) for name in ("remote", "hit"))
        return BatchSums(buckets * width, width, remote, hit)

    return tables.once("batch sums", read)


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """How long training waited for rows, in stretches of steps.

    Attributes:
        begin: (n,) first step of each stretch.
        width: steps of a stretch.
        mean_s: (n,) seconds in a step, mean of the parts.
        worst_s: (n,) likewise of the part that waited most.
    """

    begin: Array
    width: float
    mean_s: Array
    worst_s: Array

    def __len__(self) -> int:
        return len(self.begin)


def waits(tables: RunTables) -> Waits:
    """Return how long training waited in the whole run."""

    def read() -> Waits:
        rows = _batches(tables)
        return _waits(rows, rows["bucket"].astype(np.int64), rows["wait_s_known"], tables.width(RESOLVED))

    return tables.once("waits", read)


def recent_waits(tables: RunTables, steps: int, width: int) -> Waits:
    """Return how long training waited in the newest steps, in stretches of ``width``."""

    def read() -> Waits:
        rows = recent_rows(tables, "resolved", steps)
        return _waits(rows, rows["step"].astype(np.int64) // width, np.ones(len(rows)), width)

    return tables.once(("waits", steps, width), read)


def _waits(rows: Rows, buckets: Array, counts: Array, width: float) -> Waits:
    """Return means in each bucket of rows that are sums of ``counts`` batches each."""
    if not len(rows):
        return Waits(np.empty(0), width, np.empty(0), np.empty(0))
    first, parts = int(buckets.min()), rows["part"].astype(np.int64)
    shape = (int(parts.max()) + 1, int(buckets.max()) - first + 1)
    cells, size = parts * shape[1] + buckets - first, shape[0] * shape[1]
    wait_s, known = (np.bincount(cells, values, size).reshape(shape) for values in (rows["wait_s"], counts))
    some = np.flatnonzero(np.bincount(cells, minlength=size).reshape(shape).any(axis=0))
    mean_s = wait_s.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    worst_s = (wait_s / np.maximum(known, 1)).max(axis=0)
    return Waits((some + first) * width, width, mean_s[some], worst_s[some])


def hits_by_step(tables: RunTables) -> tuple[Array, Array, Array]:
    """Return the steps in memory, and of each the remote rows and those that were in a cache."""

    def read() -> tuple[Array, Array, Array]:
        rows = _with_hits(recent_rows(tables, "resolved"))
        steps, place = np.unique(rows["step"], return_inverse=True)
        return steps, np.bincount(place, rows["remote"], len(steps)), np.bincount(place, rows["hit"], len(steps))

    return tables.once("hits by step", read)


def hit_rate(tables: RunTables, first: float, last: float) -> float | None:
    """Return the share of remote rows that were in a cache, of the steps from ``first`` up to before ``last``."""
    steps, remote, hit = hits_by_step(tables)
    chosen = (steps >= first) & (steps < last)
    total = float(remote[chosen].sum())
    return float(hit[chosen].sum()) / total if total else None


def hit_rate_now(tables: RunTables) -> float | None:
    """Return the hit rate of the last 100 steps."""

    def rate() -> float | None:
        rows = _with_hits(recent_rows(tables, "resolved", RECENT))
        total = float(rows["remote"].sum())
        return float(rows["hit"].sum()) / total if total else None

    return tables.once("hit rate now", rate)


def wait_now_s(tables: RunTables) -> float | None:
    """Return the seconds that training waits in a step, the mean of parts and of the last 100 steps."""
    rows = recent_rows(tables, "resolved", RECENT)
    return float(np.nanmean(rows["wait_s"])) if len(rows) else None


def late_wait_share(tables: RunTables) -> float:
    """Return the share of the waiting of the last 100 steps that late caches added, above that of other steps."""

    def share() -> float:
        rows, caches = recent_rows(tables, "resolved", RECENT), recent_rows(tables, "windows")
        wait_s = np.nan_to_num(rows["wait_s"].astype(np.float64))
        if not wait_s.sum():
            return 0.0
        late = np.zeros(len(rows), bool)
        for cache in caches.where(caches["late_steps"] > 0).to_dicts("part", "first", "late_steps"):
            is_of_part, since_due = rows["part"] == cache["part"], rows["step"] - cache["first"]
            late |= is_of_part & (since_due >= 0) & (since_due < cache["late_steps"])
        usual_s = float(wait_s[~late].mean()) if not late.all() else 0.0
        return float((wait_s[late] - usual_s).sum() / wait_s.sum())

    return tables.once("late wait share", share)


def windows_now(tables: RunTables) -> tuple[float, float] | None:
    """Return the least and the largest W of the parts' newest caches."""
    caches = recent_caches(tables)
    if not len(caches):
        return None
    newest = caches.length[np.append(caches.part[1:] != caches.part[:-1], True)]
    return float(newest.min()), float(newest.max())


# Replies: how long owners take, and what controllers take their delay for.


def medians(keys: Array, values: Array) -> tuple[Array, Array]:
    """Return the distinct keys, (k, n) of columns, in order, and the median of the values of each."""
    if not len(values):
        return keys[:, :0], values
    order = np.lexsort([values, *keys[::-1]])
    keys, values = keys[:, order], values[order]
    begins = np.flatnonzero(np.append(True, (np.diff(keys, axis=1) != 0).any(axis=0)))
    ends = np.append(begins[1:], len(values))
    middle = (values[(begins + ends - 1) // 2] + values[(begins + ends) // 2]) / 2
    return keys[:, begins], middle


def reply_times(tables: RunTables, width: int) -> tuple[Array, Array, Array]:
    """Return owner, first step and median seconds of the replies to batches, in stretches of ``width`` steps."""

    def read() -> tuple[Array, Array, Array]:
        rows = recent_rows(tables, "fetches")
        rows = rows.where(rows["purpose"] == "miss")
        keys = np.stack([rows["owner"].astype(np.int64), rows["step"].astype(np.int64) // width])
        (owner, bucket), seconds = medians(keys, rows["rtt_s"])
        return owner, bucket * width, seconds

    return tables.once(("reply times", width), read)


def estimated_delays(tables: RunTables) -> tuple[Array, Array, Array]:
    """Return owner, step and milliseconds that controllers take the delay of an owner for, the median of the parts."""

    def read() -> tuple[Array, Array, Array]:
        rows = recent_rows(tables, "cache_decisions")
        triples = [
            (owner + (owner >= part), step, late)
            for step, part, delays in zip(
                rows["step"].tolist(), rows["part"].tolist(), rows["delays_ms"].tolist(), strict=True
            )
            for owner, late in enumerate(delays or ())
            if late is not None
        ]
        columns = np.array(triples, np.float64).reshape(-1, 3).T
        (owner, step), late_ms = medians(columns[:2], columns[2])
        return owner.astype(np.int64), step, late_ms

    return tables.once("estimated delays", read)
