"""Batches of a run: hits in a cache, and how long training waited for the other rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.rows import Array, Rows
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.feature_cache.charts import captions
from dtdg_lab.systems.feature_cache.charts.step_chart import (
    RECENT,
    fetches_features,
    first_step,
    has_cache,
    newest_step,
    over_steps,
    part_count,
    recent_rows,
)
from dtdg_lab.visualization.changes.marks import change_marks
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions
from dtdg_lab.visualization.numbers import percent_text
from dtdg_lab.visualization.palette import series_colour
from dtdg_lab.visualization.traces import line

if TYPE_CHECKING:
    from dtdg_lab.visualization.chart import Figure


def _with_hits(rows: Rows) -> Rows:
    """Return rows of ``resolved`` with the hits of all owners together."""
    names = ("rank", "attempt", "step", "part", "remote", "bytes", "wait_s")
    hits = np.array([sum(counts or ()) for counts in rows["hits"].tolist()] if len(rows) else [], np.float64)
    return Rows.of({**{name: rows[name] for name in names}, "hit": hits})


RESOLVED = Rollup("resolved", by=("part",), sums=("remote", "hit", "wait_s"), prepare=_with_hits)


@dataclass(frozen=True, slots=True, eq=False)
class BatchSums:
    """Rows that batches requested in the whole run, in stretches of steps.

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

    def rates(self, max_points: int) -> tuple[Array, Array]:
        """Return the middles of at most so many stretches, and the share of rows that were in a cache in each."""
        merged = max(1, -(-len(self) // max_points))
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
        buckets, positions = np.unique(rows["bucket"], return_inverse=True)
        remote, hit = (np.bincount(positions, rows[name], len(buckets)) for name in ("remote", "hit"))
        return BatchSums(buckets * width, width, remote, hit)

    return tables.once("batch sums", read)


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """Seconds that training waited for rows, in stretches of steps.

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
    wait_s, batch_counts = (np.bincount(cells, values, size).reshape(shape) for values in (rows["wait_s"], counts))
    some = np.flatnonzero(np.bincount(cells, minlength=size).reshape(shape).any(axis=0))
    mean_s = wait_s.sum(axis=0) / np.maximum(batch_counts.sum(axis=0), 1)
    worst_s = (wait_s / np.maximum(batch_counts, 1)).max(axis=0)
    return Waits((some + first) * width, width, mean_s[some], worst_s[some])


def hits_by_step(tables: RunTables) -> tuple[Array, Array, Array]:
    """Return the steps in memory, and of each the remote rows and those that were in a cache."""

    def read() -> tuple[Array, Array, Array]:
        rows = _with_hits(recent_rows(tables, "resolved"))
        steps, positions = np.unique(rows["step"], return_inverse=True)
        return (
            steps,
            np.bincount(positions, rows["remote"], len(steps)),
            np.bincount(positions, rows["hit"], len(steps)),
        )

    return tables.once("hits by step", read)


def hit_rate(tables: RunTables, first: float, last: float) -> float | None:
    """Return the share of remote rows that were in a cache, of the steps from ``first`` up to before ``last``."""
    steps, remote, hit = hits_by_step(tables)
    in_span = (steps >= first) & (steps < last)
    total = float(remote[in_span].sum())
    return float(hit[in_span].sum()) / total if total else None


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


_HIT_POINTS = 100


def _hits_figure(tables: RunTables, options: ChartOptions) -> Figure:
    """Return the share of remote rows that were in a cache, over the whole run."""
    (middles, rates), end = batch_sums(tables).rates(_HIT_POINTS), newest_step(tables) + 1
    x, y = np.minimum(middles, end).round(1).tolist(), (100 * rates).round(2).tolist()
    data = [line("hit rate", x, y, series_colour(0), "about step %{x:.0f}: %{y:.1f}%<extra></extra>")] if x else []
    axis = {"range": [0, 103], "tickvals": [0, 50, 100]}
    begin = float(first_step(tables))
    return over_steps(data, tables, (begin, max(end, begin + 1)), "Cache hit rate", unit="% of remote rows", yaxis=axis)


def _hits_caption(tables: RunTables, options: ChartOptions) -> str:
    """Return the hit rate now, and before the newest change."""
    rate, end = hit_rate_now(tables), newest_step(tables) + 1
    if rate is None:
        return NOTHING_YET
    if not has_cache(tables):
        return captions.HIT_RATE_NO_CACHE
    changes = [mark for mark in change_marks(tables, "steps") if mark.number is not None and mark.position < end]
    if changes:
        newest = changes[-1]
        previous_rate = hit_rate(tables, newest.position - RECENT, newest.position)
        current_rate = hit_rate(tables, max(newest.position, end - RECENT), end)
        if previous_rate is not None and current_rate is not None:
            texts = {"rate": percent_text(current_rate), "before": percent_text(previous_rate)}
            return captions.HIT_RATE_CHANGED.format(number=newest.number, **texts)
    return captions.HIT_RATE.format(rate=percent_text(rate), steps=min(RECENT, end - first_step(tables)))


HITS = Chart(
    name="hit_rate",
    title="Cache hit rate",
    figure=_hits_figure,
    caption=_hits_caption,
    section="supporting",
    applies=fetches_features,
    rollups=(RESOLVED,),
    help="Share of the other parts' rows that batches found in a cache. Shaded: links are slowed down.",
)
