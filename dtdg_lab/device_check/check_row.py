"""A row of the device check."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["ok", "failed", "unavailable"]
CHECKS = ("losses", "phases", "group", "exchange", "synchronization", "memory", "energy", "devices")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """The outcome of one check.

    Attributes:
        device: device, such as ``cpu`` or ``cuda:0``; ``2 x cpu`` or ``4 x cuda`` for a group of ranks.
        check: one of :data:`CHECKS`.
        system: system, if the check is of one.
        model: model, if the check is of one.
        state: ``ok``, ``failed``, or ``unavailable`` where the check does not apply here.
        value: the measured value and what it was compared with; for other states, the reason.
        remedy: what to do about a failed row.
    """

    device: str
    check: str
    system: str = ""
    model: str = ""
    state: State
    value: str
    remedy: str = ""

    @property
    def title(self) -> str:
        """Check, system and model."""
        return " ".join(part for part in (self.check, self.system, self.model) if part)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain values."""
        return asdict(self)
