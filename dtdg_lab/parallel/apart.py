"""What sequences have in common whose spaces exchange nothing: whoever has one computes by itself."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from dtdg_lab.core.errors import UnsupportedError


class Apart:
    """Answers what :class:`dtdg_lab.parallel.sequence.Sequence` asks of other ranks, where there is nobody to ask.

    Attributes:
        where: what holds some of the vertices, for a message.
        instead: the system that serves losses of all vertices at once.
    """

    collective = False
    where: ClassVar[str]
    instead: ClassVar[str]

    def any_rank(self, flag: bool) -> bool:
        """No other rank has a say."""
        return flag

    def join(self, z: Tensor) -> Tensor:
        """Refused: other vertices' rows are not computed here, and no rows are exchanged.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            f"a loss that needs all vertices at once, on {self.where}. Choose {self.instead}, or another task."
        )

    def has_turn(self, t: int) -> bool:
        """Always."""
        return True
