"""Which row of features is asked for by which number, and which part owns it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError


@dataclass(frozen=True, slots=True, eq=False)
class KeySpace:
    """Keys of all rows: vertex v of snapshot t is ``t * N + v``; features that never change have one snapshot.

    Attributes:
        owner: (N,) part of every vertex, from 0.
        parts: P, above every owner.
        snapshots: T where features differ between snapshots, else 1.
        places: (N,) number of each vertex among its part's, ascending.
        sizes: (P,) vertices of each part.

    Raises:
        PlanError: an owner is not a part, or there is no vertex, part or snapshot.
    """

    owner: NDArray[np.int32]
    parts: int
    snapshots: int = 1
    places: NDArray[np.int32] = field(init=False)
    sizes: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        owner = np.array(self.owner, dtype=np.int32)
        if owner.ndim != 1 or not len(owner) or self.parts < 1 or self.snapshots < 1:
            raise PlanError(
                f"keys of owners {owner.shape}, parts={self.parts}, snapshots={self.snapshots}: one owner for each "
                "vertex and at least one vertex, part and snapshot are needed."
            )
        if owner.min() < 0 or owner.max() >= self.parts:
            raise PlanError(f"owners from {owner.min()} to {owner.max()}: parts are 0 to {self.parts - 1}.")
        order, sizes = np.argsort(owner, kind="stable"), np.bincount(owner, minlength=self.parts)
        places = np.empty(len(owner), dtype=np.int32)
        places[order] = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        for name, own in (("owner", owner), ("places", places), ("sizes", sizes.astype(np.int64))):
            own.setflags(write=False)
            object.__setattr__(self, name, own)

    @property
    def nodes(self) -> int:
        """N."""
        return len(self.owner)

    @property
    def size(self) -> int:
        """Number of keys: they are 0 to ``size - 1``."""
        return self.nodes * self.snapshots

    def key(self, vertices: NDArray[np.int64], snapshots: NDArray[np.int64] | int = 0) -> NDArray[np.int64]:
        """Keys (K,) of vertices (K,) in snapshots (K,), or all in one; the snapshot means nothing where T is 1."""
        vertices = np.asarray(vertices, dtype=np.int64)
        return vertices if self.snapshots == 1 else np.asarray(snapshots, dtype=np.int64) * self.nodes + vertices

    def vertices(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The vertices (K,) of keys (K,)."""
        return keys if self.snapshots == 1 else keys % self.nodes

    def owners(self, keys: NDArray[np.int64]) -> NDArray[np.int32]:
        """The parts (K,) that own keys (K,)."""
        return self.owner[self.vertices(keys)]

    def own_places(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Place (K,) of each key among its owner's keys, as :meth:`of_part` lists them."""
        if self.snapshots == 1:
            return self.places[keys].astype(np.int64)
        snapshots, vertices = np.divmod(keys, self.nodes)
        return snapshots * self.sizes[self.owner[vertices]] + self.places[vertices]

    def of_part(self, part: int) -> NDArray[np.int64]:
        """All keys (K_p,) that a part owns, ascending: snapshot after snapshot."""
        vertices = np.flatnonzero(self.owner == part)
        return (np.arange(self.snapshots, dtype=np.int64)[:, None] * self.nodes + vertices).reshape(-1)
