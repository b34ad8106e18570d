"""Cache windows: their schedule, the keys ahead, and the builder that prefetches the next cache."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.feature_store import BIAS, WINDOWS, CacheActions, CacheDecision, OwnerReply
from dtdg_lab.systems.feature_cache.modes import FeaturePath
from dtdg_lab.systems.feature_cache.store import (
    FeatureCache,
    Fetch,
    KeySpace,
    fetch_into,
    hot_set,
    hottest_first,
    key_counts,
)

# A window of the cache: how long it is, and who gets how much.


@dataclass(frozen=True, slots=True, eq=False)
class WindowPlan:
    """A window and who gets how much of its cache.

    Attributes:
        number: of the window, from 0.
        first: its first step.
        length: W, steps whose batches are looked at.
        shares: (P - 1,) of the cache for each other part, ascending.
        capacity: rows.
        policy: what decided.
        action: see :class:`dtdg_lab.core.feature_store.CacheActions`; -1 where it is none of them.
        biased: part that is preferred; -1 for none.
    """

    number: int
    first: int
    length: int
    shares: NDArray[np.float64]
    capacity: int
    policy: str
    action: int = -1
    biased: int = -1

    def nearest_action(self, part: int) -> int:
        """Its action, or the nearest one, of the part the part that owns the cache."""
        if self.action >= 0:
            return self.action
        place = None if self.biased < 0 else self.biased - (self.biased > part)
        return nearest_action(self.length, place, len(self.shares) + 1)


@dataclass(frozen=True, slots=True)
class Epochs:
    """Where epochs begin, and where the run ends.

    Attributes:
        steps: of an epoch.
        first: first step of one of them.
        stop: step that will never be asked for; None: no end is known.
    """

    steps: int
    first: int = 0
    stop: int | None = None

    def left(self, step: int) -> int:
        """Steps of the epoch from a step on."""
        return self.steps - (step - self.first) % self.steps

    def most(self, step: int, length: int) -> int:
        """A length, cut where the run ends."""
        return length if self.stop is None else min(length, self.stop - step)


def plan_window(
    number: int, first: int, path: FeaturePath, *, part: int, parts: int, epochs: Epochs, decision: CacheDecision | None
) -> WindowPlan:
    """The plan of a window as its path has it, or as a policy decided.

    Args:
        number: of the window.
        first: its first step.
        path: what holds where nothing is decided.
        part: the part that owns the cache.
        parts: P.
        epochs: lengths of epochs; mode ``epoch_hot`` lasts to the end of one.
        decision: the policy's.

    Raises:
        PlanError: the action does not exist.
    """
    others = [other for other in range(parts) if other != part]
    if decision is not None and others:
        actions = CacheActions(parts)
        place = actions.biased(decision.action)
        return WindowPlan(
            number=number,
            first=first,
            length=epochs.most(first, actions.window(decision.action)),
            shares=actions.shares(decision.action),
            capacity=path.capacity,
            policy=decision.policy,
            action=decision.action,
            biased=-1 if place is None else others[place],
        )
    length = epochs.left(first) if path.mode == "epoch_hot" else path.window
    biased = others.index(path.biased) if path.mode == "windows" and path.biased in others else None
    shares = np.full(len(others), 1 / max(len(others), 1))
    if biased is not None and len(others) > 1:
        shares[:] = (1 - BIAS) / (len(others) - 1)
        shares[biased] = BIAS
    known = path.mode == "windows" and path.window in WINDOWS and others
    return WindowPlan(
        number=number,
        first=first,
        length=epochs.most(first, length),
        shares=shares,
        capacity=path.capacity,
        policy=path.policy,
        action=CacheActions(parts).action(path.window, biased) if known else -1,
        biased=-1 if biased is None else others[biased],
    )


def nearest_action(window: int, place: int | None, parts: int) -> int:
    """The action of the allocation whose window comes nearest by ratio; ``place`` as in :class:`CacheActions`."""
    return CacheActions(parts).action(min(WINDOWS, key=lambda known: abs(math.log(known / window))), place)


# How a cache is made: counted, chosen, copied from the one that serves, and the rest fetched in bulk.


@dataclass(frozen=True, slots=True, eq=False)
class BuiltCache:
    """A cache that is ready.

    Attributes:
        plan: what it was built for.
        cache: the rows.
        copied: rows taken over from the cache that served.
        fetched: rows fetched.
        by_owner: (P,) rows held of each part.
        rebuild_s: seconds it took, without waiting for batches to be sampled.
    """

    plan: WindowPlan
    cache: FeatureCache
    copied: int
    fetched: int
    by_owner: NDArray[np.int64]
    rebuild_s: float


class CacheBuilder:
    """Builds the caches of a part.

    Args:
        part: its number.
        space: of all keys.
        features: F.

    References: GreenDyGNN section V-A, stage 2.
    """

    def __init__(self, part: int, space: KeySpace, features: int) -> None:
        self._part, self._space, self._features = part, space, features

    def build(
        self, plan: WindowPlan, asked: Sequence[NDArray[np.int64]], fetch: Fetch, serving: FeatureCache | None = None
    ) -> tuple[BuiltCache, list[OwnerReply]]:
        """The cache of a window, and what each owner sent for it.

        Args:
            plan: the window.
            asked: remote keys of each of its batches, distinct within a batch.
            fetch: asks other parts: once for all, one RPC for each.
            serving: the cache whose rows may be taken over.

        Raises:
            RunFailedError: an owner did not answer, or returned the wrong rows.
        """
        began = time.perf_counter()
        keys, counts = key_counts(asked, self._space.size)
        owners = self._space.owners(keys)
        others = owners - (owners > self._part)
        hot = np.sort(hot_set(hottest_first(counts), others, plan.shares, plan.capacity))
        keys, owners = keys[hot], owners[hot]
        if serving is not None and len(serving):
            slots = serving.find(keys)
            rows = serving.rows[np.maximum(slots, 0)]  # in one pass; rows that are not held are overwritten below
            places = np.flatnonzero(slots < 0)
        else:
            rows, places = np.empty((len(keys), self._features), dtype=np.float32), np.arange(len(keys))
        replies = fetch_into(rows, places, keys[places], owners[places], fetch)
        built = BuiltCache(
            plan=plan,
            cache=FeatureCache(keys, rows, size=self._space.size),
            copied=len(keys) - len(places),
            fetched=len(places),
            by_owner=np.bincount(owners, minlength=self._space.parts),
            rebuild_s=time.perf_counter() - began,
        )
        return built, replies


# What the next batches will ask for, and what a cache of any window and allocation would leave to fetch.


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """What a window and an allocation would come to; vectors have a place for each of the P - 1 other parts.

    Attributes:
        steps: that were counted: those of the window, or fewer where not all are sampled yet.
        asked: rows that a step asks of each part, on average.
        missed: of these, rows that the cache would not hold.
        fetched: rows that the rebuild would fetch.
        copied: rows that it would take over from the cache that serves.
    """

    steps: int
    asked: NDArray[np.float64]
    missed: NDArray[np.float64]
    fetched: NDArray[np.float64]
    copied: int


@dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """Distinct keys (U,) of some batches: how often asked for, whose, the hottest first, and which are not held."""

    counts: NDArray[np.int64]
    owners: NDArray[np.integer]
    order: NDArray[np.int64]
    new: NDArray[np.bool_]


class Lookahead:
    """Batches that are sampled already, counted when somebody asks.

    Args:
        first: step of the first of them.
        asked: remote keys of each, distinct within a batch.
        space: of all keys.
        part: whose batches they are.
        capacity: rows of the cache.
        serving: the cache that serves now.
    """

    def __init__(
        self,
        first: int,
        asked: Sequence[NDArray[np.int64]],
        space: KeySpace,
        *,
        part: int,
        capacity: int,
        serving: FeatureCache | None,
    ) -> None:
        self.first, self.capacity = first, capacity
        self._asked, self._space, self._part, self._serving = tuple(asked), space, part, serving
        self._counted: dict[int, _Counted] = {}
        self._known: dict[tuple[int, bytes], Outlook] = {}

    @property
    def steps(self) -> int:
        """How many batches are sampled already; a longer window is judged by these alone."""
        return len(self._asked)

    def outlook(self, window: int, shares: NDArray[np.float64]) -> Outlook:
        """What would come of W steps from ``first`` with shares (P - 1,) of the cache.

        With no batch sampled yet, everything is 0.
        """
        steps = min(window, self.steps)
        asked = steps, np.asarray(shares, dtype=np.float64).tobytes()
        if asked not in self._known:
            self._known[asked] = self._look(steps, shares)
        return self._known[asked]

    def _look(self, steps: int, shares: NDArray[np.float64]) -> Outlook:
        others = self._space.parts - 1
        if not steps:
            return Outlook(0, np.zeros(others), np.zeros(others), np.zeros(others), 0)
        if steps not in self._counted:
            self._counted[steps] = self._count(steps)
        of = self._counted[steps]
        hot = hot_set(of.order, of.owners, shares, self.capacity)
        owners = of.owners[hot]
        asked = np.bincount(of.owners, weights=of.counts, minlength=others)
        served = np.bincount(owners, weights=of.counts[hot], minlength=others)
        fetched = np.bincount(owners, weights=of.new[hot], minlength=others).astype(np.float64)
        return Outlook(steps, asked / steps, (asked - served) / steps, fetched, len(hot) - int(fetched.sum()))

    def _count(self, steps: int) -> _Counted:
        keys, counts = key_counts(self._asked[:steps], self._space.size)
        owners = self._space.owners(keys)
        new = np.ones(len(keys), dtype=bool) if self._serving is None else self._serving.find(keys) < 0
        return _Counted(counts, owners - (owners > self._part), hottest_first(counts), new)


# Which cache serves which step, and which is to be built next. No threads here: the caller holds a lock.


@dataclass(frozen=True, slots=True)
class Order:
    """A cache to be built.

    Attributes:
        number: of its window.
        first: step from which it should serve.
        decided: whether the policy is asked; it is not for the first window of a run.
        plans: how often the path had changed; what was ordered before a change is of no use after it.
        early: whether links have changed, so that the window which serves may be abandoned for it.
        serving: number of the window that may be abandoned.
    """

    number: int
    first: int
    decided: bool
    plans: int
    early: bool = False
    serving: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class Swap:
    """A cache that began to serve.

    Attributes:
        built: the cache and its facts.
        due: step from which it should have served.
        late_steps: by which it came late.
    """

    built: BuiltCache
    due: int
    late_steps: int


class WindowSchedule:
    """The windows of one part's cache.

    The cache of the next window is ordered where one is swapped in, and swapped in where the window that serves ends;
    if it is not ready then, the old one serves on. A window lasts W steps from its swap; with one cache for each
    epoch, to the epoch's end.

    Args:
        epochs: lengths of epochs.

    Attributes:
        serving: the cache that serves; None without one.
        order: what is to be built; None while nothing is, or a builder is at it.
        ends: step from which the next cache should serve.

    References: GreenDyGNN section V-A, stage 2, and algorithm 2.
    Differs from the paper: the thread that reads the cache swaps it, since batches are resolved ahead of training.
    """

    def __init__(self, epochs: Epochs) -> None:
        self._epochs, self._plans, self._numbers = epochs, 0, 0
        self._pending: BuiltCache | None = None
        self.serving: BuiltCache | None = None
        self.order: Order | None = None
        self.ends = 0

    def begin(self, step: int, path: FeaturePath, *, first: bool) -> None:
        """Plan anew from a step on; what serves goes on until the new cache is there.

        Args:
            step: the next to be resolved.
            path: how to plan.
            first: whether a run begins: nothing is known to decide by.
        """
        self._plans += 1
        self._pending = self.order = None
        if not path.caches:
            self.serving = None
            return
        self._ask(step, decided=path.decides and not first)

    def current(self, order: Order) -> bool:
        """Whether what was ordered is still wanted."""
        if order.early and (self.serving is None or self.serving.plan.number != order.serving):
            return False
        return order.plans == self._plans

    def reconsider(self, step: int) -> None:
        """Order a cache to take the place of the next window's, from a step on, where links have changed.

        Nothing is ordered where the next window is not decided yet, or begins within two steps anyway. The policy may
        keep to what it had decided.
        """
        if self.serving is None or self.order is not None or self.ends - step < 2:
            return
        if self._epochs.stop is None or self.ends < self._epochs.stop:
            number = self._numbers - 1
            self.order = Order(number, step, True, self._plans, early=True, serving=self.serving.plan.number)

    @property
    def pending(self) -> BuiltCache | None:
        """The next window's cache, where it is built."""
        return self._pending

    def offer(self, order: Order, built: BuiltCache) -> None:
        """A cache is ready; dropped if it is no longer wanted. An early one is due at once."""
        if self.current(order):
            self._pending = built
            if order.early:
                self.ends = min(self.ends, built.plan.first)

    @property
    def ready(self) -> bool:
        """Whether there is a cache, serving or about to."""
        return self.serving is not None or self._pending is not None

    def turn(self, step: int, path: FeaturePath) -> Swap | None:
        """Swap, if a cache is ready and due at a step that is now to be resolved."""
        if self._pending is None or step < self.ends:
            return None
        built, self._pending = self._pending, None
        self.serving, due = built, self.ends
        begins = built.plan.first if path.mode == "epoch_hot" else step
        self._ask(max(begins + built.plan.length, step + 1), decided=path.decides)
        return Swap(built, due, step - due)

    def _ask(self, first: int, *, decided: bool) -> None:
        self.ends = first
        if self._epochs.stop is None or first < self._epochs.stop:
            self.order = Order(self._numbers, first, decided, self._plans)
            self._numbers += 1
