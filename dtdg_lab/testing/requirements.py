"""How a contract says that it is broken."""

from __future__ import annotations

from dtdg_lab.core.errors import LabError


class ContractError(LabError, AssertionError):
    """Raised when a plug-in breaks the contract of its room; the message says which rule, and where it was seen."""


def require(holds: bool, rule: str) -> None:
    """Go on where a rule holds.

    Raises:
        ContractError: it does not.
    """
    if not holds:
        raise ContractError(rule)
