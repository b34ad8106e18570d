"""Cells of an experiment: one combination of settings and a seed each."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.reproduction.experiment import TRAIN, Experiment, listed
from dtdg_lab.studies.sweep import Sweep


@dataclass(frozen=True, slots=True)
class ExperimentCell:
    """One measurement.

    Attributes:
        labels: its value on each axis.
        seed: its seed.
        settings: all its settings, for a function.
        config: the settings of its run, for a training; otherwise None.
        key: identifies it, by all that its result depends on.
    """

    labels: Mapping[str, Any]
    seed: int
    settings: Mapping[str, Any]
    config: RunConfig | None
    key: str

    def matches(self, chosen: Mapping[str, Any]) -> bool:
        """Return whether its value on each axis of ``chosen`` is the chosen one, or one of the chosen."""
        return all(self.labels[axis] in listed(values) for axis, values in chosen.items())

    def __str__(self) -> str:
        return ", ".join([*(f"{name} {value}" for name, value in self.labels.items()), f"seed {self.seed}"])


def cells_of(experiment: Experiment, device: str = "cpu") -> list[ExperimentCell]:
    """Return the cells of an experiment on a device: all combinations of the first seed first.

    Raises:
        ConfigError: settings are invalid, or two cells are the same.
    """
    if not experiment.over:
        return []
    if experiment.procedure == TRAIN:
        return _training_cells(experiment, device)
    cells = []
    for seed in experiment.seeds:
        for labels, settings in _combinations(experiment):
            chosen = {**experiment.settings, **settings, "device": device}
            cells.append(ExperimentCell(labels, seed, chosen, None, _key([experiment.procedure, chosen, seed])))
    return cells


def _training_cells(experiment: Experiment, device: str) -> list[ExperimentCell]:
    base = RunConfig(**{**experiment.settings, "device": device})
    sweep = Sweep(base, experiment.over, experiment.seeds, skip=experiment.skip)
    stop = dict(experiment.stop)
    return [
        ExperimentCell(cell.settings, cell.seed, {}, cell.config, _key([cell.key, stop]) if stop else cell.key)
        for cell in sweep.cells
    ]


def _combinations(experiment: Experiment) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the label on each axis, and the settings, of every combination that is not skipped."""
    combinations = []
    for values in product(*experiment.over.values()):
        labels = dict(zip(experiment.over, values, strict=True))
        rules = [rule for rule in experiment.skip if isinstance(rule, Mapping)]
        if any(all(labels[axis] in listed(skipped) for axis, skipped in rule.items()) for rule in rules):
            continue
        settings: dict[str, Any] = {}
        for axis, value in labels.items():
            cases = experiment.over[axis]
            settings |= cases[value] if isinstance(cases, Mapping) else {axis: value}
        combinations.append((labels, settings))
    return combinations


def _key(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
