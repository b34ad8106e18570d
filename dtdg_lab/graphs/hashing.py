"""SHA-256 of a dynamic graph, taken in pieces: the same for a graph in memory and for one that is being written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.graphs.snapshot import Snapshot


class GraphHash:
    """The hash of a graph's arrays; the order of the calls is part of it."""

    def __init__(self, edge_life: int) -> None:
        self._digest = hashlib.sha256(json.dumps(["dtdg-lab graph", 1, edge_life]).encode())

    def snapshot(self, snapshot: Snapshot) -> None:
        """Enter one snapshot."""
        self.array("indptr", snapshot.indptr)
        self.array("indices", snapshot.indices)
        if snapshot.weights is not None:
            self.array("weights", snapshot.weights)

    def array(self, label: str, array: NDArray[np.generic]) -> None:
        """Enter a whole array under a label."""
        self.pieces(label, array.dtype, array.shape, [array])

    def pieces(
        self, label: str, dtype: np.dtype[np.generic], shape: tuple[int, ...], pieces: Iterable[NDArray[np.generic]]
    ) -> None:
        """Enter an array of this type and shape that comes in pieces, in order."""
        self._digest.update(f"{label}{dtype.str}{shape}".encode())
        for piece in pieces:
            if piece.size:
                self._digest.update(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)

    def labels(self, labels: LabelHash) -> None:
        """Enter the label graphs."""
        self._digest.update(f"following{labels.hexdigest()}".encode())

    def hexdigest(self) -> str:
        """The hash in hexadecimal."""
        return self._digest.hexdigest()


class LabelHash(GraphHash):
    """The hash of label graphs: the same whether those that equal the next snapshot are that snapshot or a copy."""

    def follow(self, following: Snapshot, after: Snapshot | None) -> None:
        """Enter the next label graph; ``after`` is the snapshot after its own, None at the last."""
        if after is not None and following.equals(after):
            self.array("next", _NOTHING)
        else:
            self.snapshot(following)


_NOTHING = np.empty(0, dtype=np.uint8)
