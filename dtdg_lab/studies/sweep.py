"""Sweep: the runs of a study as data, either a grid of settings or a space to search."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS, option
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, UnknownNameError, shortened
from dtdg_lab.core.system_errors import explain
from dtdg_lab.core.units import as_path
from dtdg_lab.studies.objective import LAST, Goal, check_objective
from dtdg_lab.studies.preset import StudyPreset
from dtdg_lab.studies.search_space import Choice, read_space

SEED = "seed"
FIELDS = frozenset(RunConfig.model_fields) - {"options"}
DATA_OWNERS = ("datasets", "tasks")  # their options define the problem, so losses with other values are not comparable


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a grid.

    Attributes:
        name: a setting, or the property in which the cases differ.
        values: labels of the cells on this axis.
        settings: the settings of each value.
    """

    name: str
    values: tuple[Any, ...]
    settings: tuple[Mapping[str, Any], ...]

    @property
    def is_cases(self) -> bool:
        """Whether its values are names of cases, with several settings each."""
        return any(tuple(settings) != (self.name,) or settings[self.name] != value for value, settings in self.pairs())

    def pairs(self) -> list[tuple[Any, Mapping[str, Any]]]:
        """Return each value with its settings."""
        return list(zip(self.values, self.settings, strict=True))

    def to_dict(self) -> Any:
        """Return the axis as JSON values: a list of values, or a dict of cases."""
        return {value: dict(settings) for value, settings in self.pairs()} if self.is_cases else list(self.values)


def axes_of(over: Mapping[str, Any]) -> tuple[Axis, ...]:
    """Return the axes of a grid after checking them.

    Raises:
        ConfigError: an axis is empty, repeats a value, or has a setting that cannot be studied.
        UnknownNameError: there is no such setting.
    """
    axes = tuple(_axis(name, values) for name, values in over.items())
    owners: dict[str, str] = {}
    for axis in axes:
        for name in {name for settings in axis.settings for name in settings}:
            if name in owners:
                raise ConfigError(f"over: {axis.name!r} and {owners[name]!r} both set {name}. Keep only one of them.")
            owners[name] = axis.name
    return axes


def check_name(name: str, argument: str) -> None:
    """Check that a name is a setting that can be studied.

    Raises:
        ConfigError: it is the seed.
        UnknownNameError: there is no such setting.
    """
    if name == SEED:
        raise ConfigError(f"{argument} contains 'seed', which cannot be studied. Give seeds=(0, 1, 2) instead.")
    if name not in OPTIONS and name not in FIELDS:
        results = ("options", "schema", "data", "data_hash", "run", "status")
        advice = "It is a result of a run, so no config can set it." if name in results else ""
        raise UnknownNameError(f"setting in {argument}", name, {*OPTIONS, *FIELDS} - {SEED}, advice)


def decides_the_loss(name: str) -> bool:
    """Return whether losses with other values of a setting are not comparable, as for data, protocol and task."""
    return name in ("dataset", "protocol") or (name in OPTIONS and OPTIONS[name].owner in DATA_OWNERS)


def _axis(name: str, values: Any) -> Axis:
    if isinstance(values, Mapping):
        return _cases(name, values)
    check_name(name, "over")
    if isinstance(values, str) or not (isinstance(values, Sequence) or hasattr(values, "tolist")):
        raise ConfigError(
            f"over[{name!r}]={shortened(values)} is invalid. Give a sequence of values, such as ({values!r},)."
        )
    checked = tuple(_checked(name, value) for value in values)
    if not checked:
        raise ConfigError(f"over[{name!r}] is empty. Give it at least one value, or leave {name} out.")
    for index, value in enumerate(checked):
        if value in checked[:index]:
            raise ConfigError(f"over[{name!r}] has {value!r} twice. Give each value only once.")
    return Axis(name, checked, tuple({name: value} for value in checked))


def _cases(name: str, cases: Mapping[str, Any]) -> Axis:
    if not cases:
        raise ConfigError(f"over[{name!r}] is empty. Give it at least one case, or leave {name} out.")
    checked = []
    for label, settings in cases.items():
        if not isinstance(label, str) or not isinstance(settings, Mapping):
            raise ConfigError(
                f"over[{name!r}][{shortened(label)}]={shortened(settings)} is invalid. Give a name and its settings, "
                "such as {'slow': {'congestion': 'one_slow', 'congestion_ms': 20.0}}."
            )
        for setting in settings:
            check_name(setting, f"over[{name!r}][{label!r}]")
        checked.append({setting: _checked(setting, value) for setting, value in settings.items()})
    return Axis(name, tuple(cases), tuple(checked))


def _checked(name: str, value: Any) -> Any:
    """Return the value as a config stores it, in which 1 and 1.0 are the same number."""
    if name == "dataset" and hasattr(value, "store"):
        return value.store()
    if name == "parts" and value == 0:
        return 0
    return OPTIONS[name].check(value) if name in OPTIONS else value


SCHEMA = 1
SAMPLERS = ("tpe", "random")
REFUSED = "refused"
MOST_RUNS = 20_000
CATALOGUED: Mapping[str, Callable[[str], Any]] = MappingProxyType(
    {"system": catalogue.system, "model": lambda name: catalogue.entry("models", name)}
)
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_KEYS = ("schema", "base", "over", "seeds", "space", "trials", "sampler", "skip", "objective", "goal", "shipped")


@dataclass(frozen=True)
class Cell:
    """One run of a sweep or race.

    Attributes:
        number: number of its settings among those of the grid, from 0.
        settings: its value on each axis of the sweep.
        seed: the seed of its run.
        config: the settings of its run.
    """

    number: int
    settings: Mapping[str, Any]
    seed: int
    config: RunConfig

    @cached_property
    def key(self) -> str:
        """A key that identifies the run; see :func:`key_of`."""
        return key_of(self.config)

    def __str__(self) -> str:
        return f"{settings_text(self.settings)}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A combination that is not trained, and why."""

    settings: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, eq=False)
class Sweep:
    """The runs of a study: a grid of settings, or a space to search with Optuna.

    A grid is written as ``over={"full_snapshots": (1, 2), "alpha": (0.1, 0.6)}``, a search as ``space={"learning_rate":
    log_uniform(1e-4, 1e-1)}, trials=30``. Both may contain all settings of the glossary, and ``system``, ``model``,
    ``dataset`` and ``protocol``. Values of an axis may also be named cases with several settings each:
    ``over={"network": {"quiet": {}, "slow": {"congestion": "one_slow", "congestion_ms": 20.0}}}``.

    All configs of a grid are created and checked with it. If ``ranks`` are studied and the base has as many parts as
    ranks, so has every cell.

    Attributes:
        base: settings of all runs, except for the studied ones.
        over: axis -> its values, or its cases with their settings.
        seeds: seeds of every combination; by default 0, 1, 2 for a grid, and the base's seed for a search.
        space: setting -> what it is drawn from.
        trials: number of combinations to draw.
        sampler: ``tpe`` or ``random``.
        skip: combinations that are not trained, as mappings of axis -> value or list of values; all axes of a mapping
            must match. ``"refused"`` skips those that no config allows. They are listed in ``skipped``.
        objective: number of a run by which trials are compared: one of ``runs.summary.SUMMARY_MEANINGS``, such as
            ``validation_loss`` (the last one), or ``best_validation_loss``.
        goal: ``min`` or ``max``, whichever value of the objective is best.
        shipped: name of the shipped study whose analysis is used.

    Raises:
        ConfigError: there is nothing to study, a name or value is invalid, two cells are the same run, or the objective
            depends on the test split.
    """

    base: RunConfig
    over: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    seeds: Sequence[int] | None = None
    space: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    trials: int = 0
    sampler: str = "tpe"
    skip: Any = ()
    objective: str = LAST
    goal: Goal = "min"
    shipped: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.base, RunConfig):
            raise ConfigError(
                f"base={shortened(self.base)} is invalid. Give a RunConfig with the settings of all runs."
            )
        if bool(self.over) == bool(self.space):
            problem = "both over= and space= are given" if self.over else "there is nothing to study"
            raise ConfigError(
                f"{problem}. Give over={{'alpha': (0.1, 0.6)}} for a grid, or space={{'learning_rate': "
                "log_uniform(1e-4, 1e-1)}, trials=30 for a search."
            )
        check_objective(self.objective)
        if self.goal not in ("min", "max"):
            raise ConfigError(f"goal={self.goal!r} is invalid. Give 'min' or 'max'.")
        default = (0, 1, 2) if self.over else (self.base.seed,)
        seeds = tuple(option("seed").check(seed) for seed in (default if self.seeds is None else self.seeds))
        if not seeds or len(set(seeds)) < len(seeds):
            raise ConfigError(f"seeds={seeds} are invalid. Give at least one seed, and each only once.")
        object.__setattr__(self, "seeds", seeds)
        if self.space:
            self._check_space()
        elif self.trials or self.sampler != "tpe":
            raise ConfigError("trials= and sampler= apply only to a search. Give them with space=, or leave them out.")
        rules = _read_rules(self.skip, [axis.name for axis in self.axes], is_search=self.is_search)
        object.__setattr__(self, "skip", rules)
        if not self.space and not self.cells:
            raise ConfigError(f"all {len(self.skipped)} combinations are skipped; the first: {self.skipped[0].reason}")

    def _check_space(self) -> None:
        spaces = {name: read_space(name, space) for name, space in self.space.items()}
        object.__setattr__(self, "space", MappingProxyType(spaces))
        if self.sampler not in SAMPLERS:
            raise UnknownNameError("sampler", self.sampler, SAMPLERS)
        if isinstance(self.trials, bool) or not isinstance(self.trials, int) or self.trials < 1:
            raise ConfigError(
                f"trials={self.trials!r} is invalid. Give the number of combinations that the search draws."
            )
        for name, space in spaces.items():
            check_name(name, "space")
            if decides_the_loss(name):
                raise ConfigError(
                    f"space contains {name!r}, which is fixed in a search: losses of different data or tasks are not "
                    f"comparable. Study it in a grid: over={{{name!r}: ...}}."
                )
            for value in space.values if isinstance(space, Choice) else space.bounds():
                self._check_value(name, value)

    def _check_value(self, name: str, value: Any) -> None:
        """Check one value of a search; combinations are checked when they are drawn."""
        if name in CATALOGUED:
            CATALOGUED[name](value)
            return
        option(name).check(value)
        if name not in self.base.flat and not set(CATALOGUED) & set(self.space):
            self.config_of({name: value}, self.all_seeds[0])  # raises an error that names the owner of the setting

    @property
    def is_search(self) -> bool:
        """Whether combinations are drawn instead of listed."""
        return bool(self.space)

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds of every combination."""
        return tuple(self.seeds or ())

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of a grid."""
        return axes_of(self.over)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the studied settings: the axes of a grid, or the settings of a search."""
        return tuple(self.space) if self.space else tuple(axis.name for axis in self.axes)

    @property
    def total(self) -> int:
        """The number of its runs."""
        return self.trials * len(self.all_seeds) if self.space else len(self.cells)

    def config_of(self, settings: Mapping[str, Any], seed: int) -> RunConfig:
        """Return the config of a combination of settings.

        Raises:
            ConfigError: no config allows these settings.
        """
        parts_follow = "ranks" in settings and "parts" not in settings and self.base.parts == self.base.ranks
        return self.base.replace(**({"parts": 0} if parts_follow else {}), **settings, seed=seed)

    @cached_property
    def _expanded(self) -> tuple[tuple[Cell, ...], tuple[Skipped, ...]]:
        combinations = list(itertools.product(*(axis.pairs() for axis in self.axes)))
        if len(combinations) * len(self.all_seeds) > MOST_RUNS:
            raise ConfigError(
                f"the grid has {len(combinations):,} combinations with {len(self.all_seeds)} seeds each, but at most "
                f"{MOST_RUNS:,} runs are allowed. Give fewer values, or search with space=..., trials=30."
            )
        skipped: list[Skipped] = []
        cells: list[Cell] = []
        for seed in self.all_seeds:
            number = 0
            for combination in combinations:
                labels = {axis.name: value for axis, (value, _) in zip(self.axes, combination, strict=True)}
                settings = {name: value for _, part in combination for name, value in part.items()}
                cell = self._cell(number, labels, settings, seed)
                if isinstance(cell, Cell):
                    cells.append(cell)
                    number += 1
                elif seed == self.all_seeds[0]:
                    skipped.append(cell)
        by_key: dict[str, Cell] = {}
        for cell in cells:
            if cell.key in by_key:
                raise ConfigError(f"over: ({by_key[cell.key]}) and ({cell}) are the same run. Leave one of them out.")
            by_key[cell.key] = cell
        return tuple(cells), tuple(skipped)

    def _cell(self, number: int, labels: Mapping[str, Any], settings: Mapping[str, Any], seed: int) -> Cell | Skipped:
        for rule in self.skip:
            if rule != REFUSED and all(labels[name] in values for name, values in rule.items()):
                return Skipped(labels, "by skip=.")
        try:
            return Cell(number, labels, seed, self.config_of(settings, seed))
        except ConfigError as error:
            if REFUSED in self.skip:
                return Skipped(labels, without_lists(error))
            case = ", ".join(f"{name}={value!r}" for name, value in labels.items())
            raise ConfigError(
                f"over: {case} is not allowed. {without_lists(error)} Leave it out, or all such by skip='refused'."
            ) from error

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The runs of a grid, with all combinations of the first seed first; none in a search."""
        return () if self.space else self._expanded[0]

    @cached_property
    def by_key(self) -> Mapping[str, Cell]:
        """The runs of a grid by their keys."""
        return {cell.key: cell for cell in self.cells}

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """The combinations of a grid that are not trained."""
        return () if self.space else self._expanded[1]

    def to_dict(self) -> dict[str, Any]:
        """Return the sweep as JSON values."""
        rules = [rule if rule == REFUSED else {name: list(rule[name]) for name in rule} for rule in self.skip]
        return {
            "schema": SCHEMA,
            "base": json.loads(self.base.to_json()),
            "over": {axis.name: axis.to_dict() for axis in self.axes},
            "seeds": list(self.all_seeds),
            "space": {name: space.to_dict() for name, space in self.space.items()},
            "trials": self.trials,
            "sampler": self.sampler,
            "skip": rules,
            "objective": self.objective,
            "goal": self.goal,
            "shipped": self.shipped,
        }

    def to_json(self) -> str:
        """Return the sweep as indented JSON with a schema version."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str | bytes) -> Sweep:
        """Read what :meth:`to_json` returned, or JSON that a person wrote; missing entries have their defaults.

        Raises:
            ConfigError: it is not a sweep, or has a newer schema.
        """
        try:
            data = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"the sweep is not valid JSON: {error}. Write one with Sweep(...).to_json().") from error
        if not isinstance(data, dict) or "base" not in data:
            raise ConfigError("the sweep is not a JSON object with a base. Write one with Sweep(...).to_json().")
        if data.get("schema", SCHEMA) != SCHEMA:
            raise ConfigError(
                f"the sweep has schema {data['schema']!r}, but this version reads schema {SCHEMA}. Update dtdg_lab."
            )
        for name in data:
            if name not in _KEYS:
                raise UnknownNameError("entry of a sweep", name, _KEYS)
        base = RunConfig.from_json(json.dumps(data["base"]))
        return cls(base, **{name: data[name] for name in _KEYS[2:] if name in data})

    @classmethod
    def load(cls, path: str | Path) -> Sweep:
        """Read a sweep from a file (see :meth:`from_json`)."""
        try:
            return cls.from_json(as_path(path, "path", ConfigError).read_bytes())
        except OSError as error:
            raise ConfigError(
                f"cannot read the sweep {path}: {explain(error, path)} Give the path of a JSON file."
            ) from error

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Sweep) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        if self.space:
            runs = f"{self.trials} trials of {', '.join(self.space)} drawn by {self.sampler}"
        else:
            runs = " x ".join(f"{axis.name} ({len(axis.values)})" for axis in self.axes)
        skipped = f", {len(self.skipped)} combinations skipped" if self.skipped else ""
        seeds = len(self.all_seeds)
        return (
            f"Sweep({runs}, {seeds} {'seed' if seeds == 1 else 'seeds'}: {self.total} runs of {self.base.system} on "
            f"{self.base.dataset}{skipped})"
        )


def key_of(config: RunConfig) -> str:
    """Return 16 hexadecimal digits that identify a run's settings."""
    return hashlib.sha256(config.to_json().encode()).hexdigest()[:16]


def _read_rules(skip: Any, axes: Sequence[str], *, is_search: bool) -> tuple[Any, ...]:
    """Return the rules of ``skip=`` as a tuple of ``"refused"`` and mappings of axis -> tuple of values."""
    rules: list[Any] = []
    for rule in (skip,) if isinstance(skip, str | Mapping) else tuple(skip):
        if rule == REFUSED:
            rules.append(REFUSED)
        elif isinstance(rule, Mapping) and rule and not is_search:
            for name in rule:
                if name not in axes:
                    raise UnknownNameError("axis in skip", name, axes)
            several = (list, tuple, set, range)
            rules.append({name: tuple(v) if isinstance(v, several) else (v,) for name, v in rule.items()})
        else:
            raise ConfigError(
                f"skip={shortened(rule)} is invalid. Give 'refused' or, in a grid, mappings like {{'system': 'single', "
                "'ranks': [2, 4]}}. In a search, invalid combinations are always skipped and listed."
            )
    return tuple(rules)


def without_lists(error: ConfigError) -> str:
    """Return the text of an error without long lists of allowed names."""
    return re.sub(r" Allowed: [a-z0-9_, -]{120,}\.", "", str(error))


def settings_text(settings: Mapping[str, Any]) -> str:
    """Return names and values of settings as text."""
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in settings.items()
    )


def preset_sweep(preset: StudyPreset, base: RunConfig | None, *, quick: bool) -> Sweep:
    """Return the runs of a shipped study.

    Args:
        preset: the study.
        base: settings to use instead of the study's own data, model and sizes.
        quick: whether to return its short form.

    Raises:
        ConfigError: the base's system lacks the studied option.
    """
    config = base or RunConfig(**preset.base, **(preset.quick if quick else preset.full))
    preset.check(config)
    over, skip = preset.refine(config, dict(preset.quick_over if quick else preset.over), quick)
    seeds = preset.quick_seeds if quick else preset.seeds
    config = config.replace(**preset.fixed)
    return Sweep(config, over, seeds, skip=skip, objective=preset.objective, shipped=preset.name)
