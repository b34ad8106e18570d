"""Features of a small world of parts, batches drawn from it, and owners that answer as a test wants."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.systems.feature_cache.pipeline.fetching import OwnerReply
from dtdg_lab.systems.feature_cache.pipeline.keys import KeySpace, OwnRows
from dtdg_lab.systems.feature_cache.policies.interface import CacheView, CacheViews

ROW_OVERHEAD = 8  # bytes of a key, in the owners' own count


@dataclass(frozen=True)
class Batch:
    keys: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes


class World:
    """Rows of all parts; row k begins with k, so that a row out of place shows."""

    def __init__(self, *, nodes: int = 300, parts: int = 3, snapshots: int = 2, features: int = 5, seed: int = 0):
        random = np.random.default_rng(seed)
        owner = random.integers(0, parts, nodes)
        owner[:parts] = np.arange(parts)
        self.space = KeySpace(owner, parts, snapshots)
        self.rows = random.random((self.space.size, features), dtype=np.float32)
        self.rows[:, 0] = np.arange(self.space.size)
        self.seed, self.asked = seed, list[int]()

    def own(self, part: int) -> OwnRows:
        return OwnRows(part, self.space, self.rows[self.space.of_part(part)])

    def batch(self, step: int) -> Batch:
        """40 keys in mixed order, low ones more often than others: pure in the step."""
        random = np.random.default_rng((self.seed, step))
        keys = np.unique((random.random(60) ** 3 * self.space.size).astype(np.int64))
        return Batch(random.permutation(keys)[:40])

    def sample(self, step: int) -> Batch:
        self.asked.append(step)
        return self.batch(step)

    def remote(self, step: int, part: int) -> NDArray[np.int64]:
        keys = self.batch(step).keys
        return keys[self.space.owners(keys) != part]


@dataclass
class Owners:
    """What fetchers ask: counts every RPC, and holds replies up as ``before`` says."""

    world: World
    before: Callable[[Mapping[int, NDArray[np.int64]]], None] = lambda wanted: None
    rpcs: int = 0
    rows: int = 0
    nbytes: int = 0
    opened: int = 0
    closed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self) -> Fetching:
        with self.lock:
            self.opened += 1
        return Fetching(self)


class Fetching:
    """One client of all owners."""

    def __init__(self, owners: Owners) -> None:
        self._owners, self.left = owners, threading.Event()

    def fetch(self, wanted: Mapping[int, NDArray[np.int64]]) -> dict[int, OwnerReply]:
        began, world = time.perf_counter(), self._owners.world
        self._owners.before(wanted)
        replies = {}
        for owner, keys in wanted.items():
            assert len(keys), "an owner was asked for nothing"
            assert (world.space.owners(keys) == owner).all(), "somebody else's rows were asked for"
            rows = world.rows[keys]
            replies[owner] = OwnerReply(
                owner, rows, time.perf_counter() - began, rows.nbytes + ROW_OVERHEAD * len(keys)
            )
        with self._owners.lock:
            self._owners.rpcs += len(wanted)
            self._owners.rows += sum(len(keys) for keys in wanted.values())
            self._owners.nbytes += sum(reply.nbytes for reply in replies.values())
        return replies

    def close(self) -> None:
        with self._owners.lock:
            self._owners.closed += not self.left.is_set()
            self.left.set()


def view_of(views: CacheViews, index: int) -> CacheView:
    """What a live policy would see of the run at an index of a simulation, without a forecast."""
    steps = (int(column[index]) for column in (views.steps, views.steps_left, views.previous))
    now = {"now": int(views.now[index]), "changes": int(views.changes[index])}
    return CacheView(views.states[index], views.delays_s[index], *steps, **now)
