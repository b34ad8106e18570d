"""The contract of a kind of plug-in: how a checker says that it is broken."""

from __future__ import annotations

from dtdg_lab.core.errors import LabError


class ContractError(LabError, AssertionError):
    """Raised when a plug-in breaks the contract of its kind; the message names the rule and the case."""


def require(holds: bool, rule: str) -> None:
    """Raise unless a rule holds.

    Raises:
        ContractError: it does not.
    """
    if not holds:
        raise ContractError(rule)
