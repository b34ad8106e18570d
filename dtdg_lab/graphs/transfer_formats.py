"""The two forms in which a snapshot's edges travel: ours, and the pairs of the ESDG paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

VALUE_BYTES = 4  # float32


@dataclass(frozen=True, slots=True)
class TransferFormat:
    """How many numbers say a snapshot, whole or as its difference from the one before.

    Whole, rows are offsets and sources, or pairs (target, source). As a difference, an edge that leaves is its place
    among the edges before, or its pair; one that arrives is its pair. Values of all edges come beside either.

    Attributes:
        name: what tables call it.
        said: what legends call it.
        index_bytes: of one number.
        pairs: whether edges are pairs throughout.
        always_valued: whether edges have values even where they carry no weight.
    """

    name: str
    said: str
    index_bytes: int
    pairs: bool
    always_valued: bool

    @property
    def dtype(self) -> np.dtype[np.signedinteger]:
        """The type of its numbers."""
        return np.dtype(f"i{self.index_bytes}")

    def valued(self, weighted: bool) -> bool:
        """Whether values travel."""
        return weighted or self.always_valued

    def whole_numbers(self, nodes: int, edges: int) -> int:
        """Numbers of a whole snapshot of N vertices and E edges, beside its values."""
        return 2 * edges if self.pairs else nodes + 1 + edges

    def difference_numbers(self, leaving: int, arriving: int) -> int:
        """Numbers of a difference, beside the values; nothing else is sent."""
        return 2 * arriving + leaving * (2 if self.pairs else 1)

    def value_bytes(self, edges: int, weighted: bool) -> int:
        """Bytes of the values of E edges."""
        return VALUE_BYTES * edges if self.valued(weighted) else 0


CSR32 = TransferFormat("csr32", "CSR, int32", 4, pairs=False, always_valued=False)
COO64 = TransferFormat("coo64", "pairs, int64 (paper)", 8, pairs=True, always_valued=True)
FORMATS: Mapping[str, TransferFormat] = MappingProxyType({each.name: each for each in (CSR32, COO64)})
