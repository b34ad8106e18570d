"""The plan of a race: its stopping rule, the settings that contestants must share, and its file."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.local import Evaluated, Verdict
from dtdg_lab.config import catalogue
from dtdg_lab.config.extensions import check_registered
from dtdg_lab.config.model_facts import kept_memory
from dtdg_lab.config.options import OPTIONS, option
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunStoreError, shortened
from dtdg_lab.core.units import as_path, format_seconds, join_words
from dtdg_lab.datasets.names import load_for
from dtdg_lab.runs.json_files import read_json, store_error, write_json
from dtdg_lab.runs.registered_code import add_extensions, check_same_code, learn_extensions
from dtdg_lab.studies.sweep import Cell
from dtdg_lab.visualization.runs.curves import evaluations_of, first_loss

if TYPE_CHECKING:
    from dtdg_lab.runs.tables import RunTables


# The stopping rule of a race: one for all runs, judging by the validation split and the clock alone.


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """The first condition that holds ends a run after the current epoch; then its test split is evaluated once.

    Attributes:
        epochs: maximum epochs; by default those of the configs.
        patience: consecutive validation evaluations without a new lowest loss.
        seconds: since the start of the run, including evaluations; checked when the validation split is evaluated.
        loss: target validation loss.

    Raises:
        ConfigError: no condition is given, or a number is invalid.
    """

    epochs: int | None = None
    patience: int | None = None
    seconds: float | None = None
    loss: float | None = None

    def __post_init__(self) -> None:
        if all(value is None for value in asdict(self).values()):
            raise ConfigError(
                "StopRule() without a rule: give epochs=, patience=, seconds= or loss=, or race(..., stop=None)."
            )
        if self.epochs is not None:
            object.__setattr__(self, "epochs", option("epochs").check(self.epochs))
        patience = self.patience
        if patience is not None and (not isinstance(patience, int) or isinstance(patience, bool) or patience < 1):
            raise ConfigError(f"patience={patience!r}: give a whole number of evaluations, at least 1.")
        for name in ("seconds", "loss"):
            value = getattr(self, name)
            if value is None:
                continue
            known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not known or (name == "seconds" and value <= 0):
                raise ConfigError(f"{name}={value!r}: give a finite number{' above 0' * (name == 'seconds')}.")

    @property
    def judges(self) -> bool:
        """Whether it may stop a run before its last epoch."""
        return any(value is not None for value in (self.patience, self.seconds, self.loss))

    def check(self, config: RunConfig) -> None:
        """Refuse a config whose runs it could never stop.

        Raises:
            ConfigError: it uses the validation split, and the config's protocol has none.
        """
        if self.judges and not catalogue.PROTOCOLS[config.protocol].validation_share:
            able = [name for name, known in catalogue.PROTOCOLS.items() if known.validation_share]
            raise ConfigError(
                f"The rule ({self.summary()}) needs a validation split, and protocol="
                f"{config.protocol!r} has none. Stop by epochs= alone, or choose one of {', '.join(able)}."
            )

    def verdict(self, seen: tuple[Evaluated, ...]) -> Verdict | None:
        """Whether a run with these evaluations, oldest first, ends; losses that are not finite are never the lowest."""
        last = seen[-1]
        if self.loss is not None and last.loss is not None and last.loss <= self.loss:
            return Verdict("finish", f"validation loss {last.loss:.4g} reached {self.loss:g}")
        if self.seconds is not None and last.seconds >= self.seconds:
            return Verdict("finish", f"the time limit of {format_seconds(self.seconds)} is reached")
        if self.patience is not None and len(seen) > self.patience:
            losses = [math.inf if each.loss is None else each.loss for each in seen]
            if min(losses[: -self.patience]) <= min(losses[-self.patience :]):
                return Verdict("finish", f"no new lowest validation loss in {self.patience} evaluations")
        return None

    def summary(self) -> str:
        """The rule as part of a sentence."""
        described = []
        if self.epochs is not None:
            described.append(f"{self.epochs} epochs")
        if self.patience is not None:
            described.append(f"{self.patience} evaluations without a new lowest validation loss")
        if self.seconds is not None:
            described.append(format_seconds(self.seconds))
        if self.loss is not None:
            described.append(f"a validation loss of {self.loss:g}")
        return join_words(described).replace(" and ", " or ")

    def to_dict(self) -> dict[str, Any]:
        """The form that :meth:`from_dict` reads."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> StopRule:
        """Read the form that :meth:`to_dict` wrote.

        Raises:
            ConfigError: it is not a rule of this version.
        """
        try:
            return cls(**data)
        except TypeError as error:
            raise ConfigError(f"a stopping rule {data!r} cannot be read ({error}). Update dtdg_lab.") from error


# Contestants whose losses should be equal, and whether they are.


FIRST: Mapping[str, float] = {"float32": 1e-5, "float64": 1e-10}  # relative, of the first step with a loss
CURVE = 1e-3  # relative, of evaluations: rounding grows as Adam divides noise by its spread
_DECLARED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Check:
    """Two runs of one seed that should have the same losses.

    Attributes:
        labels: of the contestants.
        seed: of both.
        why: reason why they should coincide.
        first: relative difference of the first step that has a loss; None if not known yet.
        curve: largest relative difference of evaluations at the same step; None where there are none yet.
        first_allowed, curve_allowed: by rounding.
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
        """Whether they coincide as far as known; None where nothing can be compared yet."""
        described = [(self.first, self.first_allowed), (self.curve, self.curve_allowed)]
        known = [found <= allowed for found, allowed in described if found is not None]
        return all(known) if known else None

    def summary(self) -> str:
        """The result in a sentence."""
        both = join_words(self.labels)
        if self.ok is None:
            return f"{both}, seed {self.seed}: {self.why}; nothing to compare yet."
        described = []
        if self.first is not None:
            described.append(f"by {self.first:.2g} of the first step's loss ({self.first_allowed:g} is rounding)")
        if self.curve is not None:
            described.append(f"by {self.curve:.2g} along the evaluations ({self.curve_allowed:g} allowed)")
        verdict = "differ" if self.ok else "DIFFER"
        return f"{both}, seed {self.seed}, {verdict} {join_words(described)}: {self.why}."


def same_losses(config: RunConfig) -> tuple[tuple[Any, ...], str] | None:
    """The settings that determine a run's losses, and why; runs with equal keys should have equal losses.

    None where timing affects losses: asynchronous model averaging, batch sizes chosen by a time-based
    reward, schedules of measured times.

    References: SYSTEMS.md, "What the same losses means"; full batches see the whole graph in one step under any
        strategy; all feature caches deliver the same rows to the same batches.
    """
    flat, parts = config.flat, catalogue.system(config.system).parts
    layout, family = parts["parallel"], catalogue.family(catalogue.system(config.system).family)
    learning = tuple(flat.get(name) for name in _DECLARED["learning"])
    learning += tuple(sorted((name, flat[name]) for name in _options_of(config, "tasks", "models", "datasets")))
    how = (
        kept_memory(
            config.model, layout, hidden=config.hidden, layers=config.layers, **config.options.get("models", {})
        )
        or ""
    )
    if layout in family.full_batch and "batching" not in config.options and how.startswith("exact"):
        return (learning, "full batch"), "both train on the whole training split in one step, exactly"
    if (flat.get("exchange") == "models" and config.ranks > 1) or family.has_clock(config):
        return None
    plan = [(name, flat[name]) for name in _options_of(config, "batching", "partition", "parallel", "scheduling")]
    kept = tuple(sorted((name, value) for name, value in plan if name not in _DECLARED["same_numbers"]))
    return (learning, layout, parts.get("batching", ""), config.parts, kept), family.same_plan


def _options_of(config: RunConfig, *rooms: str) -> list[str]:
    return [name for room in rooms for name in config.options.get(room, {})]


def groups(configs: Mapping[str, RunConfig]) -> list[tuple[tuple[str, ...], str]]:
    """Groups of two or more contestants whose losses should coincide, and why."""
    found: dict[tuple[Any, ...], tuple[list[str], str]] = {}
    for label, config in configs.items():
        key = same_losses(config)
        if key is not None:
            found.setdefault(key[0], ([], key[1]))[0].append(label)
    return [(tuple(labels), why) for labels, why in found.values() if len(labels) > 1]


def checks(configs: Mapping[str, RunConfig], tables: Mapping[tuple[str, int], RunTables]) -> list[Check]:
    """Every pair of runs of a seed that should coincide, compared up to their common progress.

    Args:
        configs: of the contestants; their seeds are left out.
        tables: by contestant and seed; active ones must not be written meanwhile.
    """
    found = []
    seeds = list(dict.fromkeys(seed for _, seed in tables))
    for labels, why in groups({label: config.replace(seed=0) for label, config in configs.items()}):
        for seed in seeds:
            there = [label for label in labels if (label, seed) in tables]
            for one, other in combinations(there, 2):
                pair = tables[one, seed], tables[other, seed]
                allowed = FIRST[configs[one]["dtype"]]
                found.append(Check((one, other), seed, why, _first(*pair), _curve(*pair), allowed))
    return found


def _relative(one: float, other: float) -> float:
    largest = max(abs(one), abs(other))
    return abs(one - other) / largest if largest else 0.0


def _first(one: RunTables, other: RunTables) -> float | None:
    """Return the difference at the first step for which both have a loss; None if their first steps differ."""
    first = [first_loss(tables) for tables in (one, other)]
    if first[0] is None or first[1] is None or first[0][0] != first[1][0]:
        return None
    return _relative(first[0][1], first[1][1])


def _curve(one: RunTables, other: RunTables) -> float | None:
    differences: list[float] = []
    for split in ("train", "validation"):
        losses = [{each.step: each.loss for each in evaluations_of(tables, split)} for tables in (one, other)]
        for step in losses[0].keys() & losses[1].keys():
            pair = losses[0][step], losses[1][step]
            if pair[0] is not None and pair[1] is not None:
                differences.append(_relative(pair[0], pair[1]))
    return max(differences, default=None)


def _settings(names: Sequence[str]) -> tuple[str, ...]:
    """These settings; ``energy/*`` are all options of that owner."""
    found = []
    for name in names:
        owner = name.removesuffix("/*")
        found += [name] if owner == name else [each for each, option in OPTIONS.items() if option.owner == owner]
    return tuple(found)


ALWAYS, UNLESS_RACED = _settings(_DECLARED["always"]), _settings(_DECLARED["unless_raced"])
MOST_LABEL = 60  # characters


def contestants(
    given: Sequence[RunConfig] | Mapping[str, RunConfig], *, seeds: Sequence[int], stop: StopRule | None
) -> dict[str, RunConfig]:
    """The configs of a race by label, with the epochs of the stopping rule, checked to be comparable.

    Labels are those of a mapping, else the systems, with the settings in which equal systems differ. The race's
    seeds replace those of the configs.

    Raises:
        ConfigError: there are fewer than two, two are equal, seeds are missing, repeated or invalid, or a setting that
            must be equal differs: the message names it with both values.
    """
    configs = dict(given) if isinstance(given, Mapping) else dict(enumerate(given))
    for config in configs.values():
        if not isinstance(config, RunConfig):
            raise ConfigError(f"race() got {shortened(config)}: give a RunConfig for each contestant.")
    if len(configs) < 2:
        raise ConfigError(f"{len(configs)} contestants: a race needs at least two configs.")
    if not len(seeds) or len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds={tuple(seeds)}: give at least one seed, and each only once.")
    shared = {"seed": int(seeds[0])} | ({} if stop is None or stop.epochs is None else {"epochs": stop.epochs})
    ready = [config.replace(**shared) for config in configs.values()]
    labels = [_own_label(label) for label in configs] if isinstance(given, Mapping) else labels_for(ready)
    found = dict(zip(labels, ready, strict=True))
    _check_apart(found)
    check_alike(found)
    for config in found.values():
        if stop is not None:
            stop.check(config)
    return found


def _own_label(label: object) -> str:
    if not isinstance(label, str) or not label.strip() or len(label) > MOST_LABEL or len(label.splitlines()) > 1:
        raise ConfigError(f"label {shortened(label)}: a name of 1 to {MOST_LABEL} characters on one line is required.")
    return label


def _check_apart(found: Mapping[str, RunConfig]) -> None:
    seen: dict[str, str] = {}
    for label, config in found.items():
        other = seen.setdefault(config.to_json(), label)
        if other != label:
            raise ConfigError(f"{other!r} and {label!r} have the same settings: remove or change one of them.")


def labels_for(configs: Sequence[RunConfig]) -> list[str]:
    """A label for each config: its system, and if several share it, the settings that differ among them."""
    found: list[str] = []
    for config in configs:
        same = [other.flat for other in configs if other.system == config.system]
        shared = [name for name in config.flat if all(name in other for other in same)]
        names = [name for name in shared if any(other[name] != same[0][name] for other in same)]
        described = ", ".join(f"{name} {config.flat[name]}" for name in names)
        label = f"{config.system}, {described}" if described else config.system
        label = label if len(label) <= MOST_LABEL else f"{label[: MOST_LABEL - 6]}..."
        number = sum(known == label or known.startswith(f"{label} (") for known in found)
        found.append(f"{label} ({number + 1})" if number else label)
    return found


def check_alike(found: Mapping[str, RunConfig]) -> None:
    """Refuse contestants whose losses, times or joules would not be comparable.

    Model and conditions may differ if all contestants have one system: then they are what is compared.

    Raises:
        ConfigError: something differs; the message names it, both contestants and both values.
    """
    one_system = len({config.system for config in found.values()}) == 1
    for name in (*ALWAYS, *(() if one_system else UNLESS_RACED)):
        having = [(label, config.flat[name]) for label, config in found.items() if name in config.flat]
        for label, value in having[1:]:  # systems without the setting are skipped
            if value != having[0][1]:
                raise ConfigError(
                    f"All contestants need the same `{name}`: {having[0][0]!r} has {having[0][1]!r}, {label!r} has "
                    f"{value!r}. Use config.replace({name}=...)"
                    + ("." if name in ALWAYS or one_system else "; or compare its values in a race of one system.")
                )


def data_hashes(found: Mapping[str, RunConfig], seeds: Sequence[int]) -> dict[int, str]:
    """The data hash of every seed, shared by all contestants. Data are loaded or generated.

    Raises:
        ConfigError: contestants have different data; the message names what differs.
        DataError: the data is not available.
    """
    hashes: dict[int, str] = {}
    known: dict[tuple[Any, ...], str] = {}
    first = next(iter(found))
    for seed in seeds:
        for label, config in found.items():
            key = (config.dataset, config.protocol, *sorted(config.options.get("datasets", {}).items()), seed)
            if key not in known:
                known[key] = load_for(config.replace(seed=seed)).data_hash
            if hashes.setdefault(seed, known[key]) != known[key]:
                raise ConfigError(_other_data(first, label, found, (hashes[seed], known[key])))
    return hashes


def _other_data(first: str, label: str, found: Mapping[str, RunConfig], hashes: tuple[str, str]) -> str:
    one, other = found[first], found[label]
    names = ("dataset", *one.options.get("datasets", {}), *other.options.get("datasets", {}))
    described = [
        f"{name}={one.flat.get(name)!r} and {name}={other.flat.get(name)!r}"
        for name in names
        if one.flat.get(name) != other.flat.get(name)
    ] or [f"data hash {hashes[0][:12]} and {hashes[1][:12]}"]
    return (
        f"All contestants need the same data: {first!r} and {label!r} differ, {described[0]}. Use config.replace(...)."
    )


# The plan of a race on disk: contestants, seeds and rule; its trials are in the folder's log.


SCHEMA = 2
FILE, FOLDER = "race.json", "races"


@dataclass(frozen=True)
class RacePlan:
    """The plan of a race: a grid of contestants and seeds.

    Attributes:
        name: of the race.
        configs: by contestant; the race's seeds replace theirs.
        seeds: of the runs of each.
        stop: the rule that stops runs early; None without a rule.
        parallel: whether two runs execute in parallel.
        data: hash of the data by seed.
        copy_bytes_per_s: memory copy rate of one core of this machine at the start of the race; None if not measured.
    """

    name: str
    configs: Mapping[str, RunConfig]
    seeds: tuple[int, ...]
    stop: StopRule | None = None
    parallel: bool = False
    data: Mapping[int, str] = field(default_factory=dict)
    copy_bytes_per_s: float | None = None

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """The runs, seed by seed, with a rotating first contestant.

        The first one may find cold file caches, a cold processor, or uncached partitions.
        """
        labels = list(self.configs)
        found = []
        for turn, seed in enumerate(self.seeds):
            first = turn % len(labels)
            for label in (*labels[first:], *labels[:first]):
                config = self.configs[label].replace(seed=seed)
                found.append(Cell(labels.index(label), {"contestant": label}, seed, config))
        return tuple(found)

    def save(self, folder: Path) -> None:
        """Write ``race.json``.

        Raises:
            ConfigError: a contestant uses code that is not registered in this process.
            RunStoreError: the disk is full, or the folder cannot be written.
        """
        check_registered(*self.configs.values())
        plan = {name: getattr(self, name) for name in ("name", "parallel", "seeds", "copy_bytes_per_s")}
        plan["schema"] = SCHEMA
        plan["stop"] = None if self.stop is None else self.stop.to_dict()
        plan["data"] = {str(seed): digits for seed, digits in self.data.items()}
        plan["contestants"] = {label: config.model_dump() for label, config in self.configs.items()}
        add_extensions(folder, *self.configs.values())
        write_json(folder / FILE, plan)

    @classmethod
    def load(cls, path: str | Path) -> RacePlan:
        """Read the plan in a race's folder.

        Raises:
            RunStoreError: there is no race, its file is damaged, or another version wrote it.
        """
        file = as_path(path, "path", RunStoreError) / FILE
        if not file.is_file():
            raise RunStoreError(
                f"{path} is not a race: it has no {FILE}. Give its folder, such as runs/races/20260131-my-race."
            )
        data = read_json(file)
        learn_extensions(file.parent)
        if isinstance(data, dict) and isinstance(data.get("schema"), int) and data["schema"] != SCHEMA:
            advice = "Update dtdg_lab" if data["schema"] > SCHEMA else "Start the race again under another name"
            raise RunStoreError(f"{file} has schema {data['schema']}; this version reads {SCHEMA}. {advice}.")
        try:
            return cls(
                name=str(data["name"]),
                configs={label: RunConfig(**config) for label, config in data["contestants"].items()},
                seeds=tuple(int(seed) for seed in data["seeds"]),
                stop=None if data["stop"] is None else StopRule.from_dict(data["stop"]),
                parallel=bool(data["parallel"]),
                data={int(seed): str(digits) for seed, digits in data["data"].items()},
                copy_bytes_per_s=data["copy_bytes_per_s"],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # ConfigError is a ValueError
            raise RunStoreError(
                f"{file} cannot be read as a race ({error!r}). Restore it, or start a race under another name."
            ) from error

    def joined(self, new: RacePlan, folder: Path) -> RacePlan:
        """This plan with the additions of a new one: the same contestants and rule, possibly more of them or of seeds.

        Raises:
            ConfigError: the new plan differs, or the registered code has changed; the message names the difference.
        """
        # with the old labels of existing contestants: generated labels depend on the other contestants
        before = {config.replace(seed=0).to_json(): label for label, config in self.configs.items()}
        labels = [before.get(config.replace(seed=0).to_json(), label) for label, config in new.configs.items()]
        if len(set(labels)) == len(labels):
            new = replace(new, configs=dict(zip(labels, new.configs.values(), strict=True)))
        other = f"race under another name, or delete {folder}"
        for label, config in self.configs.items():
            if label not in new.configs:
                raise ConfigError(f"race {self.name!r} has {label!r}, which this call leaves out: add it, or {other}.")
            was, now = config.replace(seed=0).flat, new.configs[label].replace(seed=0).flat
            for name in was.keys() | now.keys():
                if was.get(name) != now.get(name):
                    raise ConfigError(
                        f"race {self.name!r} has {label!r} with {name}={was.get(name)!r}, now {name}="
                        f"{now.get(name)!r}: {other}."
                    )
        for what in ("stop", "parallel"):
            if (pair := (getattr(self, what), getattr(new, what)))[0] != pair[1]:
                raise ConfigError(f"race {self.name!r} has {what}={pair[0]}, now {what}={pair[1]}: {other}.")
        for seed in self.data.keys() & new.data.keys():
            if self.data[seed] != new.data[seed]:
                raise ConfigError(
                    f"race {self.name!r} ran on data {self.data[seed][:12]}, but the data is now "
                    f"{new.data[seed][:12]}: {other}."
                )
        check_same_code(f"race {self.name!r}", folder, *new.configs.values(), remedy=other)
        seeds = tuple(dict.fromkeys([*self.seeds, *new.seeds]))
        return replace(new, seeds=seeds, data={**self.data, **new.data}, copy_bytes_per_s=self.copy_bytes_per_s)


def races_in(runs_dir: Path) -> list[Path]:
    """Folders of the races in a folder of runs, newest first."""
    found = [(path.stat().st_mtime_ns, path.parent) for path in (runs_dir / FOLDER).glob(f"*/{FILE}")]
    return [folder for _, folder in sorted(found, reverse=True)]


def new_race(plan: RacePlan, runs_dir: Path) -> Path:
    """A new folder ``<runs_dir>/races/<date>-<name>``, or with ``-2``, ``-3`` if that exists.

    Raises:
        RunStoreError: it cannot be written.
    """
    root, base = runs_dir / FOLDER, f"{datetime.now():%Y%m%d}-{plan.name}"
    number = 1
    while True:
        folder = root / (base if number == 1 else f"{base}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
            continue
        except OSError as error:
            raise store_error("make a race in", root, error) from error
        plan.save(folder)
        return folder


def find_race(name: str, runs_dir: Path) -> Path | None:
    """The newest race of a name; None if there is none. Folders of other names are not read."""
    named = re.compile(rf"(\d{{8}})-{re.escape(name)}(?:-(\d+))?")
    found = [(match, path) for path in (runs_dir / FOLDER).glob("*") if (match := named.fullmatch(path.name))]
    for _, folder in sorted(found, key=lambda pair: (pair[0][1], int(pair[0][2] or 1)), reverse=True):
        if (folder / FILE).is_file() and RacePlan.load(folder).name == name:
            return folder
    return None
