"""The GCN operator Ã = D^-1/2 (A + I) D^-1/2, applied as row scalings around a plain neighbour sum."""

from __future__ import annotations

import torch
from torch import Tensor

from dtdg_lab.kernels.adjacency import Adjacency


class GCNOperator:
    """Rows of Ã for one snapshot; D = 1 + weighted in-degree on both sides (SYSTEMS.md, notation).

    Args:
        adjacency: the rows' in-neighbours, (n, N).
        degrees: (N,) weighted in-degree of every vertex.
        rows: which vertices the n rows are.
    """

    def __init__(self, adjacency: Adjacency, degrees: Tensor, rows: range) -> None:
        self._adjacency = adjacency
        self._scale = torch.rsqrt(1.0 + degrees).unsqueeze(1)
        self._row_scale = self._scale[rows.start : rows.stop]
        self._rows = rows

    def apply(self, x: Tensor) -> Tensor:
        """Ã x for the rows: (N, F) -> (n, F)."""
        scaled = x * self._scale
        own = scaled if len(self._rows) == len(x) else scaled[self._rows.start : self._rows.stop]
        return (self._adjacency.multiply(scaled) + own) * self._row_scale
