"""Observations of a feature pipeline: records of a run, and measurements for policies."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.energy.readers import Reading
from dtdg_lab.systems.feature_cache.pipeline.fetching import OwnerReply
from dtdg_lab.systems.feature_cache.pipeline.resolving import ResolveFacts
from dtdg_lab.systems.feature_cache.pipeline.window_schedule import Lookahead, Swap


@dataclass(frozen=True, slots=True)
class FetchTime:
    """One RPC.

    Attributes:
        owner: the part that replied.
        purpose: ``miss`` for rows of a batch, ``bulk`` for rows of a cache.
        rows: number of rows.
        nbytes: bytes of request and reply.
        rtt_s: seconds until the last byte.
        step: step of the batch, or first step of the cache's window.
    """

    owner: int
    purpose: str
    rows: int
    nbytes: int
    rtt_s: float
    step: int


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step of training.

    Attributes:
        seconds: its duration.
        readings: energy that became known in it.
        step: its number.
        starts: True until the pipeline has been filled for the first time: till then it takes processors from training.
    """

    seconds: float
    readings: tuple[Reading, ...]
    step: int
    starts: bool


@dataclass(frozen=True, slots=True, eq=False)
class Boundary:
    """Observations between two swaps of the cache. Vectors are (P,), with 0 for the own part.

    Attributes:
        part: the part that owns the cache.
        parts: P.
        number: number of the window to decide.
        step: its first step, if it is not late.
        steps_left: steps of the epoch from ``step`` on.
        previous: the previous action; the nearest one if the window does not belong to an action.
        served: number of resolved batches.
        remote: (P,) rows of each part that the batches needed.
        hits: (P,) rows of these that the cache contained.
        resolve_s: total seconds of resolving them.
        fetches: RPCs, for batches and for caches.
        rebuild_s: seconds of building the cache that was just swapped in.
        decision_cpu_s: processor seconds of the last decision.
        late_steps: delay of its swap in steps.
        stepped: training steps that ended.
        lookahead: the sampled batches from ``step`` on.
        now: the next step to be resolved.
        early: True if links changed within the current window, which may be abandoned.
        pending: the action decided for the window after it, or the nearest one; -1 if ``early`` is False.
        left: remaining steps of the current window.
    """

    part: int
    parts: int
    number: int
    step: int
    steps_left: int
    previous: int
    served: int
    remote: NDArray[np.int64]
    hits: NDArray[np.int64]
    resolve_s: float
    fetches: tuple[FetchTime, ...]
    rebuild_s: float
    decision_cpu_s: float
    late_steps: int
    stepped: tuple[StepTime, ...]
    lookahead: Lookahead
    now: int = -1
    early: bool = False
    pending: int = -1
    left: int = 0


class ResolvedRow(NamedTuple):
    """A batch delivered to training: a row of the table ``resolved``, without step and epoch."""

    part: int
    window: int
    remote: int
    hits: list[int]
    misses: list[int]
    rpcs: int
    bytes: int
    resolve_s: float
    wait_s: float


class FetchRow(NamedTuple):
    """A fetch from an owner: a row of the table ``fetches``, without step and epoch."""

    part: int
    owner: int
    purpose: str
    rows: int
    bytes: int
    rtt_s: float


class CacheWindowRow(NamedTuple):
    """A cache that came into use: a row of the table ``windows``, without step and epoch."""

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
    by_owner: list[int]
    rebuild_s: float
    exposed_s: float


Rows = dict[str, list[tuple[Any, ...]]]  # table -> its rows
MOST = 4096  # number of measurements kept if no policy reads them


class FeatureRecorder:
    """Thread-safe recorder of one part's observations.

    Args:
        part: the part's index.
        parts: P.
    """

    def __init__(self, part: int, parts: int) -> None:
        self._part, self._parts, self._lock = part, parts, threading.Lock()
        self._rows: Rows = {"resolved": [], "fetches": [], "windows": []}
        self._fetches: deque[FetchTime] = deque(maxlen=MOST)
        self._stepped: deque[StepTime] = deque(maxlen=MOST)
        self._clear()

    def fetched(self, replies: Sequence[OwnerReply], purpose: str, step: int) -> None:
        """Record RPCs; ``purpose`` is miss or bulk."""
        with self._lock:
            for reply in replies:
                rows = len(reply.rows)
                self._rows["fetches"].append(
                    FetchRow(self._part, reply.owner, purpose, rows, reply.nbytes, reply.rtt_s)
                )
                self._fetches.append(FetchTime(reply.owner, purpose, rows, reply.nbytes, reply.rtt_s, step))

    def resolved(self, facts: ResolveFacts) -> None:
        """Record that a batch got its features."""
        with self._lock:
            self._served += 1
            self._remote += facts.hits + facts.misses
            self._hits += facts.hits
            self._resolve_s += facts.resolve_s

    def delivered(self, facts: ResolveFacts) -> None:
        """Record that a batch was delivered to training."""
        row = ResolvedRow(
            part=self._part,
            window=facts.window,
            remote=facts.remote,
            hits=facts.hits.tolist(),
            misses=facts.misses.tolist(),
            rpcs=facts.rpcs,
            bytes=facts.nbytes,
            resolve_s=facts.resolve_s,
            wait_s=facts.wait_s,
        )
        with self._lock:
            self._rows["resolved"].append(row)

    def swapped(self, swap: Swap, exposed_s: float) -> None:
        """Record that a cache came into use, and the seconds that training waited for it."""
        built, plan = swap.built, swap.built.plan
        row = CacheWindowRow(
            part=self._part,
            number=plan.number,
            first=swap.due,
            length=plan.length,
            late_steps=swap.late_steps,
            policy=plan.policy,
            action=plan.action,
            biased=plan.biased,
            capacity=plan.capacity,
            held=len(built.cache),
            copied=built.copied,
            fetched=built.fetched,
            by_owner=built.by_owner.tolist(),
            rebuild_s=built.rebuild_s,
            exposed_s=exposed_s,
        )
        with self._lock:
            self._rows["windows"].append(row)

    def stepped(self, time: StepTime) -> None:
        """Record that a training step ended."""
        with self._lock:
            self._stepped.append(time)

    def observed(self) -> dict[str, Any]:
        """Return the fields of :class:`Boundary` that are counted, since the last call."""
        with self._lock:
            counts = {
                "served": self._served,
                "remote": self._remote,
                "hits": self._hits,
                "resolve_s": self._resolve_s,
                "fetches": tuple(self._fetches),
                "stepped": tuple(self._stepped),
            }
            self._fetches.clear()
            self._stepped.clear()
            self._clear()
        return counts

    def take_rows(self) -> Rows:
        """Return new rows of each table, without step and epoch."""
        with self._lock:
            rows, self._rows = self._rows, {table: [] for table in self._rows}
        return rows

    def _clear(self) -> None:
        self._served, self._resolve_s = 0, 0.0
        self._remote, self._hits = (np.zeros(self._parts, dtype=np.int64) for _ in range(2))
