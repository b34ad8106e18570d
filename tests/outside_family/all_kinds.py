"""One registration of every kind, under names that nothing else has."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import dtdg_lab as lab
from dtdg_lab.config.options import Option

SMALL: Mapping[str, Any] = MappingProxyType(
    {
        "dataset": "growing",
        "generated_nodes": 60,
        "generated_edges": 240,
        "generated_snapshots": 40,
        "hidden": 4,
        "epochs": 2,
        "learning_rate": 0.01,
        "threads": 1,
        "parts": 2,
    }
)
# Name in the catalogue -> settings of a run that uses it, beside SMALL.
RUNS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "smoothed": {"system": "psg", "model": "smoothed"},
        "huber": {"system": "adgnn-t", "task": "huber", "huber_delta": 0.5},
        "latest_first": {"system": "psg", "scheduler": "latest_first"},
        "ribbons": {"system": "adgnn-t", "partitioner": "ribbons", "ribbon_offset": 7},
        "ring": {"system": "psg", "dataset": "ring"},
        "dusk": {"system": "adgnn-t", "congestion": "dusk", "congestion_from": 1, "congestion_ms": 1.0},
        "pendulum": {"system": "greendygnn", "cache_policy": "pendulum", "batch_size": 8},
        "seesaw": {"system": "dynahb", "batch_policy": "seesaw", "decide_every": 2},
        "striped": {"system": "striped"},
    }
)


def register_all() -> None:
    """Register one of every kind by text, so that every rank finds it by the same text."""
    options: Mapping[str, tuple[str, tuple[Option, ...]]] = {
        "smoothed:SmoothedGCN": ("model", ()),
        "huber:Huber": ("task", (_load("huber:DELTA"),)),
        "latest_first:latest_first": ("scheduler", ()),
        "ribbons:ribbons": ("partitioner", (_load("ribbons:OFFSET"),)),
        "ring:RING": ("data set", ()),
        "dusk:dusk": ("congestion pattern", ()),
        "pendulum:pendulum": ("cache policy", ()),
        "seesaw:seesaw": ("batch-size controller", ()),
    }
    for target, (kind, new) in options.items():
        name = "smoothed" if kind == "model" else ""
        lab.register(f"outside_family.{target}", kind, name, options=new)
    lab.register("outside_family.striped:FAMILY")


def _load(target: str) -> Option:
    from dtdg_lab.config.catalogue import load

    loaded = load(f"outside_family.{target}")
    assert isinstance(loaded, Option)
    return loaded


def config_of(name: str, ranks: int = 1) -> lab.RunConfig:
    """Return the settings of the run that uses a registration."""
    settings = {**SMALL, **RUNS[name], "ranks": ranks}
    if settings["dataset"] == "ring":
        del settings["generated_edges"]
    return lab.RunConfig(**settings)
