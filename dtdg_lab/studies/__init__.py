"""Races, parameter studies and shipped studies: everything that runs and compares many runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.core.lazy import lazy_namespace

if TYPE_CHECKING:
    from dtdg_lab.studies.presets import study_decay as decay
    from dtdg_lab.studies.runner import Above, Halving, Median
    from dtdg_lab.studies.study import open_study as open
    from dtdg_lab.studies.sweep import choice, integer, log_uniform, uniform

__all__ = ["Above", "Halving", "Median", "choice", "decay", "integer", "log_uniform", "open", "uniform"]

__getattr__, __dir__ = lazy_namespace(__name__)
