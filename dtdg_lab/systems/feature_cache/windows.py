"""Cache windows: their schedule, lookahead, and the builder that prefetches the next cache."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.systems.feature_cache import store
from dtdg_lab.systems.feature_cache.actions import BIAS, WINDOWS, CacheActions, CacheDecision, FeaturePath, OwnerReply

# A window of the cache: its length, and the shares of the other parts.


@dataclass(frozen=True, slots=True, eq=False)
class WindowPlan:
    """A window and the shares of its cache.

    Attributes:
        number: of the window, from 0.
        first: its first step.
        length: W, number of steps whose batches are counted.
        shares: (P - 1,) of the cache for each other part, ascending.
        capacity: rows.
        policy: name of the policy that decided.
        action: see :class:`dtdg_lab.systems.feature_cache.actions.CacheActions`; -1 if it is none of them.
        biased: preferred part; -1 for none.
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
        """Its action, or the nearest one, for the part that owns the cache."""
        if self.action >= 0:
            return self.action
        position = None if self.biased < 0 else self.biased - (self.biased > part)
        return nearest_action(self.length, position, len(self.shares) + 1)


@dataclass(frozen=True, slots=True)
class Epochs:
    """Boundaries of epochs, and the end of the run.

    Attributes:
        steps: of an epoch.
        first: first step of some epoch.
        stop: first step after the run; None if unknown.
    """

    steps: int
    first: int = 0
    stop: int | None = None

    def left(self, step: int) -> int:
        """Number of steps of the epoch from a step on."""
        return self.steps - (step - self.first) % self.steps

    def most(self, step: int, length: int) -> int:
        """A length, limited by the end of the run."""
        return length if self.stop is None else min(length, self.stop - step)


def plan_window(
    number: int, first: int, path: FeaturePath, *, part: int, parts: int, epochs: Epochs, decision: CacheDecision | None
) -> WindowPlan:
    """The plan of a window by the settings, or by a policy's decision.

    Args:
        number: of the window.
        first: its first step.
        path: settings used without a decision.
        part: the part that owns the cache.
        parts: P.
        epochs: lengths of epochs; in mode ``epoch_hot`` a window lasts to the end of an epoch.
        decision: of the policy.

    Raises:
        PlanError: the action does not exist.
    """
    others = [other for other in range(parts) if other != part]
    if decision is not None and others:
        actions = CacheActions(parts)
        position = actions.biased(decision.action)
        return WindowPlan(
            number=number,
            first=first,
            length=epochs.most(first, actions.window(decision.action)),
            shares=actions.shares(decision.action),
            capacity=path.capacity,
            policy=decision.policy,
            action=decision.action,
            biased=-1 if position is None else others[position],
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


def nearest_action(window: int, position: int | None, parts: int) -> int:
    """The action of the allocation whose window is nearest by ratio; ``position`` as in :class:`CacheActions`."""
    return CacheActions(parts).action(min(WINDOWS, key=lambda known: abs(math.log(known / window))), position)


# Building a cache: count, select, copy from the current cache, and fetch the rest in bulk.


@dataclass(frozen=True, slots=True, eq=False)
class BuiltCache:
    """A finished cache.

    Attributes:
        plan: its window.
        cache: the rows.
        copied: rows copied from the previous cache.
        fetched: rows fetched.
        by_owner: (P,) rows of each part.
        rebuild_s: seconds of building, without waiting for sampled batches.
    """

    plan: WindowPlan
    cache: store.FeatureCache
    copied: int
    fetched: int
    by_owner: NDArray[np.int64]
    rebuild_s: float


class CacheBuilder:
    """Builds the caches of a part.

    Args:
        part: its index.
        space: of all keys.
        features: F.

    References: GreenDyGNN section V-A, stage 2.
    """

    def __init__(self, part: int, space: store.KeySpace, features: int) -> None:
        self._part, self._space, self._features = part, space, features

    def build(
        self,
        plan: WindowPlan,
        asked: Sequence[NDArray[np.int64]],
        fetch: store.Fetch,
        serving: store.FeatureCache | None = None,
    ) -> tuple[BuiltCache, list[OwnerReply]]:
        """Build the cache of a window; also returns the replies of the owners.

        Args:
            plan: the window.
            asked: remote keys of each of its batches, distinct within a batch.
            fetch: requests rows from other parts: one RPC each, all at once.
            serving: the current cache, whose rows may be copied.

        Raises:
            RunFailedError: an owner did not answer, or returned the wrong rows.
        """
        began = time.perf_counter()
        keys, counts = store.key_counts(asked, self._space.size)
        owners = self._space.owners(keys)
        others = owners - (owners > self._part)
        hot = np.sort(store.hot_set(store.hottest_first(counts), others, plan.shares, plan.capacity))
        keys, owners = keys[hot], owners[hot]
        if serving is not None and len(serving):
            slots = serving.find(keys)
            rows = serving.rows[np.maximum(slots, 0)]  # in one pass; rows that are missing are overwritten below
            indices = np.flatnonzero(slots < 0)
        else:
            rows, indices = np.empty((len(keys), self._features), dtype=np.float32), np.arange(len(keys))
        replies = store.fetch_into(rows, indices, keys[indices], owners[indices], fetch)
        built = BuiltCache(
            plan=plan,
            cache=store.FeatureCache(keys, rows, size=self._space.size),
            copied=len(keys) - len(indices),
            fetched=len(indices),
            by_owner=np.bincount(owners, minlength=self._space.parts),
            rebuild_s=time.perf_counter() - began,
        )
        return built, replies


# Remote keys of the next batches, and the misses that a cache of any window and allocation would leave.


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """Predicted counts of a window and an allocation; vectors have an element for each of the P - 1 other parts.

    Attributes:
        steps: counted steps: those of the window, or fewer if not all are sampled yet.
        asked: rows per step requested from each part, on average.
        missed: of these, rows that the cache would not contain.
        fetched: rows that the rebuild would fetch.
        copied: rows that it would copy from the current cache.
    """

    steps: int
    asked: NDArray[np.float64]
    missed: NDArray[np.float64]
    fetched: NDArray[np.float64]
    copied: int


@dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """Distinct keys (U,) of some batches: counts, owners, the hottest first, and which are not in the cache."""

    counts: NDArray[np.int64]
    owners: NDArray[np.integer]
    order: NDArray[np.int64]
    new: NDArray[np.bool_]


class Lookahead:
    """Batches that are sampled already, counted on demand.

    Args:
        first: step of the first of them.
        asked: remote keys of each, distinct within a batch.
        space: of all keys.
        part: the part that trains them.
        capacity: rows of the cache.
        serving: the current cache.
    """

    def __init__(
        self,
        first: int,
        asked: Sequence[NDArray[np.int64]],
        space: store.KeySpace,
        *,
        part: int,
        capacity: int,
        serving: store.FeatureCache | None,
    ) -> None:
        self.first, self.capacity = first, capacity
        self._asked, self._space, self._part, self._serving = tuple(asked), space, part, serving
        self._counted: dict[int, _Counted] = {}
        self._known: dict[tuple[int, bytes], Outlook] = {}

    @property
    def steps(self) -> int:
        """Number of sampled batches; a longer window is evaluated on these only."""
        return len(self._asked)

    def outlook(self, window: int, shares: NDArray[np.float64]) -> Outlook:
        """Predicted counts of W steps from ``first`` with shares (P - 1,) of the cache.

        All are 0 if no batch is sampled yet.
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
        hot = store.hot_set(of.order, of.owners, shares, self.capacity)
        owners = of.owners[hot]
        asked = np.bincount(of.owners, weights=of.counts, minlength=others)
        served = np.bincount(owners, weights=of.counts[hot], minlength=others)
        fetched = np.bincount(owners, weights=of.new[hot], minlength=others).astype(np.float64)
        return Outlook(steps, asked / steps, (asked - served) / steps, fetched, len(hot) - int(fetched.sum()))

    def _count(self, steps: int) -> _Counted:
        keys, counts = store.key_counts(self._asked[:steps], self._space.size)
        owners = self._space.owners(keys)
        new = np.ones(len(keys), dtype=bool) if self._serving is None else self._serving.find(keys) < 0
        return _Counted(counts, owners - (owners > self._part), store.hottest_first(counts), new)


# The cache of each step, and the next cache to build. Not thread-safe: the caller holds a lock.


@dataclass(frozen=True, slots=True)
class Order:
    """A request to build a cache.

    Attributes:
        number: of its window.
        first: first step of the window.
        decided: whether the policy decides; it does not for the first window of a run.
        plans: version of the settings; requests of an older version are dropped.
        early: whether links have changed, so that the current window may be abandoned.
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
    """A cache that came into use.

    Attributes:
        built: the cache and its metadata.
        due: step at which it should have come into use.
        late_steps: delay in steps.
    """

    built: BuiltCache
    due: int
    late_steps: int


class WindowSchedule:
    """The windows of one part's cache.

    The cache of the next window is requested when a cache is swapped in, and swapped in at the end of the current
    window. If it is not ready then, the old one stays in use. A window lasts W steps from its swap; with one cache per
    epoch, to the epoch's end.

    Args:
        epochs: lengths of epochs.

    Attributes:
        serving: the current cache; None without one.
        pending: the next window's cache, if it is built.
        order: the request to build; None if there is none, or a builder processes it.
        ends: step at which the next cache should come into use.

    References: GreenDyGNN section V-A, stage 2, and algorithm 2.
    Differs from the paper: the thread that reads the cache swaps it, since batches are resolved ahead of training.
    """

    def __init__(self, epochs: Epochs) -> None:
        self._epochs, self._plans, self._numbers = epochs, 0, 0
        self.serving: BuiltCache | None = None
        self.pending: BuiltCache | None = None
        self.order: Order | None = None
        self.ends = 0

    def begin(self, step: int, path: FeaturePath, *, first: bool) -> None:
        """Plan again from a step on; the current cache stays in use until the new one is ready.

        Args:
            step: the next one to resolve.
            path: settings of planning.
            first: whether a run begins, so that there are no observations to decide by.
        """
        self._plans += 1
        self.pending = self.order = None
        if not path.caches:
            self.serving = None
            return
        self._ask(step, decided=path.decides and not first)

    def current(self, order: Order) -> bool:
        """Whether a request is still valid."""
        if order.early and (self.serving is None or self.serving.plan.number != order.serving):
            return False
        return order.plans == self._plans

    def reconsider(self, step: int) -> None:
        """After a change of links, request a cache that replaces the next window's, from a step on.

        Does nothing if the next window is not decided yet, or begins within two steps. The policy may keep its
        decision.
        """
        if self.serving is None or self.order is not None or self.ends - step < 2:
            return
        if self._epochs.stop is None or self.ends < self._epochs.stop:
            number = self._numbers - 1
            self.order = Order(number, step, True, self._plans, early=True, serving=self.serving.plan.number)

    def offer(self, order: Order, built: BuiltCache) -> None:
        """Add a finished cache; it is dropped if its request is no longer valid. An early one is due at once."""
        if self.current(order):
            self.pending = built
            if order.early:
                self.ends = min(self.ends, built.plan.first)

    @property
    def ready(self) -> bool:
        """Whether there is a cache, in use or about to be."""
        return self.serving is not None or self.pending is not None

    def turn(self, step: int, path: FeaturePath) -> Swap | None:
        """Swap caches if one is ready and due at the step that is resolved next."""
        if self.pending is None or step < self.ends:
            return None
        built, self.pending = self.pending, None
        self.serving, due = built, self.ends
        begins = built.plan.first if path.mode == "epoch_hot" else step
        self._ask(max(begins + built.plan.length, step + 1), decided=path.decides)
        return Swap(built, due, step - due)

    def _ask(self, first: int, *, decided: bool) -> None:
        self.ends = first
        if self._epochs.stop is None or first < self._epochs.stop:
            self.order = Order(self._numbers, first, decided, self._plans)
            self._numbers += 1
