"""What a partitioner gives back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Assigned:
    """The part of each vertex, as a partitioner chose it.

    Attributes:
        owner: (N,) int32: the part of each vertex, 0 to P - 1; every part owns at least one.
        groups: (N,) int32: the group of each vertex within its part; None where the partitioner makes none.
        notes: what the reader of the partition should know, such as parts that had to be filled; may be empty.
    """

    owner: NDArray[np.int32]
    groups: NDArray[np.int32] | None = None
    notes: str = ""
