"""Consecutive snapshots as the first one and the differences after it, which give back the same arrays bit for bit.

Of a snapshot that follows another travel the places of the edges that leave, the pairs (target, source) of those that
arrive, and, where edges have values, all values. Nothing says which pairs are common or where arrivals go: both ends
keep edges in the order of their keys. A snapshot whose difference would be the larger is sent whole.

Source: ESDG section 3.2. Differs from the paper: it sends the pairs of the edges that leave; their places take half.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.arrays import give_up
from dtdg_lab.graphs.keys import edge_keys, keys_of, sources, targets
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.graphs.transfer_formats import CSR32, TransferFormat

_MOST_EDGES = 2**31 - 1  # places among edges are kept as int32
Keys = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Part:
    """What of a payload is one snapshot.

    Attributes:
        edges: E.
        leaving: edges of the snapshot before that it does not have; 0 where it is sent whole.
        arriving: its edges that the one before does not have; E where it is sent whole.
        whole: whether it is sent whole.
    """

    edges: int
    leaving: int
    arriving: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Contents:
    """What a payload holds: known to the end that sends and to the one that unpacks, and never sent itself.

    Attributes:
        form: of the numbers.
        nodes: N.
        weighted: whether the snapshots carry weights.
        parts: one for each of S snapshots.
    """

    form: TransferFormat
    nodes: int
    weighted: bool
    parts: tuple[Part, ...]

    def pieces(self) -> Iterator[tuple[Part, tuple[slice, ...], slice]]:
        """Each part with where its numbers and its values stand.

        Numbers of a whole snapshot are (offsets, sources), or of pairs (targets, sources); of a difference (places
        that leave, targets, sources), or of pairs (leaving targets, leaving sources, targets, sources).
        """
        at = value_at = 0
        for part in self.parts:
            slices = []
            for length in self._lengths(part):
                slices.append(slice(at, at + length))
                at += length
            yield part, tuple(slices), slice(value_at, value_at + part.edges)
            value_at += part.edges

    def _lengths(self, part: Part) -> tuple[int, ...]:
        if part.whole:
            return (part.edges if self.form.pairs else self.nodes + 1, part.edges)
        leaving = (part.leaving,) * (2 if self.form.pairs else 1)
        return (*leaving, part.arriving, part.arriving)


@dataclass(frozen=True, slots=True, eq=False)
class Payload:
    """S snapshots in two flat arrays, so that two copies move them; read-only.

    Attributes:
        contents: what is in them.
        numbers: (W,) of the form's type.
        values: (sum of E,) float32; None where edges have no values.
    """

    contents: Contents
    numbers: NDArray[Any]
    values: NDArray[np.float32] | None

    @property
    def nbytes(self) -> int:
        """Bytes that travel."""
        return self.numbers.nbytes + (0 if self.values is None else self.values.nbytes)


def encode(snapshots: Sequence[Snapshot], form: TransferFormat = CSR32, *, difference: bool = True) -> Payload:
    """Snapshots as a payload; without ``difference`` each is whole, and every array is copied once.

    Raises:
        DataError: the snapshots do not fit together, or one has more edges than can be numbered.
    """
    nodes, weighted = _common(snapshots)
    parts: list[Part] = []
    numbers: list[NDArray[Any]] = []
    before = np.empty(0, np.int64)
    for place, snapshot in enumerate(snapshots):
        part = Part(snapshot.num_edges, 0, snapshot.num_edges, whole=True)
        pieces: tuple[NDArray[Any], ...] = ()
        if difference:
            keys = edge_keys(snapshot)
            leaving, arriving = changed(before, keys) if place else (_NONE, _NONE)
            less = form.difference_numbers(len(leaving), len(arriving)) < form.whole_numbers(nodes, part.edges)
            if place and less:
                part = Part(snapshot.num_edges, len(leaving), len(arriving), whole=False)
                gone = _pair(before[leaving]) if form.pairs else (leaving,)
                pieces = (*gone, *_pair(keys[arriving]))
            before = keys
        if part.whole:
            pieces = (snapshot.rows() if form.pairs else snapshot.indptr, snapshot.indices)
        parts.append(part)
        numbers += pieces
    joined = np.concatenate(numbers or [_NONE], dtype=form.dtype, casting="same_kind")
    values = _values(snapshots) if form.valued(weighted) else None
    return Payload(Contents(form, nodes, weighted, tuple(parts)), give_up(joined), values)


def decode(payload: Payload) -> list[Snapshot]:
    """The snapshots of a payload, equal to those encoded in every bit; whole ones share its memory where they can."""
    contents, numbers, found = payload.contents, payload.numbers, []
    keys: Keys | None = None
    indptr = np.zeros(contents.nodes + 1, np.int64)
    for part, at, values_at in contents.pieces():
        own = [numbers[each] for each in at]
        if part.whole and not contents.form.pairs:
            indptr, indices = own[0].astype(np.int64), own[1]
            keys = None  # made when a difference follows
        else:
            if part.whole:
                keys = keys_of(own[1], own[0])
                gone, rises = keys[:0], own[0]
                indptr = np.zeros_like(indptr)
            else:
                keys = keys_of(indices, _rows(indptr)) if keys is None else keys
                places = np.searchsorted(keys, keys_of(own[1], own[0])) if contents.form.pairs else own[0]
                gone, rises = keys[places], own[-2]
                keys = replaced(keys, places, keys_of(own[-1], own[-2]))
            indptr = indptr + _offsets(rises, targets(gone), contents.nodes)
            indices = sources(keys)
        weights = payload.values[values_at] if contents.weighted and payload.values is not None else None
        found.append(Snapshot.trusted(give_up(indptr), give_up(indices), weights))
    return found


def decode_pairs(payload: Payload) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """The targets and sources, (E,) int64 each, of every snapshot of a payload in the form ``COO64``.

    What the paper's program trains from: kept to compare with.
    """
    found: list[tuple[NDArray[Any], NDArray[Any]]] = []
    keys: Keys | None = None
    for part, at, _ in payload.contents.pieces():
        own = [payload.numbers[each] for each in at]
        if part.whole:
            keys = None
            found.append((own[0], own[1]))
            continue
        keys = keys_of(found[-1][1], found[-1][0]) if keys is None else keys
        keys = replaced(keys, np.searchsorted(keys, keys_of(own[1], own[0])), keys_of(own[3], own[2]))
        found.append((targets(keys), sources(keys).astype(np.int64)))
    return found


def changed(before: Keys, after: Keys) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places in ``before`` of keys that are not in ``after``, and places in ``after`` of those that are not in before.

    Both rise without duplicates. One merge of sorted runs finds what stands alone; only this is then looked up.
    """
    merged = np.concatenate([before, after])
    merged.sort(kind="stable")  # merges two sorted runs in one pass
    alone = np.ones(len(merged) + 1, dtype=bool)
    alone[1:-1] = merged[1:] != merged[:-1]
    once = merged.compress(alone[:-1] & alone[1:])
    place = np.searchsorted(before, once)
    here = place < len(before)
    here[here] = before[place[here]] == once[here]
    return place[here], np.searchsorted(after, once[~here])


def replaced(keys: Keys, leaving: NDArray[Any], arriving: Keys) -> Keys:
    """Rising keys without those at the places ``leaving``, with rising keys ``arriving`` among the rest."""
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
    """What offsets rise by when edges into these targets arrive and leave; (N + 1,)."""
    rise = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(arriving, minlength=nodes) - np.bincount(leaving, minlength=nodes), out=rise[1:])
    return rise


def _rows(indptr: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def _pair(keys: Keys) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    return targets(keys), sources(keys)


def _values(snapshots: Sequence[Snapshot]) -> NDArray[np.float32]:
    parts = [np.ones(of.num_edges, np.float32) if of.weights is None else of.weights for of in snapshots]
    return give_up(np.concatenate(parts or [np.empty(0, np.float32)]))


def _common(snapshots: Sequence[Snapshot]) -> tuple[int, bool]:
    """N and whether there are weights, the same for all."""
    kinds = {(of.num_nodes, of.weights is not None) for of in snapshots}
    if len(kinds) > 1:
        raise DataError(
            f"snapshots that differ in vertices or in having weights cannot follow one another: {sorted(kinds)} "
            "(vertices, weighted). Build them as one graph."
        )
    most = max((of.num_edges for of in snapshots), default=0)
    if most > _MOST_EDGES:
        raise DataError(f"a snapshot of {most:,} edges; at most {_MOST_EDGES:,} can be numbered. Cut the data finer.")
    return kinds.pop() if kinds else (0, False)


_NONE = np.empty(0, np.int64)
