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

# Sizes of hybrid batches, as they are given and as numbers of snapshots and targets.


Grid = tuple[tuple[float, float], ...]

_ROUNDING = 1e-9  # what a share of a whole may miss a whole number by, and still be taken for it
_COUNTED: Mapping[str, str] = MappingProxyType(
    {
        "batch_snapshots": "snapshots of the training split",
        "snapshot_sizes": "snapshots of the training split",
        "batch_vertices": "nodes of the part that may be targets",
        "vertex_sizes": "nodes of the part that may be targets",
    }
)


def resolved(value: float, whole: int, name: str) -> int:
    """What is given as a share or as a whole number, as a number of items.

    Args:
        value: a share up to 1 (1 is all; rounded up, so that it is at least one item), or a whole number above 1.
        whole: how many items there are, at least 1.
        name: of the option, for messages.

    Returns:
        1 to ``whole``.

    Raises:
        ConfigError: the value is no such number or is above the whole, or there is no item.
    """
    items = _COUNTED.get(name, "items")
    given = f"{name}={shortened(value)} of {whole} {items}"
    if whole < 1:
        raise ConfigError(f"{given}: there is none to take. Set fewer parts, or choose other data.")
    if not math.isfinite(value) or value <= 0 or value > whole or (value > 1 and value != int(value)):
        counts = f" or a whole number from 2 to {whole}" if whole > 1 else ""
        raise ConfigError(f"{given}: a share above 0 up to 1 (1 is all, a small one is one){counts} is allowed.")
    return int(value) if value > 1 else max(1, math.ceil(value * whole - _ROUNDING))


def batch_size(
    batch_snapshots: float,
    batch_vertices: float,
    *,
    snapshots: int,
    candidates: int,
    named: tuple[str, str] = ("batch_snapshots", "batch_vertices"),
) -> BatchSize:
    """The size of a part's batches.

    Args:
        batch_snapshots: share or number of snapshots, as :func:`resolved` reads it.
        batch_vertices: share or number of targets.
        snapshots: T of the training split.
        candidates: the part's nodes that may be targets.
        named: the options that gave the two, for messages: ``("snapshot_sizes", "vertex_sizes")`` where a grid did.

    Raises:
        ConfigError: one of them is not allowed, such as more snapshots than there are.
    """
    return BatchSize(resolved(batch_snapshots, snapshots, named[0]), resolved(batch_vertices, candidates, named[1]))


def grid(snapshot_sizes: str, vertex_sizes: str) -> Grid:
    """The sizes an adjuster chooses from: each number of snapshots with each number of targets.

    Args:
        snapshot_sizes: shares or whole numbers, such as ``"0.1 0.2 0.3"``; spaces or commas between them.
        vertex_sizes: those of targets.

    Returns:
        (batch_snapshots, batch_vertices) of each action; action = place of the first times number of node sizes +
        place of the second.

    Raises:
        ConfigError: a list is empty, names a size twice, or holds what is no size.

    References: DynaHB section 5.1 (definition 5).
    """
    first, second = _sizes("snapshot_sizes", snapshot_sizes), _sizes("vertex_sizes", vertex_sizes)
    return tuple((snapshots, vertices) for snapshots in first for vertices in second)


def adjustable(sizes: Grid) -> Grid:
    """The same sizes, where there is something to choose from.

    Raises:
        ConfigError: there is one only.
    """
    if len(sizes) < 2:
        raise ConfigError(
            f"an adjuster with one action, {shortened(sizes)}, has nothing to choose. Give more snapshot_sizes or "
            "vertex_sizes, or set adjuster='none'."
        )
    return sizes


def nearest(sizes: Grid, batch_snapshots: float, batch_vertices: float) -> int:
    """The action whose sizes are nearest by ratio to the given ones; the first of equally near ones.

    Shares and whole numbers are compared as they are given: a run should give both in the same way.

    Args:
        sizes: at least one.
        batch_snapshots: above 0.
        batch_vertices: above 0.

    Raises:
        ConfigError: a number is not above 0.
    """
    if not (batch_snapshots > 0 and batch_vertices > 0):
        raise ConfigError(
            f"batch_snapshots={shortened(batch_snapshots)}, batch_vertices={shortened(batch_vertices)}: numbers "
            "above 0 are needed."
        )
    far = [
        abs(math.log(snapshots / batch_snapshots)) + abs(math.log(vertices / batch_vertices))
        for snapshots, vertices in sizes
    ]
    return far.index(min(far))


def _sizes(name: str, text: str) -> tuple[float, ...]:
    """The numbers of a list, in its order."""
    words = text.replace(",", " ").split()
    if not words:
        raise ConfigError(f"{name}={shortened(text)} names no size. {_example(name)}")
    try:
        sizes = tuple(float(word) for word in words)
    except ValueError as error:
        raise ConfigError(f"{name}={shortened(text)}: {error}. {_example(name)}") from error
    for size in sizes:
        if not math.isfinite(size) or size <= 0 or (size > 1 and size != int(size)):
            raise ConfigError(
                f"{name}={shortened(text)}: {size} is no size. Shares above 0 up to 1 (1 is all) and whole numbers "
                f"above 1 are allowed. {_example(name)}"
            )
    if len(set(sizes)) < len(sizes):
        raise ConfigError(f"{name}={shortened(text)} names a size twice: name each once.")
    return sizes


def _example(name: str) -> str:
    return f"Give some, such as {name}={'0.1 0.2 0.3' if name == 'snapshot_sizes' else '0.01 0.05 0.1'!r}."


# A part's nodes by load, in groups from which a batch takes the same number each.


SHARES = 60  # runs of the load order in which a batch's targets are counted, to be shown


@dataclass(frozen=True, slots=True, eq=False)
class LoadGroups:
    """The c candidates of a part, heaviest first, to be cut into runs of equal length.

    Attributes:
        order: (c,) int64, places of the candidates among the part's own nodes, heaviest first.
        groups: N_bg, the most groups they are cut into, at least 1.
        candidates: (c,) int64, the same places, ascending.

    Raises:
        PlanError: there is no candidate or no group, or a place is negative or given twice.

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
            raise PlanError("candidates by load must be places from 0 on, each of them once.")
        rank = np.full(candidates[-1] + 1, -1)
        rank[order] = np.arange(len(order))
        for name, own in (("order", order), ("candidates", candidates), ("_rank", rank)):
            own.setflags(write=False)
            object.__setattr__(self, name, own)

    def __len__(self) -> int:
        """The number of candidates, c."""
        return len(self.order)

    def bounds(self, vertices: int) -> NDArray[np.int64]:
        """Where the groups for batches of some targets begin and end in ``order``, (min(groups, nodes) + 1,).

        Group k is ``order[bounds[k]:bounds[k + 1]]``; groups differ by at most one candidate.

        Args:
            vertices: N_V, 1 to c.

        Raises:
            PlanError: there are not as many candidates.
        """
        if not 1 <= vertices <= len(self):
            raise PlanError(f"{vertices} targets of {len(self)} candidates: from 1 to all of them are allowed.")
        count = min(self.groups, vertices)
        return -(-np.arange(count + 1) * len(self) // count)

    def sixtieths(self, targets: NDArray[np.int64]) -> list[int]:
        """How many of some targets are in each sixtieth of the candidates, heaviest first: 60 numbers.

        Args:
            targets: (N_V,) places, each a candidate's.
        """
        return np.bincount(self._rank[targets] * SHARES // len(self), minlength=SHARES).tolist()


def load_groups(loads: NDArray[np.floating], candidates: NDArray[np.integer], groups: int) -> LoadGroups:
    """Candidates sorted by load, heaviest first; ties go to the lower place.

    Args:
        loads: (n,) of all own nodes of the part (partition room, ``vertex_loads``).
        candidates: (c,) places of those that may be targets, each once.
        groups: N_bg, the most groups they are cut into.

    Raises:
        PlanError: there is no candidate or no group, or a candidate is no own node.
    """
    places = np.sort(np.asarray(candidates))
    if len(places) and not 0 <= places[0] <= places[-1] < len(loads):
        raise PlanError(f"candidates from {places[0]} to {places[-1]} of a part of {len(loads)} nodes.")
    return LoadGroups(places[np.argsort(-loads[places], kind="stable")] if len(places) else places, groups)


# Batches that were built ahead, kept by size within a number and within bytes.


B = TypeVar("B")
GIB = 1 << 30
FEW = 10  # distinct batches of a size; below, training sees the same ones over and over


class ReservoirLevel(NamedTuple):
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

    def levels(self) -> list[ReservoirLevel]:
        """What is held of each action."""
        with self._lock:
            return [
                ReservoirLevel(len(order), capacity, nbytes, len(set(contents.values())))
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
        snapshots: T of the training split.
        vertices: of the part that may be targets.
        actions: N_A, sizes to choose from.

    References: DynaHB section 5.2, equation 4; algorithm 3, line 2.
    Differs from the paper: nodes are the part's, since each part has a reservoir; at least one batch.
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


# Hybrid batches drawn so that seed, part, size and number alone decide which snapshots and targets they have.


@dataclass(frozen=True, slots=True, eq=False)
class TargetSampler:
    """Draws the batches of one part.

    Attributes:
        seed: of the run.
        part: number of the part.
        groups: its candidates by load.
        snapshots: the training split, T consecutive snapshots.

    Raises:
        PlanError: there is no snapshot, or they do not follow each other.

    References: DynaHB section 4.2 (group sampler) and section 5.1 (definition 3).
    """

    seed: int
    part: int
    groups: LoadGroups
    snapshots: range

    def __post_init__(self) -> None:
        if not len(self.snapshots) or self.snapshots.step != 1:
            raise PlanError(f"batches of snapshots {self.snapshots}: at least one, and consecutive ones, are needed.")

    def batch(self, size: BatchSize, action: int, index: int) -> TargetBatch:
        """One hybrid batch: N_S consecutive snapshots from anywhere, and N_V targets, as many of each load group.

        There are min(N_bg, N_V) groups. Where they do not divide N_V, the groups that give one more are evenly spread
        over the load order and begin anywhere in it, so that no load is preferred in the long run. The action is noted
        and decides nothing: two actions of one size have the same batches.

        Args:
            size: N_S, at most T, and N_V, at most the candidates.
            action: number of the size.
            index: number of the batch, from 0 on.

        Raises:
            PlanError: the size does not fit.

        Differs from the paper: it does not say what happens where N_bg does not divide N_V, and its range of first
        snapshots, [0, T - N_S - 1], leaves the newest snapshot out; [0, T - N_S] does not.
        """
        stream = generator(self.seed, "hybrid/batch", self.part, size.snapshots, size.vertices, index)
        snapshots = self._window(size.snapshots, stream)
        return TargetBatch(self.part, action, index, snapshots, self._targets(size.vertices, stream))

    def snapshot_batch(self, size: BatchSize, index: int, action: int = 0) -> TargetBatch:
        """One snapshot batch: as many consecutive snapshots, with all candidates as targets.

        Args:
            size: N_S, at most T; its number of targets is not read.
            index: number of the batch, such as the step it stands in at.
            action: number of the size it stands in for.

        Raises:
            PlanError: there are fewer snapshots.

        References: DynaHB algorithm 3, lines 8 to 10.
        """
        stream = generator(self.seed, "hybrid/stand-in", self.part, size.snapshots, index)
        return TargetBatch(self.part, action, index, self._window(size.snapshots, stream), self.groups.candidates)

    def _window(self, length: int, stream: np.random.Generator) -> range:
        whole = len(self.snapshots)
        if length > whole:
            raise PlanError(f"a batch of {length} snapshots of a training split of {whole}: at most all are allowed.")
        first = int(stream.integers(whole - length + 1))
        return self.snapshots[first : first + length]

    def _targets(self, vertices: int, stream: np.random.Generator) -> NDArray[np.int64]:
        """Places of N_V candidates, ascending, each once."""
        bounds = self.groups.bounds(vertices)
        chosen = []
        for start, length, count in zip(bounds[:-1], np.diff(bounds), _counts(vertices, bounds, stream), strict=True):
            places = stream.choice(length, count, replace=False, shuffle=False) if count < length else np.arange(length)
            chosen.append(start + places)
        return np.sort(self.groups.order[np.concatenate(chosen)])


def _counts(vertices: int, bounds: NDArray[np.int64], stream: np.random.Generator) -> NDArray[np.int64]:
    """Targets of each group: N_V / groups, and one more in some that can give it, so that the sum is N_V."""
    lengths = np.diff(bounds)
    each, more = divmod(vertices, len(lengths))
    counts = np.full(len(lengths), each)
    able = np.flatnonzero(lengths > each)
    if more:
        start = int(stream.integers(len(able)))
        turns = (np.arange(len(able) + 1) * more + start) // len(able)
        counts[able] += np.diff(turns)
    return counts
