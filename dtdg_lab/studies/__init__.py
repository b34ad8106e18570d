"""Races, parameter studies and shipped studies, which train and compare many runs."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtdg_lab.studies.decay_study import study_decay as decay
    from dtdg_lab.studies.search_space import choice, integer, log_uniform, uniform
    from dtdg_lab.studies.study import open_study as open

__all__ = ["choice", "decay", "integer", "log_uniform", "open", "uniform"]

_HOMES = {
    "choice": "dtdg_lab.studies.search_space:choice",
    "decay": "dtdg_lab.studies.decay_study:study_decay",
    "integer": "dtdg_lab.studies.search_space:integer",
    "log_uniform": "dtdg_lab.studies.search_space:log_uniform",
    "open": "dtdg_lab.studies.study:open_study",
    "uniform": "dtdg_lab.studies.search_space:uniform",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"{__name__} has no {name!r}; it has {', '.join(sorted(_HOMES))}", name=name)
    return resolve_name(_HOMES[name])


def __dir__() -> list[str]:
    return sorted(_HOMES)
