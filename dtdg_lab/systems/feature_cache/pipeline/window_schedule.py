"""The schedule of cache windows: which cache serves a step, and which to build next; counts of the batches ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.systems.feature_cache.pipeline.cache import BuiltCache, FeatureCache, hot_set, hottest_first, key_counts
from dtdg_lab.systems.feature_cache.pipeline.feature_path import FeaturePath
from dtdg_lab.systems.feature_cache.pipeline.keys import KeySpace
from dtdg_lab.systems.feature_cache.pipeline.window_plan import Epochs


@dataclass(frozen=True, slots=True)
class Order:
    """A request to build a cache.

    Attributes:
        number: index of its window.
        first: first step of the window.
        decided: True if the policy decides; it does not for the first window of a run.
        plans: version of the settings; requests of an older version are dropped.
        early: True if links have changed, so that the current window may be abandoned.
        serving: index of the window that may be abandoned.
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

    The next window's cache is requested when a cache is swapped in, and swapped in when the current window ends. Until
    it is ready, the old cache stays in use. A window lasts W steps from its swap; with one cache per epoch, it lasts to
    the end of the epoch.

    Args:
        epochs: lengths of epochs.

    Attributes:
        serving: the current cache, if any.
        pending: the next window's cache, once it is built.
        order: the request to build; None if there is none, or if a builder has taken it.
        ends: step at which the next cache should come into use.

    References: GreenDyGNN section V-A, stage 2, and algorithm 2.
    Differs from the paper: the thread that reads the cache swaps it, because batches are resolved ahead of training.
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
            step: the next step to resolve.
            path: settings of planning.
            first: True if a run begins, so that there are no observations to decide by.
        """
        self._plans += 1
        self.pending = self.order = None
        if not path.caches:
            self.serving = None
            return
        self._ask(step, decided=path.decides and not first)

    def current(self, order: Order) -> bool:
        """Return True if a request is still valid."""
        if order.early and (self.serving is None or self.serving.plan.number != order.serving):
            return False
        return order.plans == self._plans

    def reconsider(self, step: int) -> None:
        """Request a cache that replaces the next window's, after a change of links at a step.

        Does nothing if the next window is not decided yet, or begins within two steps. The policy may keep its
        decision.
        """
        if self.serving is None or self.order is not None or self.ends - step < 2:
            return
        if self._epochs.stop is None or self.ends < self._epochs.stop:
            number = self._numbers - 1
            self.order = Order(number, step, True, self._plans, early=True, serving=self.serving.plan.number)

    def offer(self, order: Order, built: BuiltCache) -> None:
        """Accept a finished cache, unless its request has become invalid; a cache requested early is due at once."""
        if self.current(order):
            self.pending = built
            if order.early:
                self.ends = min(self.ends, built.plan.first)

    @property
    def ready(self) -> bool:
        """True if a cache is in use or pending."""
        return self.serving is not None or self.pending is not None

    def swap_at(self, step: int, path: FeaturePath) -> Swap | None:
        """Swap the caches and return the swap, if a cache is ready and due at the next step to resolve."""
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


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """Predicted counts of a window and an allocation; vectors are (P - 1,), over the other parts.

    Attributes:
        steps: counted steps: the window's, or fewer if not all are sampled yet.
        requested: mean rows per step requested from each part.
        missed: mean rows per step of these that the cache would not contain.
        fetched: rows that the rebuild would fetch.
        copied: rows that it would copy from the current cache.
    """

    steps: int
    requested: NDArray[np.float64]
    missed: NDArray[np.float64]
    fetched: NDArray[np.float64]
    copied: int


@dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """Distinct keys (U,) of some batches: counts, owners, indices by heat, and which are absent from the cache."""

    counts: NDArray[np.int64]
    owners: NDArray[np.integer]
    order: NDArray[np.int64]
    new: NDArray[np.bool_]


class Lookahead:
    """Counts over the batches that are already sampled; computed on demand.

    Args:
        first: step of the first batch.
        batches: remote keys of each batch, distinct within it.
        space: the space of all keys.
        part: the part that trains the batches.
        capacity: rows of the cache.
        serving: the current cache, if any.
    """

    def __init__(
        self,
        first: int,
        batches: Sequence[NDArray[np.int64]],
        space: KeySpace,
        *,
        part: int,
        capacity: int,
        serving: FeatureCache | None,
    ) -> None:
        self.first, self.capacity = first, capacity
        self._asked, self._space, self._part, self._serving = tuple(batches), space, part, serving
        self._counted: dict[int, _Counted] = {}
        self._known: dict[tuple[int, bytes], Outlook] = {}

    @property
    def steps(self) -> int:
        """Number of sampled batches; a longer window is evaluated on these alone."""
        return len(self._asked)

    def outlook(self, window: int, shares: NDArray[np.float64]) -> Outlook:
        """Return the predicted counts of W steps from ``first``, with shares (P - 1,) of the cache.

        All are 0 if no batch is sampled yet.
        """
        steps = min(window, self.steps)
        key = steps, np.asarray(shares, dtype=np.float64).tobytes()
        if key not in self._known:
            self._known[key] = self._look(steps, shares)
        return self._known[key]

    def _look(self, steps: int, shares: NDArray[np.float64]) -> Outlook:
        num_others = self._space.parts - 1
        if not steps:
            return Outlook(0, np.zeros(num_others), np.zeros(num_others), np.zeros(num_others), 0)
        if steps not in self._counted:
            self._counted[steps] = self._count(steps)
        counted = self._counted[steps]
        hot = hot_set(counted.order, counted.owners, shares, self.capacity)
        owners = counted.owners[hot]
        requested = np.bincount(counted.owners, weights=counted.counts, minlength=num_others)
        served = np.bincount(owners, weights=counted.counts[hot], minlength=num_others)
        fetched = np.bincount(owners, weights=counted.new[hot], minlength=num_others).astype(np.float64)
        return Outlook(steps, requested / steps, (requested - served) / steps, fetched, len(hot) - int(fetched.sum()))

    def _count(self, steps: int) -> _Counted:
        keys, counts = key_counts(self._asked[:steps], self._space.size)
        owners = self._space.owners(keys)
        new = np.ones(len(keys), dtype=bool) if self._serving is None else self._serving.find(keys) < 0
        return _Counted(counts, owners - (owners > self._part), hottest_first(counts), new)
