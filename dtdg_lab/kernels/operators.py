"""Every kind of pull from one snapshot (or several, stacked) as an operator, made when it is first asked for."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.adjacency import Adjacency
from dtdg_lab.kernels.attention import AttentionOperator
from dtdg_lab.kernels.scaled import ScaledOperator

KINDS = ("gcn", "mean", "diffusion-in", "diffusion-out", "attention")


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


class Operators:
    """The rows of a snapshot's operators.

    - ``gcn``: D^-1/2 (A + I) D^-1/2 with D = 1 + weighted in-degree (SYSTEMS.md, notation). ``norm="in_out"`` has the
      sources' out-degrees on the right: w / sqrt(in(v) out(u)). Without self loops there is no I and no 1; a vertex
      without edges then gets 0.
    - ``mean``, ``diffusion-in``: D_in^-1 A, the weighted mean over in-neighbours; 0 where there are none.
    - ``diffusion-out``: D_out^-1 A^T, the weighted mean over out-neighbours; 0 where there are none.
    - ``attention``: see :class:`dtdg_lab.kernels.attention.AttentionOperator`.

    Args:
        snapshot: N vertices and E edges; row v of A lists the edges into v.
        rows: the vertices whose rows are computed.
        settings: backend, type, device, scaling.

    References: ``norm="in_out"`` without self loops: FlareDTDG, released code.
    """

    def __init__(self, snapshot: Snapshot, rows: range, settings: OperatorSettings) -> None:
        self._snapshot, self._rows, self._settings = snapshot, rows, settings
        self._whole: Adjacency | None = None
        self._scaled: dict[str, ScaledOperator] = {}
        self._attention: AttentionOperator | None = None

    def scaled(self, kind: str) -> ScaledOperator:
        """The operator of any kind but ``attention``.

        Raises:
            UnsupportedError: there is no such kind.
        """
        if kind not in self._scaled:
            if kind == "gcn":
                self._scaled[kind] = self._convolution()
            elif kind in {"mean", "diffusion-in"}:
                part = self._all.part(self._rows)
                self._scaled["mean"] = self._scaled["diffusion-in"] = ScaledOperator(part, _over(part.row_sums()), None)
            elif kind == "diffusion-out":
                part = self._all.transposed_adjacency().part(self._rows)
                self._scaled[kind] = ScaledOperator(part, _over(part.row_sums()), None)
            else:
                raise UnsupportedError(f"pull of kind {kind!r}: allowed are {', '.join(KINDS)}. Change the model.")
        return self._scaled[kind]

    def attention(self) -> AttentionOperator:
        """The attention over in-neighbours and the vertex itself."""
        if self._attention is None:
            self._attention = AttentionOperator(self._all.part(self._rows), first=self._rows.start)
        return self._attention

    def release(self) -> None:
        """Let go of everything made; what is asked for again is made again."""
        self._whole, self._attention = None, None
        self._scaled.clear()

    @property
    def _all(self) -> Adjacency:
        if self._whole is None:
            of, settings = self._snapshot, self._settings
            self._whole = Adjacency(
                of.indptr, of.indices, of.weights,
                backend=settings.backend, dtype=settings.dtype, device=settings.device,
            )  # fmt: skip
        return self._whole

    def _convolution(self) -> ScaledOperator:
        whole, rows, loops = self._all, self._rows, self._settings.self_loops
        extra = 1.0 if loops else 0.0
        left = _over(torch.sqrt(whole.row_sums() + extra))
        right = left if self._settings.norm == "in" else _over(torch.sqrt(whole.column_sums() + extra))
        own = left[rows.start : rows.stop]
        return ScaledOperator(whole.part(rows), own, right, add_self=loops, first=rows.start)


def _over(numbers: Tensor) -> Tensor:
    """1 / d, and 0 where d is 0."""
    return torch.where(numbers > 0, 1.0 / numbers, torch.zeros_like(numbers))
