"""Contestants whose losses should be the same, and how their runs are compared."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.model_facts import kept_memory
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.units import join_words
from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.runs.curves import evaluations_of, first_loss

FIRST: Mapping[str, float] = {"float32": 1e-5, "float64": 1e-10}  # allowed relative difference in the first step
CURVE = 1e-3  # allowed relative difference of evaluations; Adam makes rounding errors grow during training
_SETTINGS = tomllib.loads(Path(__file__).with_name("race_plan.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Check:
    """A comparison of two runs with the same seed that should have the same losses.

    Attributes:
        labels: the two contestants.
        seed: the seed of both runs.
        why: the reason why their losses should be the same.
        first: relative difference in the first step with a loss; None if it is not known yet.
        curve: largest relative difference of evaluations after the same step; None if there are none yet.
        first_allowed, curve_allowed: differences that rounding explains.
    """

    labels: tuple[str, str]
    seed: int
    why: str
    first: float | None
    curve: float | None
    first_allowed: float
    curve_allowed: float = CURVE

    @property
    def ok(self) -> bool | None:
        """Whether the losses are the same so far; None if nothing can be compared yet."""
        pairs = [(self.first, self.first_allowed), (self.curve, self.curve_allowed)]
        within = [difference <= allowed for difference, allowed in pairs if difference is not None]
        return all(within) if within else None

    def summary(self) -> str:
        """Return the result in a sentence."""
        both = join_words(self.labels)
        if self.ok is None:
            return f"{both}, seed {self.seed}: {self.why}; nothing to compare yet."
        differences = []
        if self.first is not None:
            differences.append(f"by {self.first:.2g} of the first step's loss ({self.first_allowed:g} is rounding)")
        if self.curve is not None:
            differences.append(f"by {self.curve:.2g} along the evaluations ({self.curve_allowed:g} allowed)")
        verdict = "differ" if self.ok else "DIFFER"
        return f"{both}, seed {self.seed}, {verdict} {join_words(differences)}: {self.why}."


def same_losses(config: RunConfig) -> tuple[tuple[Any, ...], str] | None:
    """Return the settings that determine a run's losses, and why; runs with equal keys should have equal losses.

    None if timing affects losses: with asynchronous model averaging, with batch sizes chosen by a time-based reward,
    and with schedules made from measured times.

    References: SYSTEMS.md, "What the same losses means". Full batches use the whole graph in one step with any
        strategy; all feature caches give the same rows to the same batches.
    """
    flat, parts = config.flat, catalogue.system(config.system).parts
    layout, family = parts["parallel"], catalogue.family(catalogue.system(config.system).family)
    learning = tuple(flat.get(name) for name in _SETTINGS["learning"])
    learning += tuple(sorted((name, flat[name]) for name in _options_of(config, "tasks", "models", "datasets")))
    memory = (
        kept_memory(
            config.model, layout, hidden=config.hidden, layers=config.layers, **config.options.get("models", {})
        )
        or ""
    )
    if layout in family.full_batch and "batching" not in config.options and memory.startswith("exact"):
        return (learning, "full batch"), "both train on the whole training split in one step, exactly"
    if (flat.get("exchange") == "models" and config.ranks > 1) or family.has_clock(config):
        return None
    plan = [(name, flat[name]) for name in _options_of(config, "batching", "partition", "parallel", "scheduling")]
    deciding = tuple(sorted((name, value) for name, value in plan if name not in _SETTINGS["same_numbers"]))
    return (learning, layout, parts.get("batching", ""), config.parts, deciding), family.same_plan


def _options_of(config: RunConfig, *owners: str) -> list[str]:
    return [name for owner in owners for name in config.options.get(owner, {})]


def groups(configs: Mapping[str, RunConfig]) -> list[tuple[tuple[str, ...], str]]:
    """Return groups of at least two contestants whose losses should be the same, and why."""
    labels_by_key: dict[tuple[Any, ...], tuple[list[str], str]] = {}
    for label, config in configs.items():
        key = same_losses(config)
        if key is not None:
            labels_by_key.setdefault(key[0], ([], key[1]))[0].append(label)
    return [(tuple(labels), why) for labels, why in labels_by_key.values() if len(labels) > 1]


def checks(configs: Mapping[str, RunConfig], tables: Mapping[tuple[str, int], RunTables]) -> list[Check]:
    """Compare every pair of runs with the same seed that should have the same losses, up to their common progress.

    Args:
        configs: contestant -> its settings; the seed is ignored.
        tables: (contestant, seed) -> its tables, which must not change meanwhile.
    """
    compared = []
    seeds = list(dict.fromkeys(seed for _, seed in tables))
    for labels, why in groups({label: config.replace(seed=0) for label, config in configs.items()}):
        for seed in seeds:
            present = [label for label in labels if (label, seed) in tables]
            for one, other in combinations(present, 2):
                pair = tables[one, seed], tables[other, seed]
                allowed = FIRST[configs[one]["dtype"]]
                compared.append(Check((one, other), seed, why, _first(*pair), _curve(*pair), allowed))
    return compared


def _relative(one: float, other: float) -> float:
    largest = max(abs(one), abs(other))
    return abs(one - other) / largest if largest else 0.0


def _first(one: RunTables, other: RunTables) -> float | None:
    """Return the difference in the first step with a loss; None if this is not the same step in both."""
    first = [first_loss(tables) for tables in (one, other)]
    if first[0] is None or first[1] is None or first[0][0] != first[1][0]:
        return None
    return _relative(first[0][1], first[1][1])


def _curve(one: RunTables, other: RunTables) -> float | None:
    differences: list[float] = []
    for split in ("train", "validation"):
        losses = [{point.step: point.loss for point in evaluations_of(tables, split)} for tables in (one, other)]
        for step in losses[0].keys() & losses[1].keys():
            pair = losses[0][step], losses[1][step]
            if pair[0] is not None and pair[1] is not None:
                differences.append(_relative(pair[0], pair[1]))
    return max(differences, default=None)
