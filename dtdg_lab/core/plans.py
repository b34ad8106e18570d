"""Plans: immutable index arrays, made for P parts independently of the number of ranks.

A *snapshot* is the graph of one time window; a *group* is a run of consecutive snapshots trained from a zero state;
a *part* is a share of the work in a plan; a *rank* is a process, which executes P / R parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError, UnsupportedError


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotGroups:
    """Groups of consecutive snapshots: group k holds snapshots ``start[k] .. stop[k] - 1``; shapes (K,).

    Raises:
        PlanError: the vectors are not two equal, non-empty ones of whole numbers, or a group is empty.
    """

    start: NDArray[np.int64]
    stop: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in ("start", "stop"):
            vector = np.asarray(getattr(self, name))
            if not np.issubdtype(vector.dtype, np.integer):
                raise PlanError(f"{name} of the groups must be whole numbers, not {vector.dtype}.")
            object.__setattr__(self, name, _read_only(vector))
        if self.start.shape != self.stop.shape or self.start.ndim != 1 or not len(self.start):
            raise PlanError(
                f"groups need two equal, non-empty vectors, not shapes {self.start.shape}, {self.stop.shape}."
            )
        if not (self.start >= 0).all() or not (self.stop > self.start).all():
            raise PlanError("every group must hold at least one snapshot and start at 0 or later.")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SnapshotGroups):
            return NotImplemented
        return np.array_equal(self.start, other.start) and np.array_equal(self.stop, other.stop)

    def __hash__(self) -> int:
        return hash((self.start.tobytes(), self.stop.tobytes()))

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The groups of each part in each iteration.

    Every group appears exactly once; a part may be idle in an iteration.

    Attributes:
        assignment: ``assignment[iteration][part]`` is a tuple of group ids.
        groups: K.
        notes: remarks for the user on its making; may be empty.
        gap: optimality gap of its makespan, relative to a lower bound; None if unknown.
        seconds: duration of its making.
        targets: maximum number of targets that DyGNeX-G tried per iteration, K for all; None for other schedulers.

    Raises:
        PlanError: a group is lost, repeated or unknown, or an iteration is empty or has other parts than the rest.
    """

    assignment: tuple[tuple[tuple[int, ...], ...], ...]
    groups: int
    notes: str = ""
    gap: float | None = None
    seconds: float = field(default=0.0, compare=False)
    targets: int | None = None

    def __post_init__(self) -> None:
        if not self.assignment:
            raise PlanError("a schedule must have at least one group and one iteration.")
        assigned = sorted(group for iteration in self.assignment for part in iteration for group in part)
        if assigned != list(range(self.groups)):
            missing = sorted(set(range(self.groups)) - set(assigned))
            raise PlanError(
                f"a schedule holds each of {self.groups} groups once; missing {missing[:8]}, {len(assigned)} placed."
            )
        if len({len(iteration) for iteration in self.assignment}) > 1:
            raise PlanError("every iteration must name the same number of parts.")
        if any(not any(iteration) for iteration in self.assignment):
            raise PlanError("an iteration without any group would update the model by nothing.")

    @property
    def parts(self) -> int:
        """The number of parts, P."""
        return len(self.assignment[0])

    def loads(self, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return predicted seconds of each part in each iteration, shape (iterations, P)."""
        return np.array([[sum(times_s[group] for group in part) for part in row] for row in self.assignment], float)

    def makespan_s(self, times_s: NDArray[np.float64], *, allreduce_s: float = 0.0) -> float:
        """Return predicted seconds of an epoch: the slowest part of each iteration, plus the exchange."""
        return float((self.loads(times_s).max(axis=1) + allreduce_s).sum())


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """The owner of each node in all snapshots; every part owns at least one node.

    Attributes:
        owner: (N,) int32, the part of each node, 0 to P - 1.
        parts: P.
        groups: (N,) int32, the group of each node within its part; None if the partitioner makes no groups.
        data_hash: hash of its graph; empty if it is not tied to a graph.
        made_by: the partitioner with its settings, as text.
        seconds: duration of its making.

    Raises:
        PlanError: the vectors are inconsistent, a part does not exist, or a part owns no node.
    """

    owner: NDArray[np.int32]
    parts: int
    groups: NDArray[np.int32] | None = None
    data_hash: str = ""
    made_by: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "owner", _vertex_numbers("owner", self.owner))
        if not 1 <= self.parts <= len(self.owner):
            raise PlanError(
                f"{self.parts} parts of {len(self.owner)} nodes: from 1 part to one for each node are allowed. "
                "Set parts (and ranks) accordingly."
            )
        if self.owner.min() < 0 or self.owner.max() >= self.parts:
            raise PlanError(
                f"owners run from {self.owner.min()} to {self.owner.max()}; parts are numbered 0 to {self.parts - 1}."
            )
        idle = np.flatnonzero(self.counts == 0)
        if len(idle):
            raise PlanError(
                f"{len(idle)} of {self.parts} parts own no node: {idle[:8].tolist()}. Set fewer parts, or choose "
                "another partitioner."
            )
        if self.groups is not None:
            object.__setattr__(self, "groups", _vertex_numbers("groups", self.groups))
            if self.groups.shape != self.owner.shape or self.groups.min() < 0:
                raise PlanError("groups must give every node a number of at least 0.")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Partition):
            return NotImplemented
        return self.parts == other.parts and np.array_equal(self.owner, other.owner)

    def __hash__(self) -> int:
        return hash((self.parts, self.owner.tobytes()))

    def __repr__(self) -> str:
        return f"Partition({len(self.owner):,} nodes in {self.parts} parts by {self.made_by or 'manual assignment'})"

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of nodes of each part, (P,)."""
        return np.bincount(self.owner, minlength=self.parts)

    def vertices(self, part: int) -> NDArray[np.int64]:
        """Return the nodes of a part, ascending."""
        return np.flatnonzero(self.owner == part)

    def on_ranks(self, ranks: int) -> Partition:
        """Return the partition by rank: rank r runs parts r P / R to (r + 1) P / R - 1.

        Raises:
            PlanError: R does not divide P.
        """
        if ranks < 1 or self.parts % ranks:
            raise PlanError(f"parts={self.parts} must be a multiple of ranks={ranks}.")
        if ranks == self.parts:
            return self
        owner = self.owner // np.int32(self.parts // ranks)
        return Partition(owner, ranks, None, self.data_hash, self.made_by, self.seconds)


def _vertex_numbers(name: str, vector: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return a read-only copy of a vector with one whole number per node."""
    numbers = np.asarray(vector)
    if numbers.ndim != 1 or not len(numbers) or not np.issubdtype(numbers.dtype, np.integer):
        raise PlanError(
            f"{name} must be a non-empty vector of whole numbers, not {numbers.dtype} of shape {numbers.shape}."
        )
    copy = _read_only(numbers, np.int32)
    if (copy != numbers).any():
        raise PlanError(f"{name} holds numbers up to {numbers.max()}; whole numbers below 2^31 are allowed.")
    return copy


def _read_only(array: NDArray[Any], dtype: type[np.integer] = np.int64) -> NDArray[Any]:
    """Return a read-only copy, so that the caller's array stays writable."""
    copy = array.astype(dtype)
    copy.setflags(write=False)
    return copy


@dataclass(frozen=True, slots=True, eq=False)
class HaloPlan:
    """The rows that one part exchanges with the others for an aggregation.

    Made for S stacked snapshots, so that one exchange serves them all. A part's own rows are stacked snapshot after
    snapshot: node i of its n in snapshot s is row s n + i. Rows to and from a part are ordered by snapshot, then by
    global node; q sends the rows for p in the order that p expects.

    Attributes:
        part: its part.
        send: rows that this part sends, those for part 0 first; int64.
        send_counts: (P,) rows sent to each part; 0 to itself.
        receive_counts: (P,) rows received from each part.

    Raises:
        PlanError: counts and rows are inconsistent.
    """

    part: int
    send: NDArray[np.int64]
    send_counts: NDArray[np.int64]
    receive_counts: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in ("send", "send_counts", "receive_counts"):
            object.__setattr__(self, name, _read_only(np.asarray(getattr(self, name))))
        if self.send_counts.shape != self.receive_counts.shape or self.send_counts.sum() != len(self.send):
            raise PlanError(
                f"a halo plan of {len(self.send)} rows to send has counts that sum to {self.send_counts.sum()}, for "
                f"{len(self.send_counts)} parts, and {len(self.receive_counts)} counts of rows to receive."
            )
        if self.send_counts[self.part] or self.receive_counts[self.part]:
            raise PlanError("a part does not exchange rows with itself.")

    @property
    def rows(self) -> int:
        """The number of received rows."""
        return int(self.receive_counts.sum())


@dataclass(frozen=True, slots=True)
class SnapshotBlocks:
    """A sequence of snapshots in time blocks, each assigned to ranks in contiguous shares as even as possible.

    R = K G ranks: G of them split each snapshot by rows (1: no split); rank r belongs to group r // G of K and has
    share r % G of the rows. For temporal layers, each rank has a chunk of its rows' nodes in all snapshots of a block.

    Attributes:
        snapshots: S consecutive snapshots.
        blocks: nb, at most S; block lengths differ by at most one snapshot.
        ranks: R.
        row_ranks: G, which divides R.
        nodes: N, at least R.

    Raises:
        PlanError: there are too few snapshots or nodes.
        UnsupportedError: G does not divide R.

    References: ESDG sections 3.1 (blocks), 4.2 (shares, chunks), 6.5 (hybrid, open there).
    """

    snapshots: range
    blocks: int
    ranks: int
    nodes: int
    row_ranks: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.blocks <= len(self.snapshots):
            raise PlanError(
                f"blocks={self.blocks} of {len(self.snapshots)} snapshots: from 1 block to one for each snapshot of "
                "the training split are allowed. Set fewer blocks, or cut the data finer (cut=...)."
            )
        if self.ranks < 1 or self.row_ranks < 1 or self.ranks % self.row_ranks:
            raise UnsupportedError(
                f"row_ranks={self.row_ranks} does not divide ranks={self.ranks}: every snapshot is split among "
                f"row_ranks of them. Set row_ranks to a divisor of {self.ranks}."
            )
        if self.ranks > self.nodes:
            raise PlanError(
                f"ranks={self.ranks} for {self.nodes} nodes: each rank needs at least one node. "
                f"Set ranks to {self.nodes} or fewer."
            )

    @property
    def groups(self) -> int:
        """The number of rank groups, K; each has a share of the snapshots of every block."""
        return self.ranks // self.row_ranks

    def column(self, rank: int) -> list[int]:
        """Return the K ranks with the same rows as this rank, in the order of their snapshots."""
        return list(range(rank % self.row_ranks, self.ranks, self.row_ranks))

    def block(self, number: int) -> range:
        """Return the snapshots of a block."""
        return share(self.snapshots, number, self.blocks)

    def own(self, block: int, rank: int) -> range:
        """Return the snapshots of a block whose spatial layers a rank computes; may be empty in short blocks."""
        return share(self.block(block), rank // self.row_ranks, self.groups)

    def rows(self, rank: int) -> range:
        """Return the nodes whose rows of these snapshots a rank computes."""
        return share(range(self.nodes), rank % self.row_ranks, self.row_ranks)

    def chunk(self, rank: int) -> range:
        """Return the nodes whose temporal layers a rank computes: a subset of its rows, to stay within its column."""
        return share(self.rows(rank), rank // self.row_ranks, self.groups)


def share(items: range, number: int, count: int) -> range:
    """Return share ``number`` of ``count`` contiguous shares, whose sizes differ by at most one."""
    start, length = items.start, len(items)
    return range(start + length * number // count, start + length * (number + 1) // count)


@dataclass(frozen=True, slots=True)
class BatchSize:
    """The number of snapshots of a hybrid batch, and of target nodes in each.

    Attributes:
        snapshots: N_S, at least 1.
        vertices: N_V, at least 1.

    Raises:
        PlanError: a number is below 1.

    References: DynaHB section 5.1 (definition 3).
    """

    snapshots: int
    vertices: int

    def __post_init__(self) -> None:
        if self.snapshots < 1 or self.vertices < 1:
            raise PlanError(
                f"a batch of {self.snapshots} snapshots with {self.vertices} targets each: at least 1 of both is "
                "needed. Set batch_snapshots and batch_nodes accordingly."
            )

    @property
    def targets(self) -> int:
        """The number of targets over all snapshots, N_S N_V."""
        return self.snapshots * self.vertices


@dataclass(frozen=True, slots=True, eq=False)
class TargetBatch:
    """The targets of a part's step: the same nodes in each of some consecutive snapshots.

    Attributes:
        part: the owner of the nodes.
        action: index of its size among the sizes of the run.
        index: index of the batch among those of its part and size.
        snapshots: N_S consecutive snapshots of the graph.
        targets: (N_V,) int64, indices into the part's own nodes, 0 to n - 1; strictly ascending.

    Raises:
        PlanError: a number is negative, there is no snapshot or no target, snapshots do not follow each other, or
            targets do not ascend.

    References: DynaHB section 5.1 (definition 3).
    """

    part: int
    action: int
    index: int
    snapshots: range
    targets: NDArray[np.int64]

    def __post_init__(self) -> None:
        if min(self.part, self.action, self.index) < 0:
            raise PlanError(
                f"batch {self.index} of action {self.action} of part {self.part}: numbers from 0 on are needed."
            )
        if not len(self.snapshots) or self.snapshots.step != 1 or self.snapshots.start < 0:
            raise PlanError(
                f"a batch of snapshots {list(self.snapshots[:8])}: at least one, and consecutive ones, are needed."
            )
        targets = np.asarray(self.targets)
        if targets.ndim != 1 or not len(targets) or not np.issubdtype(targets.dtype, np.integer):
            raise PlanError(
                f"targets must be a non-empty vector of whole numbers, not {targets.dtype} of shape {targets.shape}."
            )
        if targets[0] < 0 or (np.diff(targets) < 1).any():
            raise PlanError(f"targets begin {targets[:8].tolist()}, but must be strictly ascending from 0 or more.")
        object.__setattr__(self, "targets", _read_only(targets))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TargetBatch):
            return NotImplemented
        return self._numbers == other._numbers and np.array_equal(self.targets, other.targets)

    def __hash__(self) -> int:
        return hash((*self._numbers, self.targets.tobytes()))

    @property
    def _numbers(self) -> tuple[int, int, int, range]:
        return self.part, self.action, self.index, self.snapshots

    @property
    def content(self) -> int:
        """A hash of its snapshots and targets, independent of part, action and index."""
        return hash((self.snapshots, self.targets.tobytes()))

    @property
    def size(self) -> BatchSize:
        """The sizes N_S and N_V."""
        return BatchSize(len(self.snapshots), len(self.targets))
