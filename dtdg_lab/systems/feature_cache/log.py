"""Logged rows of feature requests, caches and decisions by part, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from dtdg_lab.core.records import R, read_fields
from dtdg_lab.visualization.series import PartLog, drop_lowest, highest

_LINKS = 12_000  # fetches kept of all links together, but of each at least:
_LEAST = 60


@dataclass(frozen=True, slots=True)
class ResolvedStep:
    """How the rows of one part's batch were come by.

    Attributes:
        step: updates of the model before it.
        epoch: from 0.
        part: number of the part.
        window: number of the cache window that served it; -1 where none did.
        remote: distinct rows of other parts that were asked for.
        hits: of these, by owner, those that the cache had; (P,).
        misses: by owner, those that were fetched; (P,).
        rpcs: calls for them.
        bytes: that these moved.
        resolve_s: seconds that the resolver took.
        wait_s: seconds that training stood still for it.
    """

    step: int
    epoch: int
    part: int
    window: int
    remote: int
    hits: tuple[int, ...]
    misses: tuple[int, ...]
    rpcs: int
    bytes: float
    resolve_s: float
    wait_s: float

    @property
    def hit(self) -> int:
        """Rows that the cache had."""
        return sum(self.hits)


@dataclass(frozen=True, slots=True)
class Fetched:
    """One call: rows of one owner, for a batch (``miss``) or for a cache (``bulk``)."""

    step: int
    part: int
    owner: int
    purpose: str
    rows: int
    bytes: float
    rtt_s: float


@dataclass(frozen=True, slots=True)
class CacheWindow:
    """One cache of one part, from where it was swapped in.

    Attributes:
        step: of the swap.
        part: number of the part.
        number: of the window, from 0.
        first: step that it was built for.
        length: W, steps.
        late_steps: steps by which the swap was late.
        policy: the policy that chose it.
        action: that was chosen; -1 where it was none of the policy's actions.
        biased: part that was preferred; -1 for none.
        capacity: rows at most.
        held: rows.
        copied: of these, those that the cache before had.
        fetched: those that were fetched.
        by_owner: rows held of each part; (P,).
        rebuild_s: seconds of the builder.
        exposed_s: of these, seconds that training stood still.
    """

    step: int
    part: int
    number: int
    first: int
    length: int
    late_steps: int
    policy: str
    action: int
    biased: int
    capacity: int
    held: int
    copied: int
    fetched: int
    by_owner: tuple[int, ...]
    rebuild_s: float
    exposed_s: float


@dataclass(frozen=True, slots=True)
class CacheChoice:
    """One decision of one part's controller.

    Attributes:
        step: updates of the model before it.
        part: number of the part.
        policy: the policy that decided.
        values: what each action was thought to be worth; None where that is not known; empty for no opinion.
        action: chosen.
        window: W that it means.
        biased: part that it prefers; -1 for none.
        epsilon: share of decisions that are drawn.
        greedy: whether the best value was taken.
        reward: of the action before; None where there was none.
        delays_ms: estimate for each other part, in ascending order; (P - 1,).
    """

    step: int
    part: int
    policy: str
    values: tuple[float | None, ...]
    action: int
    window: int
    biased: int
    epsilon: float
    greedy: bool
    reward: float | None
    delays_ms: tuple[float, ...]

    def delay_ms(self, owner: int) -> float | None:
        """What was estimated for one owner; None for the part itself, or where nothing was."""
        place = owner - (owner > self.part)
        return self.delays_ms[place] if owner != self.part and 0 <= place < len(self.delays_ms) else None


class FeatureLog:
    """Rows of the tables ``resolved``, ``fetches``, ``windows`` and ``cache_decisions`` of the newest steps."""

    def __init__(self) -> None:
        self.resolved: PartLog[ResolvedStep] = PartLog()
        self.windows: PartLog[CacheWindow] = PartLog()
        self.choices: PartLog[CacheChoice] = PartLog()
        self._fetches: dict[str, PartLog[Fetched]] = {}  # by purpose
        self._links: set[tuple[int, int]] = set()

    def resolve(self, row: Mapping[str, Any], attempt: int) -> ResolvedStep:
        """Add one row of ``resolved``."""
        found = read_row(ResolvedStep, row)
        self.resolved.add(found.part, found.step, attempt, found)
        return found

    def fetch(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of ``fetches``."""
        fetched = read_row(Fetched, row)
        link = fetched.part, fetched.owner
        if link not in self._links:
            self._links.add(link)
            for known in self._fetches.values():
                known.limit(self._room)
        self._fetches.setdefault(fetched.purpose, PartLog(self._room)).add(link, fetched.step, attempt, fetched)

    @property
    def _room(self) -> int:
        return max(_LEAST, _LINKS // len(self._links))

    def window(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of ``windows``."""
        found = read_row(CacheWindow, row)
        self.windows.add(found.part, found.step, attempt, found)

    def choice(self, rank: int, row: Mapping[str, Any], attempt: int) -> None:
        """Add one row of ``cache_decisions``."""
        found = read_row(CacheChoice, {**row, "greedy": row["greedy"] in (None, True)})
        self.choices.add(found.part, found.step, attempt, found)

    def truncate(self, step: int, attempt: int) -> None:
        """Forget what an earlier attempt did from ``step`` on."""
        self.resolved.truncate(step, attempt)
        self.windows.truncate(step, attempt)
        for log in self._fetches.values():
            log.truncate(step, attempt)
        self.choices.truncate(step + 1, attempt)  # what was decided at it was made of the steps before

    def fetches(self, purpose: str, *, since: int = 0) -> list[Fetched]:
        """Calls for a purpose from step ``since`` on, in order of their steps."""
        log = self._fetches.get(purpose)
        found = [] if log is None else [each for rows in log.all(since=since).values() for each in rows]
        return sorted(found, key=lambda each: each.step)


_NONE = ("window", "action", "biased")  # columns in which nothing is -1; in others it is 0


def read_row(kind: type[R], row: Mapping[str, Any]) -> R:
    """One row of a table as ``kind``: each field from the column of its name, by its type."""
    return read_fields(kind, row, **{name: -(name in _NONE) for name in _numbers(kind) if row[name] is None})


@cache
def _numbers(kind: type[Any]) -> tuple[str, ...]:
    """The fields that hold a number."""
    return tuple(each.name for each in fields(kind) if each.type in ("int", "float"))


# Rows asked for and found in the cache, epoch by epoch, for runs of any length.


_EPOCHS = 4000  # epochs


@dataclass(slots=True)
class EpochHits:
    """What all parts asked for in one epoch, as far as it was logged.

    Attributes:
        first: step.
        last: step.
        remote: rows of other parts that were asked for.
        hit: of these, those that caches had.
        bytes: that the others moved.
        wait_s: seconds that training stood still for them.
    """

    first: int
    last: int
    remote: int = 0
    hit: int = 0
    bytes: float = 0.0
    wait_s: float = 0.0
    attempts: dict[int, int] = field(default_factory=dict)  # part -> attempt that logged it last

    @property
    def middle(self) -> float:
        """Where it is drawn, in steps."""
        return (self.first + self.last) / 2

    @property
    def rate(self) -> float | None:
        """Share of the rows that caches had; None where nothing was asked for."""
        return self.hit / self.remote if self.remote else None


class HitSums:
    """Sums by epoch over rows of ``resolved``; each part tells its steps in order, and again where it is resumed."""

    def __init__(self) -> None:
        self._epochs: dict[int, EpochHits] = {}
        self._described: dict[int, tuple[int, int]] = {}  # part -> attempt, newest step

    def add(self, row: ResolvedStep, attempt: int) -> None:
        """Add one row; a row logged twice counts once."""
        if (attempt, row.step) <= self._described.get(row.part, (-1, -1)):
            return
        self._described[row.part] = (attempt, row.step)
        self._count(row, attempt)
        drop_lowest(self._epochs, _EPOCHS)

    def _count(self, row: ResolvedStep, attempt: int) -> None:
        sums = self._epochs.setdefault(row.epoch, EpochHits(row.step, row.step))
        sums.first, sums.last = min(sums.first, row.step), max(sums.last, row.step)
        sums.remote += row.remote
        sums.hit += row.hit
        sums.bytes += row.bytes
        sums.wait_s += row.wait_s
        sums.attempts[row.part] = attempt

    def truncate(self, step: int, attempt: int, kept: Sequence[ResolvedStep]) -> None:
        """Forget epochs that an earlier attempt had not ended by ``step``, and count them again.

        Args:
            step: that a later attempt began at.
            attempt: its number.
            kept: rows that are still known; the epoch that is cut in two is counted from them.
        """
        cut = {
            epoch
            for epoch, sums in self._epochs.items()
            if sums.last >= step and any(each < attempt for each in sums.attempts.values())
        }
        for epoch in cut:
            del self._epochs[epoch]
        for row in sorted((row for row in kept if row.epoch in cut), key=lambda each: each.step):
            self._count(row, attempt - (row.step < step))
        self._described = {
            part: (its, newest if its >= attempt else min(newest, step - 1))
            for part, (its, newest) in self._described.items()
        }

    def epochs(self, *, since: int = 0) -> dict[int, EpochHits]:
        """By epoch, those that ended at step ``since`` or later."""
        known = highest(self._epochs, _EPOCHS)
        return {epoch: self._epochs[epoch] for epoch in known if self._epochs[epoch].last >= since}
