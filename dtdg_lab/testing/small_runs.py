"""Settings of runs that take a fraction of a second, for every system."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import System
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, NotAvailableError

SMALL: Mapping[str, Any] = MappingProxyType(
    {
        "dataset": "growing",
        "generated_nodes": 40,
        "generated_edges": 160,
        "generated_snapshots": 24,
        "hidden": 4,
        "layers": 2,
        "epochs": 2,
        "learning_rate": 0.05,
        "optimizer": "sgd",
        "dtype": "float64",
        "device": "cpu",
        "threads": 1,
        "parts": 2,
        "loss_at": "all",
    }
)
REFUSALS = (ConfigError, NotAvailableError)  # raised by a config, or while a run is built


def small_settings(system: System, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a small run: given ones, otherwise those of the system, otherwise small ones."""
    of_families = {name: value for family in catalogue.families() for name, value in family.small_settings.items()}
    return {**SMALL, **of_families, **system.defaults, **overrides, "system": system.name}


def read_names(settings: Mapping[str, Any]) -> set[str]:
    """Return the names of all settings that a run reads."""
    owners = catalogue.option_owners(settings["system"], settings["dataset"], settings.get("model", "tgcn"), settings)
    return {name for names in owners.values() for name in names} | set(RunConfig.model_fields)


def read_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the settings that a run reads."""
    names = read_names(settings)
    return {name: value for name, value in settings.items() if name in names}
