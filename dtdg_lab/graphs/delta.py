"""Deltas between successive snapshots, and their transfer sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError, PlanError
from dtdg_lab.core.plans import SnapshotBlocks
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot, edge_keys, keys_of, places_of, read_only, sources, targets

# The two transfer formats of a snapshot's edges: CSR and pairs of nodes.


VALUE_BYTES = 4  # float32


@dataclass(frozen=True, slots=True)
class TransferFormat:
    """Encoding of a snapshot, whole or as the difference from the snapshot before.

    A whole snapshot is row offsets and sources, or pairs (target, source). In a difference, a removed edge is its
    position among the edges before, or its pair. An added edge is its pair. Both come with the values of all edges.

    Attributes:
        name: its name in tables.
        index_bytes: bytes of one number.
        pairs: whether all edges are encoded as pairs.
        always_valued: whether values are sent even where edges carry no weight.
    """

    name: str
    index_bytes: int
    pairs: bool
    always_valued: bool

    @property
    def dtype(self) -> np.dtype[np.signedinteger]:
        """Type of the numbers."""
        return np.dtype(f"i{self.index_bytes}")

    def valued(self, weighted: bool) -> bool:
        """Return whether values are sent."""
        return weighted or self.always_valued

    def whole_numbers(self, nodes: int, edges: int) -> int:
        """Count the numbers of a whole snapshot of N nodes and E edges, without its values."""
        return 2 * edges if self.pairs else nodes + 1 + edges

    def difference_numbers(self, leaving: int, arriving: int) -> int:
        """Count the numbers of a difference, without the values."""
        return 2 * arriving + leaving * (2 if self.pairs else 1)

    def value_bytes(self, edges: int, weighted: bool) -> int:
        """Return the bytes of the values of E edges."""
        return VALUE_BYTES * edges if self.valued(weighted) else 0


CSR32 = TransferFormat("csr32", 4, pairs=False, always_valued=False)
COO64 = TransferFormat("coo64", 8, pairs=True, always_valued=True)
FORMATS: Mapping[str, TransferFormat] = MappingProxyType({form.name: form for form in (CSR32, COO64)})


# Consecutive snapshots encoded as the first one and differences. Decoding restores the same arrays bit for bit.
#
# A difference holds the positions of removed edges, the pairs (target, source) of added edges, and all values where
# edges have values. Positions of added edges are not sent: both ends keep edges in the order of their keys. A snapshot
# is sent whole where its difference would be larger.
#
# Source: ESDG section 3.2. Differs from the paper: it sends the pairs of removed edges. Positions take half the bytes.


_MOST_EDGES = 2**31 - 1  # places among edges are kept as int32
Keys = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Part:
    """The sizes of one snapshot within a payload.

    Attributes:
        edges: E.
        leaving: removed edges of the snapshot before; 0 where it is sent whole.
        arriving: added edges; E where it is sent whole.
        is_whole: whether it is sent whole.
    """

    edges: int
    leaving: int
    arriving: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Contents:
    """Layout of a payload. Sender and receiver both know it; it is not sent.

    Attributes:
        form: encoding of the numbers.
        nodes: N.
        weighted: whether the snapshots carry weights.
        parts: one for each of S snapshots.
    """

    form: TransferFormat
    nodes: int
    weighted: bool
    parts: tuple[Part, ...]

    def pieces(self) -> Iterator[tuple[Part, tuple[slice, ...], slice]]:
        """Yield each part with the slices of its numbers and of its values.

        A whole snapshot has (offsets, sources), or (targets, sources) in pairs. A difference has (removed positions,
        targets, sources), or (removed targets, removed sources, targets, sources) in pairs.
        """
        start = value_at = 0
        for part in self.parts:
            slices = []
            for length in self._lengths(part):
                slices.append(slice(start, start + length))
                start += length
            yield part, tuple(slices), slice(value_at, value_at + part.edges)
            value_at += part.edges

    def _lengths(self, part: Part) -> tuple[int, ...]:
        if part.is_whole:
            return (part.edges if self.form.pairs else self.nodes + 1, part.edges)
        leaving = (part.leaving,) * (2 if self.form.pairs else 1)
        return (*leaving, part.arriving, part.arriving)


@dataclass(frozen=True, slots=True, eq=False)
class Payload:
    """S snapshots in two flat, read-only arrays, which two copies move.

    Attributes:
        contents: layout of the arrays.
        numbers: (W,) of the format's type.
        values: (sum of E,) float32; None where edges have no values.
    """

    contents: Contents
    numbers: NDArray[Any]
    values: NDArray[np.float32] | None

    @property
    def nbytes(self) -> int:
        """Bytes sent."""
        return self.numbers.nbytes + (0 if self.values is None else self.values.nbytes)


def encode(snapshots: Sequence[Snapshot], form: TransferFormat = CSR32, *, difference: bool = True) -> Payload:
    """Encode snapshots as a payload. Without ``difference`` each is whole, and every array is copied once.

    Raises:
        DataError: the snapshots differ in nodes or in having weights, or one has more edges than can be numbered.
    """
    nodes, weighted = _common(snapshots)
    parts: list[Part] = []
    numbers: list[NDArray[Any]] = []
    previous_keys = np.empty(0, np.int64)
    for index, snapshot in enumerate(snapshots):
        part = Part(snapshot.num_edges, 0, snapshot.num_edges, is_whole=True)
        pieces: tuple[NDArray[Any], ...] = ()
        if difference:
            keys = edge_keys(snapshot)
            leaving, arriving = changed(previous_keys, keys) if index else (_NONE, _NONE)
            less = form.difference_numbers(len(leaving), len(arriving)) < form.whole_numbers(nodes, part.edges)
            if index and less:
                part = Part(snapshot.num_edges, len(leaving), len(arriving), is_whole=False)
                gone = _pair(previous_keys[leaving]) if form.pairs else (leaving,)
                pieces = (*gone, *_pair(keys[arriving]))
            previous_keys = keys
        if part.is_whole:
            pieces = (snapshot.rows() if form.pairs else snapshot.indptr, snapshot.indices)
        parts.append(part)
        numbers += pieces
    joined = np.concatenate(numbers or [_NONE], dtype=form.dtype, casting="same_kind")
    values = _values(snapshots) if form.valued(weighted) else None
    return Payload(Contents(form, nodes, weighted, tuple(parts)), read_only(joined), values)


def decode(payload: Payload) -> list[Snapshot]:
    """Decode the snapshots of a payload bit for bit. Whole snapshots share its memory where possible."""
    contents, numbers, snapshots = payload.contents, payload.numbers, []
    keys: Keys | None = None
    indptr = np.zeros(contents.nodes + 1, np.int64)
    for part, slices, values_at in contents.pieces():
        pieces = [numbers[piece] for piece in slices]
        if part.is_whole and not contents.form.pairs:
            indptr, indices = pieces[0].astype(np.int64), pieces[1]
            keys = None  # made when a difference follows
        else:
            if part.is_whole:
                keys = keys_of(pieces[1], pieces[0])
                gone, rises = keys[:0], pieces[0]
                indptr = np.zeros_like(indptr)
            else:
                keys = keys_of(indices, _rows(indptr)) if keys is None else keys
                places = np.searchsorted(keys, keys_of(pieces[1], pieces[0])) if contents.form.pairs else pieces[0]
                gone, rises = keys[places], pieces[-2]
                keys = replaced(keys, places, keys_of(pieces[-1], pieces[-2]))
            indptr = indptr + _offsets(rises, targets(gone), contents.nodes)
            indices = sources(keys)
        weights = payload.values[values_at] if contents.weighted and payload.values is not None else None
        snapshots.append(Snapshot.trusted(read_only(indptr), read_only(indices), weights))
    return snapshots


def decode_pairs(payload: Payload) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Return the targets and sources, (E,) int64 each, of every snapshot of a payload in the form ``COO64``.

    The paper's program trains from these; the lab only compares with them.
    """
    pairs: list[tuple[NDArray[Any], NDArray[Any]]] = []
    keys: Keys | None = None
    for part, slices, _ in payload.contents.pieces():
        pieces = [payload.numbers[piece] for piece in slices]
        if part.is_whole:
            keys = None
            pairs.append((pieces[0], pieces[1]))
            continue
        keys = keys_of(pairs[-1][1], pairs[-1][0]) if keys is None else keys
        keys = replaced(keys, np.searchsorted(keys, keys_of(pieces[1], pieces[0])), keys_of(pieces[3], pieces[2]))
        pairs.append((targets(keys), sources(keys).astype(np.int64)))
    return pairs


def changed(old_keys: Keys, new_keys: Keys) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of removed keys in ``old_keys``, and of added keys in ``new_keys``.

    Both rise without duplicates. One merge of sorted runs finds the keys of one side only; only these are looked up.
    """
    merged = np.concatenate([old_keys, new_keys])
    merged.sort(kind="stable")  # merges two sorted runs in one pass
    alone = np.ones(len(merged) + 1, dtype=bool)
    alone[1:-1] = merged[1:] != merged[:-1]
    once = merged.compress(alone[:-1] & alone[1:])
    positions, is_old = places_of(old_keys, once)
    return positions[is_old], np.searchsorted(new_keys, once[~is_old])


def replaced(keys: Keys, leaving: NDArray[Any], arriving: Keys) -> Keys:
    """Return rising keys without the positions ``leaving``, merged with the rising keys ``arriving``."""
    if len(leaving):
        stays = np.ones(len(keys), dtype=bool)
        stays[leaving] = False
        keys = keys.compress(stays)
    if not len(arriving):
        return keys
    merged = np.concatenate([keys, arriving])
    merged.sort(kind="stable")  # merges two sorted runs: half the time of looking up where arrivals go
    return merged


def _offsets(arriving: NDArray[Any], leaving: NDArray[Any], nodes: int) -> NDArray[np.int64]:
    """Return the change of offsets when edges into these targets are added and removed, (N + 1,)."""
    rise = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(arriving, minlength=nodes) - np.bincount(leaving, minlength=nodes), out=rise[1:])
    return rise


def _rows(indptr: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def _pair(keys: Keys) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    return targets(keys), sources(keys)


def _values(snapshots: Sequence[Snapshot]) -> NDArray[np.float32]:
    parts = [
        np.ones(snapshot.num_edges, np.float32) if snapshot.weights is None else snapshot.weights
        for snapshot in snapshots
    ]
    return read_only(np.concatenate(parts or [np.empty(0, np.float32)]))


def _common(snapshots: Sequence[Snapshot]) -> tuple[int, bool]:
    """Return N and whether edges carry weights, which all snapshots share."""
    kinds = {(snapshot.num_nodes, snapshot.weights is not None) for snapshot in snapshots}
    if len(kinds) > 1:
        raise DataError(
            f"snapshots that differ in nodes or in having weights cannot follow one another: {sorted(kinds)} "
            "(nodes, weighted). Build them as one graph."
        )
    max_edges = max((snapshot.num_edges for snapshot in snapshots), default=0)
    if max_edges > _MOST_EDGES:
        raise DataError(
            f"a snapshot of {max_edges:,} edges; at most {_MOST_EDGES:,} can be numbered. Cut the data finer."
        )
    return kinds.pop() if kinds else (0, False)


_NONE = np.empty(0, np.int64)


# Transfer sizes of snapshots, whole and as differences, counted from their edges without encoding them.


@dataclass(frozen=True, slots=True, eq=False)
class SequenceChanges:
    """Edge changes of T consecutive snapshots of N nodes.

    Attributes:
        nodes: N.
        weighted: whether they carry weights.
        edges: (T,) edges of each snapshot.
        leaving: (T,) edges removed since the snapshot before; 0 for the first.
        arriving: (T,) edges added since the snapshot before; 0 for the first.
    """

    nodes: int
    weighted: bool
    edges: NDArray[np.int64]
    leaving: NDArray[np.int64]
    arriving: NDArray[np.int64]

    @property
    def overlap(self) -> float:
        """Share of edges that the snapshot before has too, over all snapshots but the first; 0 without edges."""
        later = int(self.edges[1:].sum())
        return 1 - int(self.arriving[1:].sum()) / later if later else 0.0

    def whole_bytes(self, form: TransferFormat) -> NDArray[np.int64]:
        """Return the bytes of each snapshot sent whole, (T,)."""
        numbers = [form.whole_numbers(self.nodes, int(edges)) for edges in self.edges]
        return np.array(numbers, np.int64) * form.index_bytes + self._values(form)

    def difference_bytes(self, form: TransferFormat) -> NDArray[np.int64]:
        """Return the bytes of each snapshot as a difference, (T,), or whole where that is smaller."""
        pairs = zip(self.leaving, self.arriving, strict=True)
        numbers = [form.difference_numbers(int(gone), int(came)) for gone, came in pairs]
        return np.minimum(np.array(numbers, np.int64) * form.index_bytes + self._values(form), self.whole_bytes(form))

    def brought(self, form: TransferFormat, ranges: Iterable[range]) -> tuple[int, int]:
        """Return the bytes of ranges of snapshots, as (differences, whole).

        The first snapshot of each range is always sent whole.
        """
        whole_bytes, difference_bytes = self.whole_bytes(form), self.difference_bytes(form)
        differences = everything = 0
        for part in ranges:
            if len(part):
                everything += int(whole_bytes[part.start : part.stop].sum())
                differences += int(whole_bytes[part.start]) + int(difference_bytes[part.start + 1 : part.stop].sum())
        return differences, everything

    def _values(self, form: TransferFormat) -> NDArray[np.int64]:
        return np.array([form.value_bytes(int(edges), self.weighted) for edges in self.edges], np.int64)


def scaled(changes: SequenceChanges, factor: float) -> SequenceChanges:
    """Return the sequence with ``factor`` times the nodes and edges, of equal density and overlap.

    Raises:
        PlanError: the factor leaves no node.
    """
    nodes = round(changes.nodes * factor)
    if nodes < 1:
        raise PlanError(f"{changes.nodes} nodes times {factor:g} leaves none: give a larger factor.")
    edges, leaving, arriving = (
        np.rint(counts * factor).astype(np.int64) for counts in (changes.edges, changes.leaving, changes.arriving)
    )
    return replace(changes, nodes=nodes, edges=edges, leaving=leaving, arriving=arriving)


def sequence_changes(snapshots: Sequence[Snapshot]) -> SequenceChanges:
    """Count the edge changes of consecutive snapshots over the same nodes; at least one snapshot."""
    edges = np.array([snapshot.num_edges for snapshot in snapshots], np.int64)
    leaving, arriving = np.zeros_like(edges), np.zeros_like(edges)
    previous_keys = edge_keys(snapshots[0])
    for index in range(1, len(snapshots)):
        keys = edge_keys(snapshots[index])
        gone, came = changed(previous_keys, keys)
        leaving[index], arriving[index], previous_keys = len(gone), len(came), keys
    return SequenceChanges(snapshots[0].num_nodes, snapshots[0].weights is not None, edges, leaving, arriving)


def own_ranges(plan: SnapshotBlocks) -> list[range]:
    """Return the snapshots that each group of ranks loads in each block, without empty ranges."""
    ranges = [plan.own(block, group * plan.row_ranks) for block in range(plan.blocks) for group in range(plan.groups)]
    return [interval for interval in ranges if len(interval)]


def benefiting_share(plan: SnapshotBlocks) -> float:
    """Return the share of snapshots that can be sent as a difference: their rank holds the one before.

    With blocks of bsize snapshots on K groups of ranks it is (bsize - K) / bsize, where all numbers divide.

    References: ESDG section 6.2.
    """
    return 1 - len(own_ranges(plan)) / len(plan.snapshots)


# Device memory of a graph's operators.


def operator_bytes(graph: DynamicGraph, snapshots: range, itemsize: int) -> int:
    """Return the bytes of snapshots on a device: features, and an index and a value for each edge and its transpose.

    Args:
        graph: T snapshots of N nodes.
        snapshots: the ones to count.
        itemsize: bytes of a number.
    """
    edges = int(graph.num_edges[snapshots.start : snapshots.stop].sum()) + len(snapshots) * graph.num_nodes
    return edges * 2 * (4 + itemsize) + len(snapshots) * graph.num_nodes * graph.num_features * itemsize


def kept_bytes(graph: DynamicGraph, plan: SnapshotBlocks, itemsize: int) -> int:
    """Return the bytes of the operators of all blocks, on the rank that needs most."""
    blocks = range(plan.blocks)
    return max(sum(operator_bytes(graph, plan.own(b, rank), itemsize) for b in blocks) for rank in range(plan.ranks))
