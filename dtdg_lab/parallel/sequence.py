"""What the engine asks of a training sequence: some vertices' rows, and spaces in which they find their neighbours."""

from __future__ import annotations

from collections import abc
from typing import Protocol

import torch
from torch import Tensor

from dtdg_lab.models.base import Space


class StackedSpace(Space, Protocol):
    """One or several consecutive snapshots, stacked, with the features that a model is fed first."""

    snapshots: range
    inputs: Tensor  # (S n, F), n rows of each of the S snapshots

    def layer(self, number: int) -> StackedSpace:
        """The same snapshots as one layer of the model is to see them."""
        ...


class Sequence(Protocol):
    """Snapshots as spaces, for the vertices that this rank (or one part) trains.

    Attributes:
        device: where tensors live.
        dtype: of features and products.
        own: n, the vertices whose loss is computed here. They are the first rows of every space.
        vertices: (n,) their numbers in the graph; None where they are all N, in order.
        collective: whether spaces exchange rows with other ranks while a model pulls, in forward and in backward. Then
            every rank must ask the same of its sequence in the same order, one thing after another.
    """

    device: str
    dtype: torch.dtype
    own: int
    vertices: Tensor | None
    collective: bool

    def space(self, t: int) -> StackedSpace:
        """Snapshot t for all layers of the model."""
        ...

    def stacks(self, snapshots: range, layer: int) -> abc.Sequence[StackedSpace]:
        """Consecutive snapshots for one layer of the model, some stacked; every layer stacks the same ones.

        A layer's space may have fewer rows than the space of the layer before it: of the earlier layer's output the
        first rows of each snapshot are then its input. After the last layer the first ``own`` rows count.
        """
        ...

    def any_rank(self, flag: bool) -> bool:
        """Whether the flag is set on any rank that takes part; collective where the sequence is."""
        ...

    def join(self, z: Tensor) -> Tensor:
        """Rows of all N vertices of the graph, in order, from every rank's own: (S, n, F) -> (S, N, F); differentiable.

        Collective where the sequence is.
        """
        ...

    def has_turn(self, t: int) -> bool:
        """Whether what needs all vertices of snapshot t at once is computed here; true on one rank."""
        ...
