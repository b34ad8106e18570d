"""Persistence for edges: what is an edge today is one tomorrow, as surely as that held in the training part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from torch import Tensor
from torch.nn import functional

from dtdg_lab.graphs.edge_set import EdgeSet


@dataclass(frozen=True, slots=True)
class EdgeBank:
    """Chances that a pair is a positive, given that it is an edge today, or that it is none.

    Attributes:
        if_edge: chance for a pair that is an edge today.
        if_not: chance for one that is none.

    Source: EdgeBank of Poursafaei et al. 2022, "Towards better evaluation for dynamic link prediction", with a memory
    of one snapshot; the chances, which a loss needs, are ours.
    """

    if_edge: float
    if_not: float

    @classmethod
    def fit(cls, snapshots: Iterable[tuple[EdgeSet, EdgeSet]], *, prior: float) -> EdgeBank:
        """Chances by Bayes' rule from how often edges of tomorrow, and other pairs, are edges today.

        One of each kind is added to every count, so that no chance is 0 or 1.

        Args:
            snapshots: the edges today and tomorrow, of each training snapshot.
            prior: share of positives among the pairs asked about.
        """
        kept = edges = gone = absent = 0
        for today, tomorrow in snapshots:
            both = len(np.intersect1d(today.numbers, tomorrow.numbers, assume_unique=True))
            kept, edges = kept + both, edges + len(tomorrow)
            gone, absent = gone + len(today) - both, absent + tomorrow.absent
        of_edges, of_others = (kept + 1) / (edges + 2), (gone + 1) / (absent + 2)
        if_edge = prior * of_edges / (prior * of_edges + (1 - prior) * of_others)
        if_not = prior * (1 - of_edges) / (prior * (1 - of_edges) + (1 - prior) * (1 - of_others))
        return cls(if_edge, if_not)

    def cross_entropy(self, held: Tensor, labels: Tensor) -> float:
        """Mean over pairs, (n,): ``held`` says which are edges today, ``labels`` which will be."""
        chance = self.if_not + held.double() * (self.if_edge - self.if_not)
        return float(functional.binary_cross_entropy(chance, labels.double()))
