"""What matrices need of their rows when these are tensors: transposes, and an edge from every vertex to itself.

The same as the numpy functions that matrices of the host use, without leaving the device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dtdg_lab.kernels.difference import edge_rows


def transposed_order(indptr: Tensor, indices: Tensor) -> Tensor:
    """Which edge each edge of the transpose is, (E,) int64; ``indptr`` is (n + 1,), ``indices`` (E,)."""
    height = max(len(indptr) - 1, 1)
    return torch.argsort(indices.long() * height + edge_rows(indptr, len(indices)), stable=True)


def transposed(
    indptr: Tensor, indices: Tensor, weights: Tensor | None, columns: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Offsets (M + 1,), rows (E,) and weights of the transpose of n rows and M columns; types as given."""
    order = transposed_order(indptr, indices)
    counts = torch.zeros(columns + 1, dtype=indptr.dtype, device=indptr.device)
    counts.index_add_(0, indices.long() + 1, torch.ones_like(indices, dtype=indptr.dtype))
    rows = edge_rows(indptr, len(indices))[order].to(indices.dtype)
    return counts.cumsum(0, dtype=indptr.dtype), rows, None if weights is None else weights[order]


def without_loops(indptr: Tensor, indices: Tensor, first: int) -> tuple[Tensor, Tensor]:
    """The edges that are not self loops, where row i is vertex ``first + i``: offsets (n + 1,) and in-neighbours."""
    kept = indices != edge_rows(indptr, len(indices)) + first
    dropped = torch.zeros(len(indices) + 1, dtype=indptr.dtype, device=indptr.device)
    dropped[1:] = (~kept).cumsum(0)
    return indptr - dropped[indptr.long()], indices[kept]


def with_self(
    indptr: Tensor, indices: Tensor, first: int, values: Tensor | None = None, own: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Every row's own vertex before its in-neighbours; a self loop that is there stays beside it.

    Args:
        indptr: (n + 1,).
        indices: (E,).
        first: the vertex of row 0.
        values: (E,) of the edges; None where there are none.
        own: (n,) of the new edges, where there are values.

    Returns:
        Offsets (n + 1,), in-neighbours (E + n,) and their values.
    """
    rows = len(indptr) - 1
    numbers = torch.arange(rows + 1, dtype=indptr.dtype, device=indptr.device)
    places = (indptr + numbers)[:-1].long()
    moved = torch.arange(len(indices), device=indptr.device) + edge_rows(indptr, len(indices)) + 1

    def joined(edges: Tensor, selves: Tensor) -> Tensor:
        merged = edges.new_empty(len(edges) + rows)
        merged[moved] = edges
        merged[places] = selves.to(edges.dtype)
        return merged

    both = None if values is None or own is None else joined(values, own)
    return indptr + numbers, joined(indices, numbers[:-1] + first), both
