"""Races, parameter studies and shipped studies: everything that runs and compares many runs."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtdg_lab.studies.presets import study_decay as decay
    from dtdg_lab.studies.runner import Above, Halving, Median
    from dtdg_lab.studies.study import open_study as open
    from dtdg_lab.studies.sweep import choice, integer, log_uniform, uniform

__all__ = ["Above", "Halving", "Median", "choice", "decay", "integer", "log_uniform", "open", "uniform"]

_HOMES = {
    "Above": "dtdg_lab.studies.runner:Above",
    "Halving": "dtdg_lab.studies.runner:Halving",
    "Median": "dtdg_lab.studies.runner:Median",
    "choice": "dtdg_lab.studies.sweep:choice",
    "decay": "dtdg_lab.studies.presets:study_decay",
    "integer": "dtdg_lab.studies.sweep:integer",
    "log_uniform": "dtdg_lab.studies.sweep:log_uniform",
    "open": "dtdg_lab.studies.study:open_study",
    "uniform": "dtdg_lab.studies.sweep:uniform",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"{__name__} has no {name!r}; it has {', '.join(sorted(_HOMES))}", name=name)
    return resolve_name(_HOMES[name])


def __dir__() -> list[str]:
    return sorted(_HOMES)
