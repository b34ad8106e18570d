"""Races, parameter studies and shipped studies: everything that runs and compares many runs."""

from dtdg_lab.studies.runner import Above, Halving, Median
from dtdg_lab.studies.sweep import choice, integer, log_uniform, uniform

__all__ = ["Above", "Halving", "Median", "choice", "integer", "log_uniform", "uniform"]
