"""Hybrid batches (DynaHB): their sizes, their seeded sampler, load groups, and the reservoir of batches built ahead."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import ConfigError, PlanError, shortened
from dtdg_lab.core.plans import BatchSize, TargetBatch
from dtdg_lab.core.rng import generator

# Sizes of hybrid batches, as given and as numbers of snapshots and targets.


Grid = tuple[tuple[float, float], ...]

_ROUNDING = 1e-9  # tolerance within which a share of a whole is taken for a whole number
_COUNTED: Mapping[str, str] = MappingProxyType(
    {
        "batch_snapshots": "snapshots of the training split",
        "snapshot_sizes": "snapshots of the training split",
        "batch_nodes": "nodes of the part that may be targets",
        "node_sizes": "nodes of the part that may be targets",
    }
)


def resolved(value: float, whole: int, name: str) -> int:
    """Convert a share or a whole number to a number of items.

    Args:
        value: a share up to 1 (1 is all; rounded up, so that it is at least one item), or a whole number above 1.
        whole: total number of items, at least 1.
        name: of the option, for messages.

    Returns:
        1 to ``whole``.

    Raises:
        ConfigError: the value is invalid or above the whole, or there are no items.
    """
    items = _COUNTED.get(name, "items")
    given = f"{name}={shortened(value)} of {whole} {items}"
    if whole < 1:
        raise ConfigError(f"{given}: there are no items. Set fewer parts, or choose other data.")
    if not math.isfinite(value) or value <= 0 or value > whole or (value > 1 and value != int(value)):
        counts = f" or a whole number from 2 to {whole}" if whole > 1 else ""
        raise ConfigError(f"{given}: a share above 0 and up to 1 (1 is all){counts} is allowed.")
    return int(value) if value > 1 else max(1, math.ceil(value * whole - _ROUNDING))


def batch_size(
    batch_snapshots: float,
    batch_nodes: float,
    *,
    snapshots: int,
    candidates: int,
    named: tuple[str, str] = ("batch_snapshots", "batch_nodes"),
) -> BatchSize:
    """The size of a part's batches.

    Args:
        batch_snapshots: share or number of snapshots, as :func:`resolved` reads it.
        batch_nodes: share or number of targets.
        snapshots: T of the training split.
        candidates: the part's nodes that may be targets.
        named: the options that the two come from, for messages: ``("snapshot_sizes", "node_sizes")`` for a grid.

    Raises:
        ConfigError: one of them is not allowed, for example more snapshots than there are.
    """
    return BatchSize(resolved(batch_snapshots, snapshots, named[0]), resolved(batch_nodes, candidates, named[1]))


def grid(snapshot_sizes: str, node_sizes: str) -> Grid:
    """The sizes that a batch-size controller chooses from: each number of snapshots with each number of targets.

    Args:
        snapshot_sizes: shares or whole numbers, such as ``"0.1 0.2 0.3"``; spaces or commas between them.
        node_sizes: those of targets.

    Returns:
        (batch_snapshots, batch_nodes) of each action. The action's index is the index in ``snapshot_sizes`` times
        the number of vertex sizes, plus the index in ``node_sizes``.

    Raises:
        ConfigError: a list is empty, repeats a size, or contains an invalid size.

    References: DynaHB section 5.1 (definition 5).
    """
    first, second = _sizes("snapshot_sizes", snapshot_sizes), _sizes("node_sizes", node_sizes)
    return tuple((snapshots, vertices) for snapshots in first for vertices in second)


def adjustable(sizes: Grid) -> Grid:
    """Check that a grid has more than one size, and return it.

    Raises:
        ConfigError: there is only one.
    """
    if len(sizes) < 2:
        raise ConfigError(
            f"a batch-size controller with one action, {shortened(sizes)}, has no choice. Give more snapshot_sizes or "
            "node_sizes, or set batch_policy='none'."
        )
    return sizes


def nearest(sizes: Grid, batch_snapshots: float, batch_nodes: float) -> int:
    """The action whose sizes are nearest by ratio to the given ones; the first of equally near ones.

    Shares and whole numbers are compared as given: a run should use the same kind for both.

    Args:
        sizes: at least one.
        batch_snapshots: above 0.
        batch_nodes: above 0.

    Raises:
        ConfigError: a number is not above 0.
    """
    if not (batch_snapshots > 0 and batch_nodes > 0):
        raise ConfigError(
            f"batch_snapshots={shortened(batch_snapshots)}, batch_nodes={shortened(batch_nodes)}: numbers "
            "above 0 are needed."
        )
    far = [
        abs(math.log(snapshots / batch_snapshots)) + abs(math.log(vertices / batch_nodes))
        for snapshots, vertices in sizes
    ]
    return far.index(min(far))


def _sizes(name: str, text: str) -> tuple[float, ...]:
    """The numbers of a list, in its order."""
    items = text.replace(",", " ").split()
    if not items:
        raise ConfigError(f"{name}={shortened(text)} contains no size. {_example(name)}")
    try:
        sizes = tuple(float(item) for item in items)
    except ValueError as error:
        raise ConfigError(f"{name}={shortened(text)}: {error}. {_example(name)}") from error
    for size in sizes:
        if not math.isfinite(size) or size <= 0 or (size > 1 and size != int(size)):
            raise ConfigError(
                f"{name}={shortened(text)}: {size} is not a size. Shares above 0 and up to 1 (1 is all) and whole "
                f"numbers above 1 are allowed. {_example(name)}"
            )
    if len(set(sizes)) < len(sizes):
        raise ConfigError(f"{name}={shortened(text)} repeats a size: list each once.")
    return sizes


def _example(name: str) -> str:
    return f"Give some, such as {name}={'0.1 0.2 0.3' if name == 'snapshot_sizes' else '0.01 0.05 0.1'!r}."


# A part's nodes by load, in groups from which a batch takes equal numbers of targets.


SHARES = 60  # bins of the load order in which a batch's targets are counted, for display


@dataclass(frozen=True, slots=True, eq=False)
class LoadGroups:
    """The c candidates of a part, heaviest first, to be cut into runs of equal length.

    Attributes:
        order: (c,) int64, indices of the candidates among the part's own nodes, heaviest first.
        groups: N_bg, the maximum number of groups, at least 1.
        candidates: (c,) int64, the same indices, ascending.

    Raises:
        PlanError: there is no candidate or no group, or an index is negative or repeated.

    References: DynaHB section 4.2 (balanced groups).
    """

    order: NDArray[np.int64]
    groups: int
    candidates: NDArray[np.int64] = field(init=False)
    _rank: NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        given = np.asarray(self.order)
        if given.ndim != 1 or not len(given) or not np.issubdtype(given.dtype, np.integer):
            raise PlanError(
                f"candidates by load must be a non-empty vector of whole numbers, not {given.dtype} of shape "
                f"{given.shape}."
            )
        if self.groups < 1:
            raise PlanError(f"{self.groups} groups of candidates: at least 1 is needed.")
        order = given.astype(np.int64)
        candidates = np.sort(order)
        if candidates[0] < 0 or (np.diff(candidates) < 1).any():
            raise PlanError("candidates by load must be distinct indices of at least 0.")
        rank = np.full(candidates[-1] + 1, -1)
        rank[order] = np.arange(len(order))
        for name, own in (("order", order), ("candidates", candidates), ("_rank", rank)):
            own.setflags(write=False)
            object.__setattr__(self, name, own)

    def __len__(self) -> int:
        """The number of candidates, c."""
        return len(self.order)

    def bounds(self, vertices: int) -> NDArray[np.int64]:
        """Boundaries of the groups in ``order`` for batches of some targets, (min(groups, nodes) + 1,).

        Group k is ``order[bounds[k]:bounds[k + 1]]``; groups differ by at most one candidate.

        Args:
            vertices: N_V, 1 to c.

        Raises:
            PlanError: there are fewer candidates.
        """
        if not 1 <= vertices <= len(self):
            raise PlanError(f"{vertices} targets of {len(self)} candidates: 1 to {len(self)} are allowed.")
        count = min(self.groups, vertices)
        return -(-np.arange(count + 1) * len(self) // count)

    def sixtieths(self, targets: NDArray[np.int64]) -> list[int]:
        """The number of targets in each sixtieth of the candidates, heaviest first: 60 numbers.

        Args:
            targets: (N_V,) indices of candidates.
        """
        return np.bincount(self._rank[targets] * SHARES // len(self), minlength=SHARES).tolist()


def load_groups(loads: NDArray[np.floating], candidates: NDArray[np.integer], groups: int) -> LoadGroups:
    """Candidates sorted by load, heaviest first; ties go to the lower index.

    Args:
        loads: (n,) of all own nodes of the part (:func:`dtdg_lab.partition.simple.vertex_loads`).
        candidates: (c,) distinct indices of the nodes that may be targets.
        groups: N_bg, the maximum number of groups.

    Raises:
        PlanError: there is no candidate or no group, or a candidate is not an own node.
    """
    indices = np.sort(np.asarray(candidates))
    if len(indices) and not 0 <= indices[0] <= indices[-1] < len(loads):
        raise PlanError(f"candidates from {indices[0]} to {indices[-1]} of a part of {len(loads)} nodes.")
    return LoadGroups(indices[np.argsort(-loads[indices], kind="stable")] if len(indices) else indices, groups)


# Prebuilt batches, kept by size within limits of number and of bytes.


B = TypeVar("B")
GIB = 1 << 30
FEW = 10  # distinct batches of a size; below this, training repeats the same ones


class ReservoirLevel(NamedTuple):
    """Contents of one batch size: batches, capacity, bytes, batches with different content."""

    held: int
    capacity: int
    nbytes: int
    distinct: int


class Reservoir(Generic[B]):
    """The batches of one part, by action and index; all methods are thread-safe.

    A batch that is taken stays in the reservoir, to be taken again, until it is dropped. The first batch of an action
    that exceeds its bytes closes the action until a batch is dropped. So with one generator per action the reservoir
    holds consecutive indices.

    Args:
        capacities: maximum number of batches of each action, at least 1 each.
        limit_bytes: limit of all batches together; actions get equal shares.

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
        """Store a batch, unless its action is full; a batch whose index is present is not stored twice.

        Args:
            action: index of its size.
            index: its index.
            batch: the batch.
            nbytes: bytes that it takes.
            content: hashable; batches of the same content count as one. None: its index.

        Returns:
            Whether a batch of this index is in the reservoir now.
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
        """One of an action's batches, with probability fill level / capacity; it stays in the reservoir.

        Args:
            action: index of its size.
            u: uniform in [0, 1): a batch is taken if it is below fill level / capacity.
            v: uniform in [0, 1): selects the batch.

        Returns:
            Index and batch; None if none is taken.

        References: DynaHB section 5.2, equation 4.
        """
        with self._lock:
            order = self._order[action]
            if not u < len(order) / self.capacities[action]:
                return None
            index = order[min(int(v * len(order)), len(order) - 1)]
            return index, self._held[action][index][0]

    def drop(self, action: int, index: int) -> None:
        """Remove a batch to free its space; does nothing if it is not present."""
        with self._lock:
            batch = self._held[action].pop(index, None)
            if batch is None:
                return
            self._order[action].remove(index)
            del self._contents[action][index]
            self._nbytes[action] -= batch[1]
            self._closed[action] = False

    def get(self, action: int, index: int) -> B | None:
        """The batch of an index, as a replay requests it; None if it is not present."""
        with self._lock:
            found = self._held[action].get(index)
            return None if found is None else found[0]

    def wants(self, action: int) -> bool:
        """Whether the action has room for another batch, in number and in bytes."""
        with self._lock:
            return not self._full(action)

    def levels(self) -> list[ReservoirLevel]:
        """The contents of each action."""
        with self._lock:
            return [
                ReservoirLevel(len(order), capacity, nbytes, len(set(contents.values())))
                for order, capacity, nbytes, contents in zip(
                    self._order, self.capacities, self._nbytes, self._contents, strict=True
                )
            ]

    def clear(self) -> None:
        """Remove all batches and reopen every action."""
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
    """Capacity of a size: the number of batches that would cover the part, shared by all sizes; at least 1.

    Args:
        size: N_S and N_V.
        snapshots: T of the training split.
        vertices: number of the part's nodes that may be targets.
        actions: N_A, number of sizes.

    References: DynaHB section 5.2, equation 4; algorithm 3, line 2.
    Differs from the paper: nodes are the part's, since each part has its own reservoir; at least one batch.
    """
    return max(1, vertices * snapshots // (size.targets * actions))


def check_fits(batch_bytes: Sequence[int], limit_bytes: int, sizes: Sequence[BatchSize]) -> None:
    """Reject a reservoir that cannot hold one batch of each size.

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


# Hybrid batches drawn so that their snapshots and targets depend on seed, part, size and index alone.


@dataclass(frozen=True, slots=True, eq=False)
class TargetSampler:
    """Draws the batches of one part.

    Attributes:
        seed: of the run.
        part: index of the part.
        groups: its candidates by load.
        snapshots: the training split, T consecutive snapshots.

    Raises:
        PlanError: there is no snapshot, or they are not consecutive.

    References: DynaHB section 4.2 (group sampler) and section 5.1 (definition 3).
    """

    seed: int
    part: int
    groups: LoadGroups
    snapshots: range

    def __post_init__(self) -> None:
        if not len(self.snapshots) or self.snapshots.step != 1:
            raise PlanError(f"batches of snapshots {self.snapshots}: a non-empty range of consecutive ones is needed.")

    def batch(self, size: BatchSize, action: int, index: int) -> TargetBatch:
        """One hybrid batch: N_S consecutive snapshots at a random position, and N_V targets, evenly from load groups.

        There are min(N_bg, N_V) groups. If they do not divide N_V, the groups that give one more are evenly spaced in
        the load order from a random start, so that no load is preferred in the long run. The action is only recorded:
        two actions of one size have the same batches.

        Args:
            size: N_S, at most T, and N_V, at most the candidates.
            action: index of the size.
            index: index of the batch, from 0 on.

        Raises:
            PlanError: the size exceeds the snapshots or the candidates.

        Differs from the paper: it does not specify the case where N_bg does not divide N_V. Its range of first
        snapshots, [0, T - N_S - 1], omits the newest snapshot; [0, T - N_S] does not.
        """
        stream = generator(self.seed, "hybrid/batch", self.part, size.snapshots, size.vertices, index)
        snapshots = self._window(size.snapshots, stream)
        return TargetBatch(self.part, action, index, snapshots, self._targets(size.vertices, stream))

    def snapshot_batch(self, size: BatchSize, index: int, action: int = 0) -> TargetBatch:
        """One snapshot batch: the same number of consecutive snapshots, with all candidates as targets.

        Args:
            size: N_S, at most T; its number of targets is ignored.
            index: index of the batch, such as the step that it replaces a hybrid batch in.
            action: index of the size that it replaces.

        Raises:
            PlanError: there are fewer snapshots.

        References: DynaHB algorithm 3, lines 8 to 10.
        """
        stream = generator(self.seed, "hybrid/stand-in", self.part, size.snapshots, index)
        return TargetBatch(self.part, action, index, self._window(size.snapshots, stream), self.groups.candidates)

    def _window(self, length: int, stream: np.random.Generator) -> range:
        whole = len(self.snapshots)
        if length > whole:
            raise PlanError(f"a batch of {length} snapshots from a training split of {whole}: at most {whole} fit.")
        first = int(stream.integers(whole - length + 1))
        return self.snapshots[first : first + length]

    def _targets(self, vertices: int, stream: np.random.Generator) -> NDArray[np.int64]:
        """Indices of N_V distinct candidates, ascending."""
        bounds = self.groups.bounds(vertices)
        chosen = []
        for start, length, count in zip(bounds[:-1], np.diff(bounds), _counts(vertices, bounds, stream), strict=True):
            indices = (
                stream.choice(length, count, replace=False, shuffle=False) if count < length else np.arange(length)
            )
            chosen.append(start + indices)
        return np.sort(self.groups.order[np.concatenate(chosen)])


def _counts(vertices: int, bounds: NDArray[np.int64], stream: np.random.Generator) -> NDArray[np.int64]:
    """Targets of each group: N_V / groups, plus one in some groups, so that the sum is N_V."""
    lengths = np.diff(bounds)
    each, more = divmod(vertices, len(lengths))
    counts = np.full(len(lengths), each)
    able = np.flatnonzero(lengths > each)
    if more:
        start = int(stream.integers(len(able)))
        turns = (np.arange(len(able) + 1) * more + start) // len(able)
        counts[able] += np.diff(turns)
    return counts
