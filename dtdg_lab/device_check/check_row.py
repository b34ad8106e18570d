"""A row of the device check."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["ok", "modelled", "failed", "not run", "unavailable"]
CHECKS = ("losses", "phases", "group", "exchange", "synchronization", "memory", "energy", "devices", "processes")


@dataclass(frozen=True, slots=True)
class CheckedDifference:
    """How far a run is from its reference.

    Attributes:
        name: what was compared, such as ``float32``.
        reference: what it was compared with, such as ``float64`` or a system.
        largest: the largest difference, as a share.
        allowed: the tolerance.
    """

    name: str
    reference: str
    largest: float
    allowed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """The outcome of one check.

    Attributes:
        device: device, such as ``cpu`` or ``cuda:0``; ``2 x cpu`` or ``4 x cuda`` for a group of ranks.
        check: one of :data:`CHECKS`.
        system: system, if the check is of one.
        model: model, if the check is of one.
        state: ``ok``; ``modelled`` for joules that are not measured; ``failed``; ``not run`` because processes of the
            check ended at their start; or ``unavailable`` where the check does not apply here.
        value: the measured value and what it was compared with; for other states, the reason.
        remedy: what to do about a row that failed or is not available.
        differences: the numbers of a value that compares runs.
    """

    device: str
    check: str
    system: str = ""
    model: str = ""
    state: State
    value: str
    remedy: str = ""
    differences: tuple[CheckedDifference, ...] = ()

    @property
    def title(self) -> str:
        """Check, system and model."""
        return " ".join(part for part in (self.check, self.system, self.model) if part)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values; the value has the differences as text."""
        return {name: value for name, value in asdict(self).items() if name != "differences"}


def unavailable_row(reason: str, **row: Any) -> CheckRow:
    """Return a row that is not available.

    Args:
        reason: why; what follows its first sentence is the remedy.
        row: device, check, system and model.
    """
    sentence, _, remedy = reason.partition(". ")
    return CheckRow(**row, state="unavailable", value=sentence.rstrip("."), remedy=remedy)
