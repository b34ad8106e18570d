"""Caches of a run: which rows each part holds, from swap to swap."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from dtdg_lab.records.rollups import Rollup
from dtdg_lab.records.rows import Array, Rows, as_objects
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.feature_cache.charts.step_chart import (
    STACKED_PARTS,
    first_step,
    newest_step,
    part_count,
    recent_rows,
)
from dtdg_lab.systems.feature_cache.events import FeatureFacts


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
        """Return (n, P) rows held, by owner."""
        rows_held = np.zeros((len(self), parts))
        for positions, counts in enumerate(self.by_owner.tolist()):
            rows_held[positions, : len(counts)] = counts[:parts]
        return rows_held

    def between(self, first: float, last: float) -> Caches:
        """Return the caches that serve between two steps, cut at the first."""
        in_span = (self.end > first) & (self.begin < last)
        cut = {name: getattr(self, name)[in_span] for name in _COLUMNS}
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
        if len(rows):
            rows = rows.where((rows["bucket"] >= first_step(tables) // width) & (rows["owner"] < parts))
        if not len(rows):
            return recent_caches(tables)
        keys, first, positions = np.unique(
            np.stack([rows["part"], rows["bucket"]]), axis=1, return_index=True, return_inverse=True
        )
        rows_held = np.zeros((keys.shape[1], parts))
        rows_held[positions.ravel(), rows["owner"].astype(np.int64)] = rows["rows"] / rows["rows_known"]
        one = rows.where(first)
        part, begin = keys[0].astype(np.int64), keys[1] * width
        length, capacity, late = (one[name] / one[f"{name}_known"] for name in ("length", "capacity", "late"))
        unknown = np.full(len(part), -1.0)
        end = _ends(part, begin, _last_end(tables))
        by_owner = as_objects([*rows_held])
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


def windows_now(tables: RunTables) -> tuple[float, float] | None:
    """Return the least and the largest W of the parts' newest caches."""
    caches = recent_caches(tables)
    if not len(caches):
        return None
    newest = caches.length[np.append(caches.part[1:] != caches.part[:-1], True)]
    return float(newest.min()), float(newest.max())
