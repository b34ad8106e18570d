"""Batches that were built ahead, kept by size within a number and within bytes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from dtdg_lab.core.errors import ConfigError, PlanError
from dtdg_lab.core.target_batches import BatchSize

B = TypeVar("B")
GIB = 1 << 30
FEW = 10  # distinct batches of a size; below, training sees the same ones over and over


class Level(NamedTuple):
    """What is held of one batch size: batches, the most there may be, bytes, batches with different content."""

    held: int
    capacity: int
    nbytes: int
    distinct: int


class Reservoir(Generic[B]):
    """The batches of one part, by action and number; any thread may put and take.

    A batch that is taken is held on, to be taken again, until it is dropped. An action's first batch that does not fit
    its bytes closes it until one is dropped, so that with one generator an action it holds numbers that follow another.

    Args:
        capacities: of each action, the most batches; at least 1 each.
        limit_bytes: of all together; every action has the same share.

    Raises:
        PlanError: there is no action, or a number is below 1.

    References: DynaHB section 5.2 (hybrid batch reservoir), algorithm 3.
    Differs from the paper: bytes are limited.
    """

    def __init__(self, capacities: Sequence[int], limit_bytes: int) -> None:
        if not capacities or min(capacities) < 1 or limit_bytes < 1:
            raise PlanError(
                f"a reservoir of {list(capacities)} batches and {limit_bytes} bytes: at least one action, and numbers "
                "of at least 1, are needed."
            )
        self.capacities = tuple(int(capacity) for capacity in capacities)
        self.share_bytes = limit_bytes // len(self.capacities)
        self._lock = threading.Lock()
        self.clear()

    def put(self, action: int, index: int, batch: B, nbytes: int, content: object = None) -> bool:
        """Keep a batch, unless its action is full; one whose number is held already is not kept twice.

        Args:
            action: number of its size.
            index: its number.
            batch: it.
            nbytes: that it takes.
            content: hashable; batches of the same content count as one. None: its number.

        Returns:
            whether a batch of this number is held now.
        """
        with self._lock:
            held = self._held[action]
            if index in held:
                return True
            if self._full(action):
                return False
            if self._nbytes[action] + nbytes > self.share_bytes:
                self._closed[action] = True
                return False
            held[index] = (batch, nbytes)
            self._contents[action][index] = index if content is None else content
            self._order[action].append(index)
            self._nbytes[action] += nbytes
            return True

    def take(self, action: int, u: float, v: float) -> tuple[int, B] | None:
        """One of an action's batches, with probability held / capacity; it is held on.

        Args:
            action: number of its size.
            u: uniform in [0, 1): a batch is taken where it is below held / capacity.
            v: uniform in [0, 1): which one.

        Returns:
            number and batch; None where none is taken.

        References: DynaHB section 5.2, equation 4.
        """
        with self._lock:
            order = self._order[action]
            if not u < len(order) / self.capacities[action]:
                return None
            index = order[min(int(v * len(order)), len(order) - 1)]
            return index, self._held[action][index][0]

    def drop(self, action: int, index: int) -> None:
        """Hold a batch no longer, so that there is room for another; one that is not held is no matter."""
        with self._lock:
            batch = self._held[action].pop(index, None)
            if batch is None:
                return
            self._order[action].remove(index)
            del self._contents[action][index]
            self._nbytes[action] -= batch[1]
            self._closed[action] = False

    def get(self, action: int, index: int) -> B | None:
        """The batch of a number, as a replay asks for it; None where it is not held."""
        with self._lock:
            found = self._held[action].get(index)
            return None if found is None else found[0]

    def wants(self, action: int) -> bool:
        """Whether another batch of this action would be looked at: it is not full, of batches or of bytes."""
        with self._lock:
            return not self._full(action)

    def levels(self) -> list[Level]:
        """What is held of each action."""
        with self._lock:
            return [
                Level(len(order), capacity, nbytes, len(set(contents.values())))
                for order, capacity, nbytes, contents in zip(
                    self._order, self.capacities, self._nbytes, self._contents, strict=True
                )
            ]

    def clear(self) -> None:
        """Hold nothing, and be open to every action again."""
        actions = range(len(self.capacities))
        with self._lock:
            self._held: list[dict[int, tuple[B, int]]] = [{} for _ in actions]
            self._order: list[list[int]] = [[] for _ in actions]
            self._contents: list[dict[int, object]] = [{} for _ in actions]
            self._nbytes = [0 for _ in actions]
            self._closed = [False for _ in actions]

    def _full(self, action: int) -> bool:
        return self._closed[action] or len(self._order[action]) >= self.capacities[action]


def capacity(size: BatchSize, *, snapshots: int, vertices: int, actions: int) -> int:
    """The most batches of a size: as many as would cover the part, shared by all sizes; at least 1.

    Args:
        size: N_S and N_V.
        snapshots: T of the training part.
        vertices: of the part that may be targets.
        actions: N_A, sizes to choose from.

    References: DynaHB section 5.2, equation 4; algorithm 3, line 2.
    Differs from the paper: vertices are the part's, since each part has a reservoir; at least one batch.
    """
    return max(1, vertices * snapshots // (size.targets * actions))


def check_fits(batch_bytes: Sequence[int], limit_bytes: int, sizes: Sequence[BatchSize]) -> None:
    """Refuse a reservoir that cannot hold one batch of each size.

    Args:
        batch_bytes: of one batch of each action.
        limit_bytes: of the reservoir.
        sizes: of each action.

    Raises:
        ConfigError: a batch takes more than its share.
    """
    share = limit_bytes // len(sizes)
    largest = max(batch_bytes)
    if largest <= share:
        return
    size = sizes[list(batch_bytes).index(largest)]
    needed = largest * len(sizes) / GIB
    raise ConfigError(
        f"a reservoir of {limit_bytes:,} bytes, {share:,} for each of {len(sizes)} batch sizes, cannot hold one batch "
        f"of {size.snapshots} snapshots x {size.vertices} targets: it takes {largest:,} bytes. Set reservoir_gib to "
        f"{needed:.3g} or more, give smaller batch sizes, or set reservoir=False."
    )
