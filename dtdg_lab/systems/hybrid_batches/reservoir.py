"""The reservoir of batches that are built ahead (DynaHB), limited in number and in bytes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.core.plans import BatchSize

B = TypeVar("B")
GIB = 1 << 30
FEW = 10  # with fewer distinct batches of a size, training repeats the same ones


@dataclass(frozen=True, slots=True)
class ReservoirSettings:
    """The reservoir settings of a rank.

    Attributes:
        on: True if batches are generated beside training and kept.
        limit_bytes: limit of the batches that a rank keeps.
        generators: ``threads`` or ``processes``.
        max_uses: number of uses after which a batch makes room for another; 0 for no limit.
    """

    on: bool
    limit_bytes: int
    generators: str
    max_uses: int = 0

    @classmethod
    def of(cls, config: RunConfig) -> ReservoirSettings:
        """Return the settings of a config."""
        limit_bytes = int(config["reservoir_gib"] * GIB)
        return cls(config["reservoir"], limit_bytes, config["generators"], config["reservoir_uses"])


class ReservoirLevel(NamedTuple):
    """Contents of one batch size: batches, capacity, bytes, and batches with different content."""

    held: int
    capacity: int
    nbytes: int
    distinct: int


class _Stored(NamedTuple, Generic[B]):
    batch: B
    nbytes: int
    content: object


class Reservoir(Generic[B]):
    """The batches of one part, by action and index; all methods are thread-safe.

    A batch that is taken stays in the reservoir until it is dropped, and can be taken again. The first batch that
    exceeds its action's bytes closes the action until a batch is dropped. So with one generator per action, the
    reservoir holds consecutive indices.

    Args:
        capacities: maximum number of batches of each action, at least 1.
        limit_bytes: limit of all batches together, shared equally by actions.

    References: DynaHB section 5.2 (hybrid batch reservoir), algorithm 3.
    Differs from the paper: bytes are limited.
    """

    def __init__(self, capacities: Sequence[int], limit_bytes: int) -> None:
        self.capacities = tuple(capacities)
        self.share_bytes = limit_bytes // len(self.capacities)
        self._lock = threading.Lock()
        self.clear()

    def put(self, action: int, index: int, batch: B, nbytes: int, content: object = None) -> bool:
        """Store a batch, unless its action is full or its index is already present.

        Args:
            action: index of its size.
            index: index of the batch.
            batch: the batch.
            nbytes: bytes of the batch.
            content: hashable; batches of equal content count as one. None for the index.

        Returns:
            True if a batch with this index is now in the reservoir.
        """
        with self._lock:
            batches = self._batches[action]
            if index in batches:
                return True
            if self._is_full(action):
                return False
            if self._nbytes[action] + nbytes > self.share_bytes:
                self._closed[action] = True
                return False
            batches[index] = _Stored(batch, nbytes, index if content is None else content)
            self._nbytes[action] += nbytes
            return True

    def take(self, action: int, u: float, v: float) -> tuple[int, B] | None:
        """Return a batch of an action with probability fill level / capacity; it stays in the reservoir.

        Args:
            action: index of its size.
            u: uniform in [0, 1); a batch is taken if u is below fill level / capacity.
            v: uniform in [0, 1): selects the batch.

        Returns:
            Index and batch; None if none is taken.

        References: DynaHB section 5.2, equation 4.
        """
        with self._lock:
            batches = self._batches[action]
            if not u < len(batches) / self.capacities[action]:
                return None
            index = [*batches][min(int(v * len(batches)), len(batches) - 1)]
            return index, batches[index].batch

    def drop(self, action: int, index: int) -> None:
        """Remove a batch to free its space; ignore an absent one."""
        with self._lock:
            stored = self._batches[action].pop(index, None)
            if stored is not None:
                self._nbytes[action] -= stored.nbytes
                self._closed[action] = False

    def get(self, action: int, index: int) -> B | None:
        """Return the batch of an index, for a replay; None if it is absent."""
        with self._lock:
            stored = self._batches[action].get(index)
            return None if stored is None else stored.batch

    def has_room(self, action: int) -> bool:
        """Return True if another batch of the action fits, in number and in bytes."""
        with self._lock:
            return not self._is_full(action)

    def levels(self) -> list[ReservoirLevel]:
        """Return the contents of each action."""
        with self._lock:
            return [
                ReservoirLevel(len(batches), capacity, nbytes, len({stored.content for stored in batches.values()}))
                for batches, capacity, nbytes in zip(self._batches, self.capacities, self._nbytes, strict=True)
            ]

    def clear(self) -> None:
        """Remove all batches and reopen every action."""
        with self._lock:
            self._batches: list[dict[int, _Stored[B]]] = [{} for _ in self.capacities]
            self._nbytes = [0] * len(self.capacities)
            self._closed = [False] * len(self.capacities)

    def _is_full(self, action: int) -> bool:
        return self._closed[action] or len(self._batches[action]) >= self.capacities[action]


def capacity(size: BatchSize, *, snapshots: int, vertices: int, actions: int) -> int:
    """Return the capacity of a size: the batches that would cover the part, divided among all sizes; at least 1.

    Args:
        size: N_S and N_V.
        snapshots: T of the training split.
        vertices: number of the part's nodes that may be targets.
        actions: N_A, number of sizes.

    References: DynaHB section 5.2, equation 4; algorithm 3, line 2.
    Differs from the paper: nodes are the part's, since each part has its own reservoir, and at least one batch fits.
    """
    return max(1, vertices * snapshots // (size.targets * actions))


def check_fits(batch_bytes: Sequence[int], limit_bytes: int, sizes: Sequence[BatchSize]) -> None:
    """Raise unless a reservoir can hold one batch of each size.

    Args:
        batch_bytes: bytes of one batch of each action.
        limit_bytes: limit of the reservoir.
        sizes: size of each action.

    Raises:
        ConfigError: a batch takes more than its share.
    """
    share = limit_bytes // len(sizes)
    largest, size = max(zip(batch_bytes, sizes, strict=True), key=lambda pair: pair[0])
    if largest > share:
        raise ConfigError(
            f"a reservoir of {limit_bytes:,} bytes, {share:,} for each of {len(sizes)} batch sizes, cannot hold one "
            f"batch of {size.snapshots} snapshots x {size.vertices} targets, which takes {largest:,} bytes. Set "
            f"reservoir_gib to {largest * len(sizes) / GIB:.3g} or more, give smaller batch sizes, or set "
            "reservoir=False."
        )
