"""The rows of features that a part owns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError
from dtdg_lab.features.keys import KeySpace


@dataclass(frozen=True, slots=True, eq=False)
class OwnRows:
    """Rows of one part, found by key without a search.

    Attributes:
        part: its number.
        space: of all keys.
        rows: (K_p, F) float32, in the order of ``space.of_part(part)``; may be a memory map.

    Raises:
        PlanError: there is not one row of float32 for each of the part's keys.
    """

    part: int
    space: KeySpace
    rows: NDArray[np.float32]

    def __post_init__(self) -> None:
        if not 0 <= self.part < self.space.parts:
            raise PlanError(f"part {self.part}: parts are 0 to {self.space.parts - 1}.")
        expected = int(self.space.sizes[self.part]) * self.space.snapshots
        if self.rows.ndim != 2 or len(self.rows) != expected or self.rows.dtype != np.float32:
            raise PlanError(
                f"rows of part {self.part} are {self.rows.dtype} {self.rows.shape}: its {expected} keys need as many "
                "rows of float32."
            )

    @property
    def features(self) -> int:
        """F."""
        return self.rows.shape[1]

    def take(self, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """Rows (K, F) of own keys (K,), in their order."""
        return self.rows[self.space.own_places(keys)]
