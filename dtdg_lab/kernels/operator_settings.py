"""How operators are made, the same for all snapshots of a sequence."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """How operators are made, the same for all snapshots of a sequence.

    Attributes:
        backend: ``dgl`` or ``torch`` (see :func:`dtdg_lab.kernels.backend.choose_backend`).
        dtype: type of the products.
        device: where they run.
        norm: ``in`` or ``in_out``, the scaling of ``gcn``.
        self_loops: whether ``gcn`` adds every vertex to its own neighbours.
    """

    backend: str = "torch"
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    norm: str = "in"
    self_loops: bool = True
