"""Which cache serves which step, and which is to be built next. No threads here: the caller holds a lock."""

from __future__ import annotations

from dataclasses import dataclass

from dtdg_lab.features.builder import Built
from dtdg_lab.features.path import FeaturePath
from dtdg_lab.features.window_plan import Epochs


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

    built: Built
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
        self._pending: Built | None = None
        self.serving: Built | None = None
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
    def pending(self) -> Built | None:
        """The next window's cache, where it is built."""
        return self._pending

    def offer(self, order: Order, built: Built) -> None:
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
