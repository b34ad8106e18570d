"""Races, studies, forecasts, exports and cards: what is asked of many runs, and told of them."""

from dtdg_lab.studies.runner import Above, Halving, Median
from dtdg_lab.studies.sweep import choice, integer, log_uniform, uniform

__all__ = ["Above", "Halving", "Median", "choice", "integer", "log_uniform", "uniform"]
