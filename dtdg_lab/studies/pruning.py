"""Ending runs of a study early, by losses of the validation part and of nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from dtdg_lab.cluster.judging import Evaluated, Judge, Verdict
from dtdg_lab.core.errors import ConfigError

Curve = tuple[tuple[int, float], ...]  # (epochs done, validation loss), in order


class Pruner(Protocol):
    """Says whether a run is worth its further epochs."""

    def why(self, curve: Curve, others: Sequence[Curve]) -> str:
        """Why it is not; empty where it is.

        Args:
            curve: of the run, up to its newest evaluation.
            others: of earlier runs of the study with the same seed, whole.
        """
        ...


@dataclass(frozen=True, slots=True)
class Median:
    """Ends a run whose lowest loss so far is above the median of what others had by the same epoch.

    Attributes:
        after: epochs that every run may make.
        trials: others that must have come so far before anything is ended.
    """

    after: int = 1
    trials: int = 3

    def __post_init__(self) -> None:
        _at_least_one("Median", after=self.after, trials=self.trials)

    def why(self, curve: Curve, others: Sequence[Curve]) -> str:
        """See :class:`Pruner`."""
        epoch, lowest = curve[-1][0], min(loss for _, loss in curve)
        had = lowest_by(others, epoch)
        if epoch < self.after or len(had) < self.trials or lowest <= median(had):
            return ""
        return (
            f"lowest validation loss {lowest:.4g} after {epoch} epochs, above the median {median(had):.4g} of "
            f"{len(had)} others"
        )


@dataclass(frozen=True, slots=True)
class Halving:
    """Asynchronous successive halving: after ``first``, ``first * factor``, ... epochs only the best go on.

    Attributes:
        first: epochs before the first look.
        factor: one of so many goes on at each look.

    References: Li et al. 2020, A System for Massively Parallel Hyperparameter Tuning (ASHA).
    """

    first: int = 1
    factor: int = 3

    def __post_init__(self) -> None:
        _at_least_one("Halving", first=self.first, factor=self.factor - 1)

    def why(self, curve: Curve, others: Sequence[Curve]) -> str:
        """See :class:`Pruner`."""
        epoch, rung = curve[-1][0], self.first
        while rung < epoch:
            rung *= self.factor
        had = lowest_by(others, epoch)
        if rung != epoch or len(had) + 1 < self.factor:
            return ""
        lowest = min(loss for _, loss in curve)
        place, kept = 1 + sum(loss < lowest for loss in had), (len(had) + 1) // self.factor
        if place <= kept:
            return ""
        return f"place {place} of {len(had) + 1} by validation loss after {epoch} epochs: the best {kept} go on"


@dataclass(frozen=True, slots=True)
class Above:
    """Ends a run whose validation loss is above a bound after some epochs.

    Attributes:
        loss: the bound.
        after: epochs that every run may make.
    """

    loss: float
    after: int = 1

    def __post_init__(self) -> None:
        _at_least_one("Above", after=self.after)

    def why(self, curve: Curve, others: Sequence[Curve]) -> str:
        """See :class:`Pruner`."""
        epoch, lowest = curve[-1][0], min(loss for _, loss in curve)
        if epoch < self.after or lowest <= self.loss:
            return ""
        return f"lowest validation loss {lowest:.4g} after {epoch} epochs, above {self.loss:g}"


def judge_of(pruner: Pruner, others: Sequence[Curve]) -> Judge:
    """A judge of one run that stops it where the pruner says why; losses that are not finite are passed over."""

    def judge(seen: tuple[Evaluated, ...]) -> Verdict | None:
        curve = tuple((each.epoch, each.loss) for each in seen if each.loss is not None)
        reason = pruner.why(curve, others) if curve else ""
        return Verdict("stop", reason) if reason else None

    return judge


def lowest_by(curves: Sequence[Curve], epoch: int) -> list[float]:
    """The lowest loss by an epoch of every curve that came so far."""
    return [
        min(loss for at, loss in curve if at <= epoch)
        for curve in curves
        if curve and curve[-1][0] >= epoch and curve[0][0] <= epoch
    ]


def _at_least_one(name: str, **numbers: int) -> None:
    for what, value in numbers.items():
        if value < 1:
            least = "2" if (name, what) == ("Halving", "factor") else "1"
            raise ConfigError(f"{name}({what}=...): a whole number of at least {least} is needed.")
