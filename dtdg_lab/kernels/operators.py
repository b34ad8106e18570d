"""Every kind of pull from one snapshot (or several, stacked) as an operator, made when it is first asked for."""

from __future__ import annotations

import torch
from torch import Tensor

from dtdg_lab.core.errors import UnsupportedError
from dtdg_lab.kernels.attention import AttentionOperator
from dtdg_lab.kernels.edge_source import EdgeSource
from dtdg_lab.kernels.operator_settings import OperatorSettings
from dtdg_lab.kernels.scaled import ScaledOperator

KINDS = ("gcn", "mean", "diffusion-in", "diffusion-out", "attention")


class Operators:
    """The operators of some rows, whose neighbours are columns that may be more than the rows.

    - ``gcn``: D^-1/2 (A + I) D^-1/2 with D = 1 + weighted in-degree (SYSTEMS.md, notation). ``norm="in_out"`` has the
      sources' out-degrees on the right: w / sqrt(in(v) out(u)). Without self loops there is no I and no 1; a vertex
      without edges then gets 0.
    - ``mean``, ``diffusion-in``: D_in^-1 A, the weighted mean over in-neighbours; 0 where there are none.
    - ``diffusion-out``: D_out^-1 A^T, the weighted mean over out-neighbours; 0 where there are none.
    - ``attention``: see :class:`dtdg_lab.kernels.attention.AttentionOperator`.

    Args:
        source: the edges of the n rows and the degrees of the M columns; row v of A lists the edges into v.
        settings: scaling; the rest of it is the source's.

    References: ``norm="in_out"`` without self loops: FlareDTDG, released code.
    """

    def __init__(self, source: EdgeSource, settings: OperatorSettings) -> None:
        self._source, self._settings = source, settings
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
                self._scaled["mean"] = self._scaled["diffusion-in"] = self._mean("in")
            elif kind == "diffusion-out":
                self._scaled[kind] = self._mean("out")
            else:
                raise UnsupportedError(f"pull of kind {kind!r}: allowed are {', '.join(KINDS)}. Change the model.")
        return self._scaled[kind]

    def attention(self) -> AttentionOperator:
        """The attention over in-neighbours and the vertex itself."""
        if self._attention is None:
            self._attention = AttentionOperator(self._source.adjacency("in"), first=self._source.first)
        return self._attention

    def release(self) -> None:
        """Let go of everything made; what is asked for again is made again."""
        self._attention = None
        self._scaled.clear()
        self._source.release()

    def _mean(self, way: str) -> ScaledOperator:
        return ScaledOperator(self._source.adjacency(way), _over(self._source.row_degrees(way)), None)

    def _convolution(self) -> ScaledOperator:
        source, loops = self._source, self._settings.self_loops
        extra = 1.0 if loops else 0.0
        columns = source.column_degrees("in" if self._settings.norm == "in" else "out")
        right = _over(torch.sqrt(columns + extra))
        left = _over(torch.sqrt(source.row_degrees("in") + extra))
        return ScaledOperator(source.adjacency("in"), left, right, add_self=loops, first=source.first)


def _over(numbers: Tensor) -> Tensor:
    """1 / d, and 0 where d is 0."""
    return torch.where(numbers > 0, 1.0 / numbers, torch.zeros_like(numbers))
