"""The least space there is: one vertex that hears itself, for asking a model what it does wherever it is."""

from __future__ import annotations

from torch import Tensor

from dtdg_lab.models.base import Space


class OneVertex:
    """A vertex without edges (see :class:`dtdg_lab.models.base.Space`); a pull gives back what was put in."""

    num_rows = 1

    def layer(self, number: int) -> Space:
        """All layers alike."""
        return self

    async def pull(self, x: Tensor, kind: str, scores: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """The rows given."""
        return x

    async def top(self, x: Tensor, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The one row."""
        return x[:1], scores[:1]
