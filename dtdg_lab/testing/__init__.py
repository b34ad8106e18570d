"""Checks for people who write their own algorithms, and the contracts that the tests check.

``lab.testing.check_model(Model)`` trains a model on every system; ``lab.testing.check_extension`` does so for all
other registered code.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtdg_lab.testing.extensions import ExtensionCheck, check_extension, check_model

__all__ = ["ExtensionCheck", "check_extension", "check_model"]

_HOMES = {
    "ExtensionCheck": "dtdg_lab.testing.extensions:ExtensionCheck",
    "check_extension": "dtdg_lab.testing.extensions:check_extension",
    "check_model": "dtdg_lab.testing.extensions:check_model",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"{__name__} has no {name!r}; it has {', '.join(sorted(_HOMES))}", name=name)
    return resolve_name(_HOMES[name])


def __dir__() -> list[str]:
    return sorted(_HOMES)
