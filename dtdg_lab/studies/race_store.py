"""The plan of a race on disk: contestants, seeds and rule; its trials are in the folder's log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunStoreError
from dtdg_lab.runs.directory import read_json, store_error, write_json
from dtdg_lab.studies.stop_rule import StopRule
from dtdg_lab.studies.sweep import Cell

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
            RunStoreError: the disk is full, or the folder cannot be written.
        """
        plan = {name: getattr(self, name) for name in ("name", "parallel", "seeds", "copy_bytes_per_s")}
        plan["schema"] = SCHEMA
        plan["stop"] = None if self.stop is None else self.stop.to_dict()
        plan["data"] = {str(seed): digits for seed, digits in self.data.items()}
        plan["contestants"] = {label: config.model_dump() for label, config in self.configs.items()}
        write_json(folder / FILE, plan)

    @classmethod
    def load(cls, path: str | Path) -> RacePlan:
        """Read the plan in a race's folder.

        Raises:
            RunStoreError: there is no race, its file is damaged, or another version wrote it.
        """
        file = Path(path) / FILE
        if not file.is_file():
            raise RunStoreError(
                f"{path} is not a race: it has no {FILE}. Give its folder, such as runs/races/20260131-my-race."
            )
        data = read_json(file)
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
            ConfigError: the new plan differs; the message names the difference.
        """
        return _joined(self, _as_named_before(self, new), folder)


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


def _as_named_before(old: RacePlan, new: RacePlan) -> RacePlan:
    """The new plan with the old labels of existing contestants: generated labels depend on the other contestants."""
    before = {config.replace(seed=0).to_json(): label for label, config in old.configs.items()}
    labels = [before.get(config.replace(seed=0).to_json(), label) for label, config in new.configs.items()]
    if len(set(labels)) < len(labels):
        return new
    return replace(new, configs=dict(zip(labels, new.configs.values(), strict=True)))


def _joined(old: RacePlan, new: RacePlan, folder: Path) -> RacePlan:
    """The old plan with the additions of the new one."""
    other = f"race under another name, or delete {folder}"
    for label, config in old.configs.items():
        if label not in new.configs:
            raise ConfigError(f"race {old.name!r} has {label!r}, which this call leaves out: add it, or {other}.")
        was, now = config.replace(seed=0).flat, new.configs[label].replace(seed=0).flat
        for name in was.keys() | now.keys():
            if was.get(name) != now.get(name):
                raise ConfigError(
                    f"race {old.name!r} has {label!r} with {name}={was.get(name)!r}, now {name}={now.get(name)!r}: "
                    f"{other}."
                )
    for what, pair in {"stop": (old.stop, new.stop), "parallel": (old.parallel, new.parallel)}.items():
        if pair[0] != pair[1]:
            raise ConfigError(f"race {old.name!r} has {what}={pair[0]}, now {what}={pair[1]}: {other}.")
    for seed in old.data.keys() & new.data.keys():
        if old.data[seed] != new.data[seed]:
            raise ConfigError(
                f"race {old.name!r} ran on data {old.data[seed][:12]}, but the data is now {new.data[seed][:12]}: "
                f"{other}."
            )
    seeds = tuple(dict.fromkeys([*old.seeds, *new.seeds]))
    return replace(new, seeds=seeds, data={**old.data, **new.data}, copy_bytes_per_s=old.copy_bytes_per_s)
