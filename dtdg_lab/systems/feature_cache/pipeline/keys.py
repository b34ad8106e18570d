"""Keys of feature rows, the parts that own them, and the rows of one part."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class KeySpace:
    """Keys of all rows: node v of snapshot t has key ``t * N + v``; static features have one snapshot.

    Attributes:
        owner: (N,) part of every node, from 0.
        parts: P, above every owner.
        snapshots: T if features differ between snapshots, otherwise 1.
        places: (N,) index of each node among its part's nodes, ascending.
        sizes: (P,) number of nodes of each part.
    """

    owner: NDArray[np.int32]
    parts: int
    snapshots: int = 1
    places: NDArray[np.int32] = field(init=False)
    sizes: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        owner = np.array(self.owner, dtype=np.int32)
        order, sizes = np.argsort(owner, kind="stable"), np.bincount(owner, minlength=self.parts)
        places = np.empty(len(owner), dtype=np.int32)
        places[order] = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        for name, array in (("owner", owner), ("places", places), ("sizes", sizes.astype(np.int64))):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def nodes(self) -> int:
        """Number of nodes N."""
        return len(self.owner)

    @property
    def size(self) -> int:
        """Number of keys, which are 0 to ``size - 1``."""
        return self.nodes * self.snapshots

    def key(self, vertices: NDArray[np.int64], snapshots: NDArray[np.int64] | int = 0) -> NDArray[np.int64]:
        """Return the (K,) keys of (K,) nodes in (K,) snapshots or in one; the snapshot is ignored if T is 1."""
        vertices = np.asarray(vertices, dtype=np.int64)
        return vertices if self.snapshots == 1 else np.asarray(snapshots, dtype=np.int64) * self.nodes + vertices

    def vertices(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the nodes (K,) of keys (K,)."""
        return keys if self.snapshots == 1 else keys % self.nodes

    def owners(self, keys: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the parts (K,) that own keys (K,)."""
        return self.owner[self.vertices(keys)]

    def own_places(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index (K,) of each key among its owner's keys, in the order of :meth:`of_part`."""
        if self.snapshots == 1:
            return self.places[keys].astype(np.int64)
        snapshots, vertices = np.divmod(keys, self.nodes)
        return snapshots * self.sizes[self.owner[vertices]] + self.places[vertices]

    def of_part(self, part: int) -> NDArray[np.int64]:
        """Return all keys (K_p,) of a part, ascending: one snapshot after another."""
        vertices = np.flatnonzero(self.owner == part)
        return (np.arange(self.snapshots, dtype=np.int64)[:, None] * self.nodes + vertices).reshape(-1)


@dataclass(frozen=True, slots=True, eq=False)
class OwnRows:
    """Rows of one part, accessed by key without a search.

    Attributes:
        part: the part's index.
        space: the space of all keys.
        rows: (K_p, F) float32, in the order of ``space.of_part(part)``; may be a memory map.
    """

    part: int
    space: KeySpace
    rows: NDArray[np.float32]

    @property
    def features(self) -> int:
        """Number of features F."""
        return self.rows.shape[1]

    def take(self, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return rows (K, F) of own keys (K,), in the same order."""
        return self.rows[self.space.own_places(keys)]
