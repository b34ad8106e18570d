"""EdgeBank, the persistence baseline of link prediction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from torch import Tensor
from torch.nn import functional

from dtdg_lab.graphs.snapshot import EdgeSet


@dataclass(frozen=True, slots=True)
class EdgeBank:
    """The persistence baseline: chances of an edge tomorrow, for edges of today and for other pairs.

    Attributes:
        if_edge: chance for an edge of today.
        if_not: chance for another pair.

    Source: EdgeBank of Poursafaei et al. 2022, "Towards better evaluation for dynamic link prediction", with a memory
    of one snapshot; the chances, which a loss needs, are ours.
    """

    if_edge: float
    if_not: float

    @classmethod
    def fit(cls, snapshots: Iterable[tuple[EdgeSet, EdgeSet]], *, prior: float) -> EdgeBank:
        """Estimate chances by Bayes' rule from the shares of edges of tomorrow, and of other pairs, that exist today.

        One of each kind is added to every count, so that no chance is 0 or 1.

        Args:
            snapshots: the edges today and tomorrow, of each training snapshot.
            prior: share of positives among the scored pairs.
        """
        repeated = edges = gone = absent = 0
        for today, tomorrow in snapshots:
            both = len(np.intersect1d(today.numbers, tomorrow.numbers, assume_unique=True))
            repeated, edges = repeated + both, edges + len(tomorrow)
            gone, absent = gone + len(today) - both, absent + tomorrow.absent
        of_edges, of_others = (repeated + 1) / (edges + 2), (gone + 1) / (absent + 2)
        if_edge = prior * of_edges / (prior * of_edges + (1 - prior) * of_others)
        if_not = prior * (1 - of_edges) / (prior * (1 - of_edges) + (1 - prior) * (1 - of_others))
        return cls(if_edge, if_not)

    def cross_entropy(self, is_edge: Tensor, labels: Tensor) -> float:
        """Return the mean over pairs, from the masks of edges today and of edges tomorrow, (n,)."""
        chance = self.if_not + is_edge.double() * (self.if_edge - self.if_not)
        return float(functional.binary_cross_entropy(chance, labels.double()))
