"""Trials of the same settings together: what their seeds came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dtdg_lab.studies.objective import number
from dtdg_lab.studies.trials import FINISHED, Trial


@dataclass(frozen=True, slots=True)
class Combination:
    """One combination of settings.

    Attributes:
        number: of it, from 0.
        settings: what it is called along what is studied.
        trials: of its seeds.
        values: a number of each run that is finished and has it, by the seeds' order.
    """

    number: int
    settings: Mapping[str, Any]
    trials: tuple[Trial, ...]
    values: tuple[float, ...]

    @property
    def middle(self) -> float | None:
        """The median over seeds; None where no run has the number."""
        return median(self.values) if self.values else None

    @property
    def low(self) -> float | None:
        """The least over seeds."""
        return min(self.values, default=None)

    @property
    def high(self) -> float | None:
        """The most over seeds."""
        return max(self.values, default=None)

    @property
    def counts(self) -> dict[str, int]:
        """How many of its trials have each status."""
        return dict(Counter(trial.status for trial in self.trials))

    @property
    def told(self) -> str:
        """Its settings in words."""
        return ", ".join(
            f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in self.settings.items()
        )


def combinations_of(trials: Sequence[Trial], of: str) -> tuple[Combination, ...]:
    """The trials by settings, in the order of their numbers.

    Args:
        trials: of a study.
        of: the number of runs that is wanted; that of trials which are not finished is not counted.
    """
    found: dict[int, list[Trial]] = {}
    for trial in trials:
        found.setdefault(trial.number, []).append(trial)
    return tuple(
        Combination(place, each[0].settings, tuple(each), _values(each, of)) for place, each in sorted(found.items())
    )


def _values(trials: Sequence[Trial], of: str) -> tuple[float, ...]:
    known = [number(trial.values.get(of)) for trial in trials if trial.status == FINISHED]
    return tuple(value for value in known if value is not None)
