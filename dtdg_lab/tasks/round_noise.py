"""Rounding of embeddings, so that vertices that are alike tie whatever the order in which a layout sums."""

from __future__ import annotations

import torch
from torch import Tensor

# Bits that are kept of an entry. What layouts differ by is some last bits of 24, or of 53.
BITS = {torch.float32: 14, torch.float64: 30}


def round_noise(z: Tensor) -> Tensor:
    """Every entry rounded to 14 significant bits (30 in float64), as float64; shape (N, C), as given.

    Each entry keeps its own scale, so that a vertex with large entries leaves the others' resolution alone. Entries
    below their column's median magnitude are rounded to multiples of what the median is: those near 0 are differences
    of larger numbers, and as noisy as these.

    Scores that are summed of rounded entries in float64 are equal where the entries are equal.

    Args:
        z: (N, C), float32 or float64.

    Source: ours.
    """
    kept, z = 2.0 ** -BITS[z.dtype], z.double()
    if not len(z):
        return z
    unit = kept * torch.maximum(_power_above(z), _power_above(z.abs().median(dim=0).values))
    return torch.where(unit > 0, torch.round(z / unit) * unit, z)  # 0, infinite and NaN stay


def _power_above(z: Tensor) -> Tensor:
    """The power of two that is next above each magnitude; 0 for 0."""
    mantissa = torch.frexp(z).mantissa
    return torch.where(z == 0, z, z / mantissa)
