"""The plan of a race on disk: its contestants, its seeds, and the rule that stops its runs."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.cluster.stopping_rule import Evaluated, Verdict
from dtdg_lab.config import catalogue
from dtdg_lab.config.extensions import check_registered
from dtdg_lab.config.options import OPTIONS, option
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunStoreError, shortened
from dtdg_lab.core.system_errors import store_error
from dtdg_lab.core.units import as_path, format_seconds, join_words
from dtdg_lab.datasets.names import load_for
from dtdg_lab.runs.json_files import read_json, write_json
from dtdg_lab.runs.registered_code import add_extensions, check_same_code, learn_extensions
from dtdg_lab.studies.sweep import Cell

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """A rule that ends a run after the epoch in which one of its conditions first holds.

    The run's test split is then evaluated once.

    Attributes:
        epochs: maximum number of epochs; by default that of the configs.
        patience: number of consecutive validation evaluations without a new lowest loss.
        seconds: time since the start of the run, including evaluations; checked after each validation evaluation.
        loss: validation loss to reach.

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
                "StopRule() needs a condition. Give epochs=, patience=, seconds= or loss=, or use race(..., stop=None)."
            )
        if self.epochs is not None:
            object.__setattr__(self, "epochs", option("epochs").check(self.epochs))
        patience = self.patience
        if patience is not None and (not isinstance(patience, int) or isinstance(patience, bool) or patience < 1):
            raise ConfigError(f"patience={patience!r} is invalid. Give a whole number of evaluations, at least 1.")
        for name in ("seconds", "loss"):
            value = getattr(self, name)
            if value is None:
                continue
            is_finite = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not is_finite or (name == "seconds" and value <= 0):
                raise ConfigError(
                    f"{name}={value!r} is invalid. Give a finite number{' above 0' * (name == 'seconds')}."
                )

    @property
    def judges(self) -> bool:
        """Whether the rule may stop a run before its last epoch."""
        return any(value is not None for value in (self.patience, self.seconds, self.loss))

    def check(self, config: RunConfig) -> None:
        """Check that the rule can stop runs of a config.

        Raises:
            ConfigError: the rule uses the validation split, but the config's protocol has none.
        """
        if self.judges and not catalogue.PROTOCOLS[config.protocol].validation_share:
            protocols = [name for name, protocol in catalogue.PROTOCOLS.items() if protocol.validation_share]
            raise ConfigError(
                f"The rule ({self.summary()}) needs a validation split, but protocol={config.protocol!r} has none. "
                f"Give only epochs=, or choose one of {', '.join(protocols)}."
            )

    def verdict(self, evaluations: tuple[Evaluated, ...]) -> Verdict | None:
        """Return a verdict if a run with these evaluations, oldest first, ends now; otherwise None.

        Losses that are not finite never count as the lowest.
        """
        last = evaluations[-1]
        if self.loss is not None and last.loss is not None and last.loss <= self.loss:
            return Verdict("finish", f"validation loss {last.loss:.4g} reached {self.loss:g}")
        if self.seconds is not None and last.seconds >= self.seconds:
            return Verdict("finish", f"the time limit of {format_seconds(self.seconds)} is reached")
        if self.patience is not None and len(evaluations) > self.patience:
            losses = [math.inf if evaluated.loss is None else evaluated.loss for evaluated in evaluations]
            if min(losses[: -self.patience]) <= min(losses[-self.patience :]):
                return Verdict("finish", f"no new lowest validation loss in {self.patience} evaluations")
        return None

    def summary(self) -> str:
        """Return the rule as part of a sentence."""
        conditions = []
        if self.epochs is not None:
            conditions.append(f"{self.epochs} epochs")
        if self.patience is not None:
            conditions.append(f"{self.patience} evaluations without a new lowest validation loss")
        if self.seconds is not None:
            conditions.append(format_seconds(self.seconds))
        if self.loss is not None:
            conditions.append(f"a validation loss of {self.loss:g}")
        return join_words(conditions).replace(" and ", " or ")

    def to_dict(self) -> dict[str, Any]:
        """Return the rule as a dict that :meth:`from_dict` reads."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> StopRule:
        """Read the dict that :meth:`to_dict` wrote.

        Raises:
            ConfigError: the rule is not one of this version.
        """
        try:
            return cls(**data)
        except TypeError as error:
            raise ConfigError(f"the stopping rule {data!r} cannot be read ({error}). Update dtdg_lab.") from error


if TYPE_CHECKING:
    pass


SCHEMA = 2
FILE, FOLDER = "race.json", "races"


@dataclass(frozen=True)
class RacePlan:
    """The contestants and seeds of a race.

    Attributes:
        name: the race's name.
        configs: contestant -> its settings; the race's seeds replace its own.
        seeds: seeds of each contestant's runs.
        stop: the rule that stops runs early; None without a rule.
        parallel: whether two runs are trained at the same time.
        data: seed -> hash of its data.
        copy_bytes_per_s: rate at which one core of this machine copies memory, at the start of the race; None if it was
            not measured.
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
        """All runs, seed by seed; with each seed, another contestant comes first.

        The first contestant may find a cold processor, cold file caches, or partitions that are not cached.
        """
        labels = list(self.configs)
        cells = []
        for turn, seed in enumerate(self.seeds):
            first = turn % len(labels)
            for label in (*labels[first:], *labels[:first]):
                config = self.configs[label].replace(seed=seed)
                cells.append(Cell(labels.index(label), {"contestant": label}, seed, config))
        return tuple(cells)

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
                f"{path} is not a race, since it has no {FILE}. Give a race's folder, such as "
                "runs/races/20260131-my-race."
            )
        data = read_json(file)
        learn_extensions(file.parent)
        if isinstance(data, dict) and isinstance(data.get("schema"), int) and data["schema"] != SCHEMA:
            advice = "Update dtdg_lab" if data["schema"] > SCHEMA else "Start the race again under another name"
            raise RunStoreError(
                f"{file} has schema {data['schema']}, but this version reads schema {SCHEMA}. {advice}."
            )
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
        """Return this plan with the contestants and seeds that a new plan adds.

        Raises:
            ConfigError: the new plan differs in something else, or registered code has changed; the message says what.
        """
        # existing contestants keep their labels, since generated labels depend on the other contestants
        old_labels = {config.replace(seed=0).to_json(): label for label, config in self.configs.items()}
        labels = [old_labels.get(config.replace(seed=0).to_json(), label) for label, config in new.configs.items()]
        if len(set(labels)) == len(labels):
            new = replace(new, configs=dict(zip(labels, new.configs.values(), strict=True)))
        remedy = f"race under another name, or delete {folder}"
        for label, config in self.configs.items():
            if label not in new.configs:
                raise ConfigError(f"race {self.name!r} has {label!r}, which this call leaves out. Add it, or {remedy}.")
            old_flat, new_flat = config.replace(seed=0).flat, new.configs[label].replace(seed=0).flat
            for name in old_flat.keys() | new_flat.keys():
                if old_flat.get(name) != new_flat.get(name):
                    raise ConfigError(
                        f"race {self.name!r} has {label!r} with {name}={old_flat.get(name)!r}, but now {name}="
                        f"{new_flat.get(name)!r} is given. Undo this, {remedy}."
                    )
        for name in ("stop", "parallel"):
            if (pair := (getattr(self, name), getattr(new, name)))[0] != pair[1]:
                raise ConfigError(
                    f"race {self.name!r} has {name}={pair[0]}, but now {name}={pair[1]} is given. Undo this, {remedy}."
                )
        for seed in self.data.keys() & new.data.keys():
            if self.data[seed] != new.data[seed]:
                raise ConfigError(
                    f"race {self.name!r} used data {self.data[seed][:12]}, but the data now are "
                    f"{new.data[seed][:12]}. Restore the data, {remedy}."
                )
        check_same_code(f"race {self.name!r}", folder, *new.configs.values(), remedy=remedy)
        seeds = tuple(dict.fromkeys([*self.seeds, *new.seeds]))
        return replace(new, seeds=seeds, data={**self.data, **new.data}, copy_bytes_per_s=self.copy_bytes_per_s)


def races_in(runs_dir: Path) -> list[Path]:
    """Return the folders of the races in a folder of runs, newest first."""
    folders = [(path.stat().st_mtime_ns, path.parent) for path in (runs_dir / FOLDER).glob(f"*/{FILE}")]
    return [folder for _, folder in sorted(folders, reverse=True)]


def new_race(plan: RacePlan, runs_dir: Path) -> Path:
    """Make a folder ``<runs_dir>/races/<date>-<name>``, with ``-2``, ``-3`` ... if it exists already.

    Raises:
        RunStoreError: the folder cannot be written.
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
    """Return the newest race with a name; None if there is none. Folders with other names are not read."""
    pattern = re.compile(rf"(\d{{8}})-{re.escape(name)}(?:-(\d+))?")
    matches = [(match, path) for path in (runs_dir / FOLDER).glob("*") if (match := pattern.fullmatch(path.name))]
    for _, folder in sorted(matches, key=lambda pair: (pair[0][1], int(pair[0][2] or 1)), reverse=True):
        if (folder / FILE).is_file() and RacePlan.load(folder).name == name:
            return folder
    return None


if TYPE_CHECKING:
    pass


def _settings(names: Sequence[str]) -> tuple[str, ...]:
    """Return settings by name; ``energy/*`` stands for all options of that owner."""
    settings = []
    for name in names:
        owner = name.removesuffix("/*")
        settings += [name] if owner == name else [key for key, option in OPTIONS.items() if option.owner == owner]
    return tuple(settings)


_SETTINGS = tomllib.loads(Path(__file__).with_name("race_plan.toml").read_text(encoding="utf-8"))


ALWAYS, UNLESS_RACED = _settings(_SETTINGS["always"]), _settings(_SETTINGS["unless_raced"])
MOST_LABEL = 60  # maximum number of characters


def contestants(
    configs: Sequence[RunConfig] | Mapping[str, RunConfig], *, seeds: Sequence[int], stop: StopRule | None
) -> dict[str, RunConfig]:
    """Return the configs of a race by label, with the epochs of the stopping rule, after checking them.

    Labels are those of a mapping; otherwise they are the systems, with the settings in which contestants of the same
    system differ. The first of the race's seeds replaces those of the configs.

    Raises:
        ConfigError: there are fewer than two contestants, two are equal, seeds are missing, repeated or invalid, or a
            setting that must be the same differs (the message has both values).
    """
    unlabelled = list(configs.values() if isinstance(configs, Mapping) else configs)
    for config in unlabelled:
        if not isinstance(config, RunConfig):
            raise ConfigError(f"race() needs a RunConfig for each contestant, but got {shortened(config)}.")
    if len(unlabelled) < 2:
        raise ConfigError(f"a race needs at least two configs, but got {len(unlabelled)}.")
    if not len(seeds) or len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds={tuple(seeds)} are invalid. Give at least one seed, and each only once.")
    shared = {"seed": int(seeds[0])} | ({} if stop is None or stop.epochs is None else {"epochs": stop.epochs})
    ready = [config.replace(**shared) for config in unlabelled]
    labels = [_checked_label(label) for label in configs] if isinstance(configs, Mapping) else labels_for(ready)
    by_label = dict(zip(labels, ready, strict=True))
    _check_apart(by_label)
    check_alike(by_label)
    for config in by_label.values():
        if stop is not None:
            stop.check(config)
    return by_label


def _checked_label(label: object) -> str:
    if not isinstance(label, str) or not label.strip() or len(label) > MOST_LABEL or len(label.splitlines()) > 1:
        raise ConfigError(
            f"label {shortened(label)} is invalid. Give a name of 1 to {MOST_LABEL} characters on one line."
        )
    return label


def _check_apart(configs: Mapping[str, RunConfig]) -> None:
    labels: dict[str, str] = {}
    for label, config in configs.items():
        first_label = labels.setdefault(config.to_json(), label)
        if first_label != label:
            raise ConfigError(f"{first_label!r} and {label!r} have the same settings. Remove or change one of them.")


def labels_for(configs: Sequence[RunConfig]) -> list[str]:
    """Return a label for each config: its system, and the settings in which configs of the same system differ."""
    labels: list[str] = []
    for config in configs:
        of_system = [alike.flat for alike in configs if alike.system == config.system]
        shared = [name for name in config.flat if all(name in settings for settings in of_system)]
        names = [name for name in shared if any(settings[name] != of_system[0][name] for settings in of_system)]
        text = ", ".join(f"{name} {config.flat[name]}" for name in names)
        label = f"{config.system}, {text}" if text else config.system
        label = label if len(label) <= MOST_LABEL else f"{label[: MOST_LABEL - 6]}..."
        number = sum(earlier == label or earlier.startswith(f"{label} (") for earlier in labels)
        labels.append(f"{label} ({number + 1})" if number else label)
    return labels


def check_alike(configs: Mapping[str, RunConfig]) -> None:
    """Check that losses, times and joules of the contestants are comparable.

    Model and conditions may differ if all contestants have the same system, since then these are compared.

    Raises:
        ConfigError: something differs; the message has its name, both contestants and both values.
    """
    one_system = len({config.system for config in configs.values()}) == 1
    for name in (*ALWAYS, *(() if one_system else UNLESS_RACED)):
        values = [(label, config.flat[name]) for label, config in configs.items() if name in config.flat]
        for label, value in values[1:]:  # contestants without the setting are skipped
            if value != values[0][1]:
                raise ConfigError(
                    f"All contestants need the same `{name}`, but {values[0][0]!r} has {values[0][1]!r}, {label!r} "
                    f"has {value!r}. Use config.replace({name}=...)"
                    + ("." if name in ALWAYS or one_system else ", or compare its values in a race of one system.")
                )


def data_hashes(configs: Mapping[str, RunConfig], seeds: Sequence[int]) -> dict[int, str]:
    """Return seed -> hash of the data, which all contestants share. Data are loaded or generated.

    Raises:
        ConfigError: contestants have different data; the message says what differs.
        DataError: the data are not available.
    """
    hashes: dict[int, str] = {}
    loaded: dict[tuple[Any, ...], str] = {}
    first = next(iter(configs))
    for seed in seeds:
        for label, config in configs.items():
            key = (config.dataset, config.protocol, *sorted(config.options.get("datasets", {}).items()), seed)
            if key not in loaded:
                loaded[key] = load_for(config.replace(seed=seed)).data_hash
            if hashes.setdefault(seed, loaded[key]) != loaded[key]:
                raise ConfigError(_data_difference(first, label, configs, (hashes[seed], loaded[key])))
    return hashes


def _data_difference(first: str, label: str, configs: Mapping[str, RunConfig], hashes: tuple[str, str]) -> str:
    first_config, config = configs[first], configs[label]
    names = ("dataset", *first_config.options.get("datasets", {}), *config.options.get("datasets", {}))
    differences = [
        f"{name}={first_config.flat.get(name)!r} and {name}={config.flat.get(name)!r}"
        for name in names
        if first_config.flat.get(name) != config.flat.get(name)
    ] or [f"data hash {hashes[0][:12]} and {hashes[1][:12]}"]
    return (
        f"All contestants need the same data, but {first!r} and {label!r} differ: {differences[0]}. "
        "Use config.replace(...)."
    )
