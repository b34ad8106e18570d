"""What one rank did in an earlier run where clocks and races decided it: to be done again, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtdg_lab.comm.averager import Round
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.parallel.layout import Layout
from dtdg_lab.parallel.part_batches import Drawn
from dtdg_lab.parallel.target_layout import TargetBatchLayout


@dataclass(frozen=True, slots=True)
class Replay:
    """The rounds of averaging and the batches of a rank, from its records.

    Attributes:
        rounds: in order; the one numbered 0 ends a stretch between two changes that all ranks came together for.
        drawn: by step of this rank and part.
    """

    rounds: tuple[Round, ...]
    drawn: Mapping[tuple[int, int], Drawn]

    @classmethod
    def of(cls, rounds: Iterable[Mapping[str, Any]], targets: Iterable[Mapping[str, Any]]) -> Replay:
        """From rows of the record tables ``rounds`` and ``targets`` of one rank, in order."""
        made = tuple(
            Round(row["number"], row["joined_step"], row["applied_step"], row["weight"], row["version"], row["choice"])
            for row in rounds
        )
        drawn = {(row["step"], row["part"]): Drawn(row["source"], row["action"], row["index"]) for row in targets}
        return cls(made, drawn)

    def stretch(self, number: int) -> Sequence[Round]:
        """The rounds of a stretch in which ranks averaged, from 1.

        Raises:
            ConfigError: there were not as many.
        """
        ends = [place + 1 for place, of in enumerate(self.rounds) if of.is_last]
        bounds = [0, *ends, *([len(self.rounds)] if self.rounds[-1:] and not self.rounds[-1].is_last else [])]
        if number >= len(bounds):
            raise ConfigError(
                f"replay: {len(bounds) - 1} stretches of averaging were recorded, and this is number {number}. Replay "
                "the records of one rank, with the settings, data, ranks and requests of their run."
            )
        return self.rounds[bounds[number - 1] : bounds[number]]

    def lead(self, layout: Layout) -> None:
        """Have a layout draw what was drawn."""
        if isinstance(layout, TargetBatchLayout):
            layout.replay = self.drawn
