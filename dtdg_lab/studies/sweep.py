"""Sweep: the runs of a study as data: a grid over settings, or a space to search."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS, option
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, UnknownNameError, shortened
from dtdg_lab.core.system_errors import explain
from dtdg_lab.core.units import as_path
from dtdg_lab.runs.run import StoredRun
from dtdg_lab.runs.summary import NON_NUMERIC, SUMMARY_MEANINGS

# Objectives of studies: numbers of a run that do not depend on test labels.


Goal = Literal["min", "max"]
LAST, BEST = "validation_loss", "best_validation_loss"
OF_TEST = ("test_loss", "skill", "persistence_loss", "mean_loss", "metrics", "skill_split")
BASELINES: Mapping[str, str] = MappingProxyType(
    {"validation_persistence_loss": "persistence_loss", "validation_mean_loss": "mean_loss"}
)


def check_objective(name: str) -> None:
    """Check that trials may be compared by a number.

    Raises:
        ConfigError: it depends on the test split, which model selection must not use.
        UnknownNameError: runs have no such number.
    """
    if name in OF_TEST or name.startswith("test"):
        raise ConfigError(
            f"objective={name!r} depends, or may depend, on the test split, which must not be used to choose settings. "
            f"Use {LAST!r} or {BEST!r}, and evaluate the chosen settings on the test split."
        )
    allowed = {LAST, BEST, *SUMMARY_MEANINGS} - {*OF_TEST, *NON_NUMERIC}
    if name not in allowed:
        raise UnknownNameError("objective", name, allowed)


def values_of(run: StoredRun) -> dict[str, Any]:
    """The numbers of a run that ended: its summary, its best validation loss, and the baselines of that split.

    Joules of several sources are summed. Unknown values are None.

    Raises:
        RunStoreError, DataError: its files cannot be read.
    """
    evaluations = run.table("evaluations")
    rows = evaluations[evaluations["split"] == "validation"].to_dict("records")
    losses = [float(row["loss"]) for row in rows if row["loss"] is not None and math.isfinite(row["loss"])]
    last = rows[-1] if rows else {}
    described = {name: run.summary.get(name) for name in SUMMARY_MEANINGS}
    joules = described.get("energy_j")
    return {
        **described,
        LAST: described.get(LAST) if described.get(LAST) is not None else (losses[-1] if losses else None),
        BEST: min(losses, default=None),
        **{name: last.get(column) for name, column in BASELINES.items()},
        "energy_j": sum(joules.values()) if isinstance(joules, dict) else joules,
    }


def number(value: Any) -> float | None:
    """A value as a number; None where it is none, or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


# Axes of a grid: names of settings with their values, or named cases of several settings each.


SEED = "seed"
FIELDS = frozenset(RunConfig.model_fields) - {"options"}
DATA_OWNERS = ("datasets", "tasks")  # their options define the problem: losses of other data are not comparable


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a grid.

    Attributes:
        name: of a setting, or of the property in which the cases differ.
        values: labels of the cells along this axis.
        settings: of each value, by flat names.
    """

    name: str
    values: tuple[Any, ...]
    settings: tuple[Mapping[str, Any], ...]

    @property
    def is_cases(self) -> bool:
        """Whether its values are names of several settings each."""
        return any(tuple(each) != (self.name,) or each[self.name] != value for value, each in self.pairs())

    def pairs(self) -> list[tuple[Any, Mapping[str, Any]]]:
        """Each value with its settings."""
        return list(zip(self.values, self.settings, strict=True))

    def to_dict(self) -> Any:
        """The JSON form: a list of values, or an object of cases."""
        return {value: dict(each) for value, each in self.pairs()} if self.is_cases else list(self.values)


def axes_of(over: Mapping[str, Any]) -> tuple[Axis, ...]:
    """The axes of a grid, each checked.

    Raises:
        ConfigError: one is empty, repeats a value, or names a setting that cannot be studied.
        UnknownNameError: there is no such setting.
    """
    found = tuple(_axis(name, given) for name, given in over.items())
    owners: dict[str, str] = {}
    for axis in found:
        for name in dict.fromkeys(name for each in axis.settings for name in each):
            if name in owners:
                raise ConfigError(f"over: {axis.name!r} and {owners[name]!r} both set {name}. Keep one of them.")
            owners[name] = axis.name
    return found


def check_name(name: str, where: str) -> None:
    """Check that a name is a setting that may be studied.

    Raises:
        ConfigError: it is the seed.
        UnknownNameError: there is no such setting.
    """
    if name == SEED:
        raise ConfigError(f"{where} names 'seed', which cannot be studied: give seeds=(0, 1, 2).")
    if name not in OPTIONS and name not in FIELDS:
        facts = ("options", "schema", "data", "data_hash", "run", "status")
        advice = "It is a result of a run, and no config can set it." if name in facts else ""
        raise UnknownNameError(f"setting in {where}", name, {*OPTIONS, *FIELDS} - {SEED}, advice)


def decides_the_loss(name: str) -> bool:
    """Whether losses under other values of a setting are not comparable: data, protocol, task."""
    return name in ("dataset", "protocol") or (name in OPTIONS and OPTIONS[name].owner in DATA_OWNERS)


def _axis(name: str, given: Any) -> Axis:
    if isinstance(given, Mapping):
        return _cases(name, given)
    check_name(name, "over")
    if isinstance(given, str) or not (isinstance(given, Sequence) or hasattr(given, "tolist")):
        raise ConfigError(f"over[{name!r}]={shortened(given)}: give a sequence of values, such as ({given!r},).")
    values = tuple(_checked(name, value) for value in given)
    if not values:
        raise ConfigError(f"over[{name!r}] is empty: give it at least one value, or leave {name} out.")
    for place, value in enumerate(values):
        if value in values[:place]:
            raise ConfigError(f"over[{name!r}] has {value!r} twice: give each value only once.")
    return Axis(name, values, tuple({name: value} for value in values))


def _cases(name: str, given: Mapping[str, Any]) -> Axis:
    if not given:
        raise ConfigError(f"over[{name!r}] is empty: give it at least one case, or leave {name} out.")
    settings = []
    for label, each in given.items():
        if not isinstance(label, str) or not isinstance(each, Mapping):
            raise ConfigError(
                f"over[{name!r}][{shortened(label)}]={shortened(each)}: a case is a name and its settings, such as "
                "{'slow': {'congestion': 'one_slow', 'congestion_ms': 20.0}}."
            )
        for setting in each:
            check_name(setting, f"over[{name!r}][{label!r}]")
        settings.append({setting: _checked(setting, value) for setting, value in each.items()})
    return Axis(name, tuple(given), tuple(settings))


def _checked(name: str, value: Any) -> Any:
    """The value as a config stores it, so that 1 and 1.0 are the same number."""
    if name == "dataset" and hasattr(value, "store"):
        return value.store()
    if name == "parts" and value == 0:
        return 0
    return OPTIONS[name].check(value) if name in OPTIONS else value


# The values that a search may draw: a range of numbers, or one of several values; convertible from and to JSON.


Kind = Literal["uniform", "log_uniform", "integer"]


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from ``low`` to ``high``, both included.

    Attributes:
        kind: ``uniform``, ``log_uniform`` (uniform in the logarithm), or ``integer``.
        low: least.
        high: most.
        step: of integers, starting at ``low``.

    Raises:
        ConfigError: the range is empty, or a bound has no logarithm.
    """

    kind: Kind
    low: float
    high: float
    step: int = 1

    def __post_init__(self) -> None:
        said = f"{self.kind}({self.low!r}, {self.high!r})"
        for bound in (self.low, self.high):
            if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
                raise ConfigError(f"{said}: give two finite numbers, the lowest and the highest.")
        if self.low >= self.high:
            raise ConfigError(f"{said}: the range is empty. The first number must be less than the second.")
        if self.kind == "log_uniform" and self.low <= 0:
            raise ConfigError(f"{said}: only numbers above 0 have a logarithm. Take a larger low, or uniform(...).")
        if self.kind == "integer" and (self.low % 1 or self.high % 1 or self.step < 1 or self.step % 1):
            raise ConfigError(f"{said} with step={self.step!r}: give whole numbers, and a step of at least 1.")

    def ends(self) -> tuple[float, float]:
        """The lowest and the highest value that may be drawn."""
        if self.kind != "integer":
            return float(self.low), float(self.high)
        low, step = int(self.low), int(self.step)
        return low, low + (int(self.high) - low) // step * step

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        step = {"step": self.step} if self.kind == "integer" else {}
        return {"kind": self.kind, "low": self.low, "high": self.high, **step}


@dataclass(frozen=True, slots=True)
class ChoiceAxis:
    """One of several unordered values.

    Raises:
        ConfigError: there are fewer than two, one is repeated, or one is not a plain value.
    """

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(self.values) < 2:
            raise ConfigError(f"choice{shortened(self.values)}: give at least two values.")
        for value in self.values:
            if not isinstance(value, str | bool | int | float):
                raise ConfigError(f"choice of {shortened(value)}: allowed are numbers, strings, True and False.")
        if len({(type(value), value) for value in self.values}) < len(self.values):
            raise ConfigError(f"choice{shortened(self.values)}: a value is repeated. Give each only once.")

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"kind": "choice", "values": list(self.values)}


Drawn = Range | ChoiceAxis


def uniform(low: float, high: float) -> Range:
    """Any number from ``low`` to ``high``."""
    return Range("uniform", low, high)


def log_uniform(low: float, high: float) -> Range:
    """Any number from ``low`` to ``high``, uniform in the logarithm."""
    return Range("log_uniform", low, high)


def integer(low: int, high: int, *, step: int = 1) -> Range:
    """A whole number: ``low``, ``low + step``, ... up to ``high``."""
    return Range("integer", low, high, step)


def choice(*values: Any) -> ChoiceAxis:
    """One of the values."""
    return ChoiceAxis(values)


def drawn_from(name: str, described: Any) -> Drawn:
    """Read the form that :meth:`Range.to_dict` or :meth:`Choice.to_dict` wrote; such objects pass unchanged.

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(described, Range | ChoiceAxis):
        return described
    if isinstance(described, Mapping):
        if described.get("kind") == "choice" and isinstance(described.get("values"), list | tuple):
            return ChoiceAxis(tuple(described["values"]))
        if described.get("kind") in ("uniform", "log_uniform", "integer") and {"low", "high"} <= described.keys():
            return Range(described["kind"], described["low"], described["high"], described.get("step", 1))
    raise ConfigError(
        f"space[{name!r}]={shortened(described)}: not a search space. Allowed: uniform(low, high), "
        "log_uniform(low, high), integer(low, high) and choice(value, value, ...) of dtdg_lab.studies.sweep; a list of "
        "values for a grid goes into over=."
    )


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
        number: of its settings among those of the grid, from 0.
        settings: its values along each axis of the sweep.
        seed: of its run.
        config: of its run.
    """

    number: int
    settings: Mapping[str, Any]
    seed: int
    config: RunConfig

    @cached_property
    def key(self) -> str:
        """What identifies it; see :func:`key_of`."""
        return key_of(self.config)

    def __str__(self) -> str:
        return f"{settings_text(self.settings)}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A combination that is not run, and why."""

    settings: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, eq=False)
class Sweep:
    """A grid, ``over={"full_snapshots": (1, 2), "alpha": (0.1, 0.6)}``, or a search space for Optuna,
    ``space={"learning_rate": log_uniform(1e-4, 1e-1)}, trials=30``. It may contain every setting of the glossary, and
    ``system``, ``model``, ``dataset`` and ``protocol``. The values of an axis may also be named cases of several
    settings each: ``over={"network": {"quiet": {}, "slow": {"congestion": "one_slow", "congestion_ms": 20.0}}}``.

    All configs of a grid are created, and so checked, with it. If ``ranks`` are studied and the base has as many
    partitions as ranks, so has every cell.

    Attributes:
        base: settings of all runs, except for the studied ones.
        over: axis -> its values, or case -> settings.
        seeds: of every combination; by default 0, 1, 2 for a grid, and the base's own for a search.
        space: setting -> what it is drawn from.
        trials: number of combinations to draw.
        sampler: ``tpe`` or ``random``.
        skip: combinations that are not run: mappings of axis -> value or list of values; all axes must match.
            ``"refused"`` skips those that no config allows. They are reported as ``skipped``.
        objective: number of a run by which trials are compared; see ``runs.summary.SUMMARY_MEANINGS``,
            ``validation_loss`` (the last) or ``best_validation_loss``.
        goal: whether its minimum or its maximum is best.
        shipped: name of the shipped study whose analysis applies.

    Raises:
        ConfigError: there is nothing to study, a name or value is invalid, two cells are the same run, or the
            objective depends on the test split.
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
            raise ConfigError(f"base={shortened(self.base)}: give a RunConfig, the settings of all runs.")
        if bool(self.over) == bool(self.space):
            both = "both over= and space= are given" if self.over else "there is nothing to study"
            raise ConfigError(
                f"{both}: give over={{'alpha': (0.1, 0.6)}} for a grid, or space={{'learning_rate': "
                "log_uniform(1e-4, 1e-1)}, trials=30 for a search."
            )
        check_objective(self.objective)
        if self.goal not in ("min", "max"):
            raise ConfigError(f"goal={self.goal!r}: allowed 'min' and 'max'.")
        usual = (0, 1, 2) if self.over else (self.base.seed,)
        given = usual if self.seeds is None else tuple(self.seeds)
        seeds = tuple(option("seed").check(seed) for seed in given)
        if not seeds or len(set(seeds)) < len(seeds):
            raise ConfigError(f"seeds={given}: give at least one seed, and each only once.")
        object.__setattr__(self, "seeds", seeds)
        if self.space:
            self._check_space()
        elif self.trials or self.sampler != "tpe":
            raise ConfigError("trials= and sampler= apply to a search: give them with space=, or leave them out.")
        object.__setattr__(self, "skip", _rules(self.skip, [axis.name for axis in self.axes], bool(self.space)))
        if not self.space and not self.cells:
            raise ConfigError(f"all {len(self.skipped)} combinations are skipped. The first: {self.skipped[0].reason}")

    def _check_space(self) -> None:
        space = {name: drawn_from(name, described) for name, described in self.space.items()}
        object.__setattr__(self, "space", MappingProxyType(space))
        if self.sampler not in SAMPLERS:
            raise UnknownNameError("sampler", self.sampler, SAMPLERS)
        if isinstance(self.trials, bool) or not isinstance(self.trials, int) or self.trials < 1:
            raise ConfigError(f"trials={self.trials!r}: give the number of combinations that the search draws.")
        for name, drawn in space.items():
            check_name(name, "space")
            if decides_the_loss(name):
                raise ConfigError(
                    f"space names {name!r}, which is fixed in a search: it defines the problem or its score, and "
                    f"losses of different data or tasks are not comparable. Study it in a grid: over={{{name!r}: ...}}."
                )
            for value in drawn.values if isinstance(drawn, ChoiceAxis) else drawn.ends():
                self._check_drawn(name, value)

    def _check_drawn(self, name: str, value: Any) -> None:
        """Check a value by itself; combinations are checked when they are drawn."""
        if name in CATALOGUED:
            CATALOGUED[name](value)
            return
        option(name).check(value)
        if name not in self.base.flat and not set(CATALOGUED) & set(self.space):
            self.config_of({name: value}, self.all_seeds[0])  # which names the owner of the setting

    @property
    def is_search(self) -> bool:
        """Whether combinations are drawn, not listed."""
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
        """Names of the studied settings: axes of a grid, settings of a search."""
        return tuple(self.space) if self.space else tuple(axis.name for axis in self.axes)

    @property
    def total(self) -> int:
        """Number of its runs."""
        return self.trials * len(self.all_seeds) if self.space else len(self.cells)

    def config_of(self, settings: Mapping[str, Any], seed: int) -> RunConfig:
        """The config of a combination of settings.

        Raises:
            ConfigError: no config allows it.
        """
        follows = "ranks" in settings and "parts" not in settings and self.base.parts == self.base.ranks
        return self.base.replace(**({"parts": 0} if follows else {}), **settings, seed=seed)

    @cached_property
    def _expanded(self) -> tuple[tuple[Cell, ...], tuple[Skipped, ...]]:
        combinations = list(itertools.product(*(axis.pairs() for axis in self.axes)))
        if len(combinations) * len(self.all_seeds) > MOST_RUNS:
            raise ConfigError(
                f"the grid has {len(combinations):,} combinations of {len(self.all_seeds)} seeds: at most "
                f"{MOST_RUNS:,} runs are allowed. Take fewer values, or search: space=..., trials=30."
            )
        skipped: list[Skipped] = []
        cells: list[Cell] = []
        for seed in self.all_seeds:
            number = 0
            for each in combinations:
                named = {axis.name: value for axis, (value, _) in zip(self.axes, each, strict=True)}
                settings = {name: value for _, part in each for name, value in part.items()}
                made = self._cell(number, named, settings, seed)
                if isinstance(made, Cell):
                    cells.append(made)
                    number += 1
                elif seed == self.all_seeds[0]:
                    skipped.append(made)
        known: dict[str, Cell] = {}
        for cell in cells:
            if cell.key in known:
                raise ConfigError(f"over: ({known[cell.key]}) and ({cell}) are the same run. Leave one of them out.")
            known[cell.key] = cell
        return tuple(cells), tuple(skipped)

    def _cell(self, number: int, named: Mapping[str, Any], settings: Mapping[str, Any], seed: int) -> Cell | Skipped:
        for rule in self.skip:
            if rule != REFUSED and all(named[name] in values for name, values in rule.items()):
                return Skipped(named, "by skip=.")
        try:
            return Cell(number, named, seed, self.config_of(settings, seed))
        except ConfigError as error:
            if REFUSED in self.skip:
                return Skipped(named, without_lists(error))
            said = ", ".join(f"{name}={value!r}" for name, value in named.items())
            raise ConfigError(
                f"over: {said} is not allowed: {without_lists(error)} Leave it out, or all such with skip='refused'."
            ) from error

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The runs of a grid, all combinations of the first seed first; none of a search."""
        return () if self.space else self._expanded[0]

    @cached_property
    def by_key(self) -> Mapping[str, Cell]:
        """The runs of a grid by their keys."""
        return {cell.key: cell for cell in self.cells}

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """The combinations of a grid that are not run."""
        return () if self.space else self._expanded[1]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "schema": SCHEMA,
            "base": json.loads(self.base.to_json()),
            "over": {axis.name: axis.to_dict() for axis in self.axes},
            "seeds": list(self.all_seeds),
            "space": {name: drawn.to_dict() for name, drawn in self.space.items()},
            "trials": self.trials,
            "sampler": self.sampler,
            "skip": [rule if rule == REFUSED else {name: list(of) for name, of in rule.items()} for rule in self.skip],
            "objective": self.objective,
            "goal": self.goal,
            "shipped": self.shipped,
        }

    def to_json(self) -> str:
        """The sweep as indented JSON with a schema version."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str | bytes) -> Sweep:
        """Read the form that :meth:`to_json` wrote, or a handwritten one; omitted entries have their defaults.

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
            raise ConfigError(f"the sweep has schema {data['schema']!r}; this version reads {SCHEMA}. Update dtdg_lab.")
        for name in data:
            if name not in _KEYS:
                raise UnknownNameError("entry of a sweep", name, _KEYS)
        base = RunConfig.from_json(json.dumps(data["base"]))
        return cls(base, **{name: data[name] for name in _KEYS[2:] if name in data})

    @classmethod
    def load(cls, path: str | Path) -> Sweep:
        """Read a file (see :meth:`from_json`)."""
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
            what = f"{self.trials} trials of {', '.join(self.space)} drawn by {self.sampler}"
        else:
            what = " x ".join(f"{axis.name} ({len(axis.values)})" for axis in self.axes)
        left = f", {len(self.skipped)} combinations skipped" if self.skipped else ""
        seeds = len(self.all_seeds)
        return (
            f"Sweep({what}, {seeds} {'seed' if seeds == 1 else 'seeds'}: {self.total} runs of {self.base.system} on "
            f"{self.base.dataset}{left})"
        )


def key_of(config: RunConfig) -> str:
    """16 hexadecimal digits of a run's settings."""
    return hashlib.sha256(config.to_json().encode()).hexdigest()[:16]


def _rules(given: Any, axes: Sequence[str], search: bool) -> tuple[Any, ...]:
    """Rules of ``skip=`` as a tuple of ``"refused"`` and mappings of axis -> tuple of values."""
    listed = (given,) if isinstance(given, str | Mapping) else tuple(given)
    found: list[Any] = []
    for rule in listed:
        if rule == REFUSED:
            found.append(REFUSED)
        elif isinstance(rule, Mapping) and rule and not search:
            for name in rule:
                if name not in axes:
                    raise UnknownNameError("axis in skip", name, axes)
            several = (list, tuple, set, range)
            found.append({name: tuple(of) if isinstance(of, several) else (of,) for name, of in rule.items()})
        else:
            raise ConfigError(
                f"skip={shortened(rule)}: 'refused' and, in a grid, mappings such as {{'system': 'single', 'ranks': "
                "[2, 4]}} are allowed. In a search, invalid combinations are always skipped and reported."
            )
    return tuple(found)


def without_lists(error: ConfigError) -> str:
    """The text of an error, without the list of all allowed names."""
    return re.sub(r" Allowed: [a-z0-9_, -]{120,}\.", "", str(error))


def settings_text(settings: Mapping[str, Any]) -> str:
    """Names and values of settings as text."""
    values = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in settings.items()}
    return ", ".join(f"{name} {value}" for name, value in values.items())
