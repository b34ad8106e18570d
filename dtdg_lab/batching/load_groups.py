"""A part's vertices by load, in groups from which a batch takes the same number each."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import PlanError

SHARES = 60  # runs of the load order in which a batch's targets are counted, to be shown


@dataclass(frozen=True, slots=True, eq=False)
class LoadGroups:
    """The c candidates of a part, heaviest first, to be cut into runs of equal length.

    Attributes:
        order: (c,) int64, places of the candidates among the part's own vertices, heaviest first.
        groups: N_bg, the most groups they are cut into, at least 1.
        candidates: (c,) int64, the same places, ascending.

    Raises:
        PlanError: there is no candidate or no group, or a place is negative or given twice.

    References: DynaHB section 4.2 (balanced groups).
    """

    order: NDArray[np.int64]
    groups: int
    candidates: NDArray[np.int64] = field(init=False)
    _rank: NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        given = np.asarray(self.order)
        if given.ndim != 1 or not len(given) or not np.issubdtype(given.dtype, np.integer):
            raise PlanError(
                f"candidates by load must be a non-empty vector of whole numbers, not {given.dtype} of shape "
                f"{given.shape}."
            )
        if self.groups < 1:
            raise PlanError(f"{self.groups} groups of candidates: at least 1 is needed.")
        order = given.astype(np.int64)
        candidates = np.sort(order)
        if candidates[0] < 0 or (np.diff(candidates) < 1).any():
            raise PlanError("candidates by load must be places from 0 on, each of them once.")
        rank = np.full(candidates[-1] + 1, -1)
        rank[order] = np.arange(len(order))
        for name, own in (("order", order), ("candidates", candidates), ("_rank", rank)):
            own.setflags(write=False)
            object.__setattr__(self, name, own)

    def __len__(self) -> int:
        """The number of candidates, c."""
        return len(self.order)

    def bounds(self, vertices: int) -> NDArray[np.int64]:
        """Where the groups for batches of some targets begin and end in ``order``, (min(groups, vertices) + 1,).

        Group k is ``order[bounds[k]:bounds[k + 1]]``; groups differ by at most one candidate.

        Args:
            vertices: N_V, 1 to c.

        Raises:
            PlanError: there are not as many candidates.
        """
        if not 1 <= vertices <= len(self):
            raise PlanError(f"{vertices} targets of {len(self)} candidates: from 1 to all of them are allowed.")
        count = min(self.groups, vertices)
        return -(-np.arange(count + 1) * len(self) // count)

    def sixtieths(self, targets: NDArray[np.int64]) -> list[int]:
        """How many of some targets are in each sixtieth of the candidates, heaviest first: 60 numbers.

        Args:
            targets: (N_V,) places, each a candidate's.
        """
        return np.bincount(self._rank[targets] * SHARES // len(self), minlength=SHARES).tolist()


def load_groups(loads: NDArray[np.floating], candidates: NDArray[np.integer], groups: int) -> LoadGroups:
    """Candidates sorted by load, heaviest first; ties go to the lower place.

    Args:
        loads: (n,) of all own vertices of the part (partition room, ``vertex_loads``).
        candidates: (c,) places of those that may be targets, each once.
        groups: N_bg, the most groups they are cut into.

    Raises:
        PlanError: there is no candidate or no group, or a candidate is no own vertex.
    """
    places = np.sort(np.asarray(candidates))
    if len(places) and not 0 <= places[0] <= places[-1] < len(loads):
        raise PlanError(f"candidates from {places[0]} to {places[-1]} of a part of {len(loads)} vertices.")
    return LoadGroups(places[np.argsort(-loads[places], kind="stable")] if len(places) else places, groups)
