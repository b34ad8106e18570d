"""What the stages of a feature path note down: rows for the records, and facts to decide by."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.feature_path import OwnerReply
from dtdg_lab.features.boundary import FetchTime, StepTime
from dtdg_lab.features.resolver import ResolveFacts
from dtdg_lab.features.window_schedule import Swap

Row = tuple[Any, ...]
MOST = 4096  # facts that are kept where nobody asks for them


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """What was counted since somebody asked last; see :class:`dtdg_lab.features.boundary.Boundary`."""

    served: int
    remote: NDArray[np.int64]
    hits: NDArray[np.int64]
    resolve_s: float
    fetches: tuple[FetchTime, ...]
    stepped: tuple[StepTime, ...]


class FeatureNotes:
    """Notes of one part; any thread may write and read.

    Args:
        part: its number.
        parts: P.
    """

    def __init__(self, part: int, parts: int) -> None:
        self._part, self._parts, self._lock = part, parts, threading.Lock()
        self._rows: dict[str, list[Row]] = {"resolved": [], "fetches": [], "windows": []}
        self._fetches: deque[FetchTime] = deque(maxlen=MOST)
        self._stepped: deque[StepTime] = deque(maxlen=MOST)
        self._clear()

    def fetched(self, replies: Sequence[OwnerReply], purpose: str, step: int) -> None:
        """RPCs were made; ``purpose`` is miss or bulk."""
        with self._lock:
            for reply in replies:
                rows = len(reply.rows)
                self._rows["fetches"].append((self._part, reply.owner, purpose, rows, reply.nbytes, reply.rtt_s))
                self._fetches.append(FetchTime(reply.owner, purpose, rows, reply.nbytes, reply.rtt_s, step))

    def resolved(self, facts: ResolveFacts) -> None:
        """A batch has its features."""
        with self._lock:
            self._served += 1
            self._remote += facts.hits + facts.misses
            self._hits += facts.hits
            self._resolve_s += facts.resolve_s

    def handed(self, facts: ResolveFacts) -> None:
        """A batch was handed to training."""
        row = (
            self._part, facts.window, facts.remote, facts.hits.tolist(), facts.misses.tolist(), facts.rpcs,
            facts.nbytes, facts.resolve_s, facts.wait_s,
        )  # fmt: skip
        with self._lock:
            self._rows["resolved"].append(row)

    def swapped(self, swap: Swap, exposed_s: float) -> None:
        """A cache began to serve, for which training stood still so long."""
        built, plan = swap.built, swap.built.plan
        row = (
            self._part, plan.number, swap.due, plan.length, swap.late_steps, plan.policy, plan.action, plan.biased,
            plan.capacity, len(built.cache), built.copied, built.fetched, built.by_owner.tolist(), built.rebuild_s,
            exposed_s,
        )  # fmt: skip
        with self._lock:
            self._rows["windows"].append(row)

    def stepped(self, time: StepTime) -> None:
        """A step of training ended."""
        with self._lock:
            self._stepped.append(time)

    def observed(self) -> Observed:
        """What was counted since the last call."""
        with self._lock:
            seen = Observed(
                self._served, self._remote, self._hits, self._resolve_s, tuple(self._fetches), tuple(self._stepped)
            )
            self._fetches.clear()
            self._stepped.clear()
            self._clear()
        return seen

    def taken(self) -> dict[str, list[Row]]:
        """Rows noted since the last call, of each table, without step and epoch."""
        with self._lock:
            rows, self._rows = self._rows, {table: [] for table in self._rows}
        return rows

    def _clear(self) -> None:
        self._served, self._resolve_s = 0, 0.0
        self._remote, self._hits = (np.zeros(self._parts, dtype=np.int64) for _ in range(2))
