"""The plan of a race on disk: contestants, seeds and rule."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dtdg_lab.config.extensions import check_registered
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunStoreError
from dtdg_lab.core.units import as_path
from dtdg_lab.runs.json_files import read_json, store_error, write_json
from dtdg_lab.runs.registered_code import add_extensions, check_same_code, learn_extensions
from dtdg_lab.studies.stop_rule import StopRule
from dtdg_lab.studies.sweep import Cell

if TYPE_CHECKING:
    pass


SCHEMA = 2
FILE, FOLDER = "race.json", "races"


@dataclass(frozen=True)
class RacePlan:
    """A grid of contestants and seeds.

    Attributes:
        name: of the race.
        configs: by contestant; the race's seeds replace theirs.
        seeds: of the runs of each.
        stop: the rule that stops runs early; None without a rule.
        parallel: True if two runs execute in parallel.
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
        """Runs, seed by seed, with a rotating first contestant.

        The first one may find cold file caches, a cold processor, or uncached partitions.
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
        """Return this plan with the additions of a new one: possibly more contestants or seeds.

        Raises:
            ConfigError: the new plan differs, or the registered code has changed; the message names the difference.
        """
        # with the old labels of existing contestants: generated labels depend on the other contestants
        old_labels = {config.replace(seed=0).to_json(): label for label, config in self.configs.items()}
        labels = [old_labels.get(config.replace(seed=0).to_json(), label) for label, config in new.configs.items()]
        if len(set(labels)) == len(labels):
            new = replace(new, configs=dict(zip(labels, new.configs.values(), strict=True)))
        remedy = f"race under another name, or delete {folder}"
        for label, config in self.configs.items():
            if label not in new.configs:
                raise ConfigError(f"race {self.name!r} has {label!r}, which this call leaves out: add it, or {remedy}.")
            old_flat, new_flat = config.replace(seed=0).flat, new.configs[label].replace(seed=0).flat
            for name in old_flat.keys() | new_flat.keys():
                if old_flat.get(name) != new_flat.get(name):
                    raise ConfigError(
                        f"race {self.name!r} has {label!r} with {name}={old_flat.get(name)!r}, now {name}="
                        f"{new_flat.get(name)!r}: {remedy}."
                    )
        for name in ("stop", "parallel"):
            if (pair := (getattr(self, name), getattr(new, name)))[0] != pair[1]:
                raise ConfigError(f"race {self.name!r} has {name}={pair[0]}, now {name}={pair[1]}: {remedy}.")
        for seed in self.data.keys() & new.data.keys():
            if self.data[seed] != new.data[seed]:
                raise ConfigError(
                    f"race {self.name!r} ran on data {self.data[seed][:12]}, but the data is now "
                    f"{new.data[seed][:12]}: {remedy}."
                )
        check_same_code(f"race {self.name!r}", folder, *new.configs.values(), remedy=remedy)
        seeds = tuple(dict.fromkeys([*self.seeds, *new.seeds]))
        return replace(new, seeds=seeds, data={**self.data, **new.data}, copy_bytes_per_s=self.copy_bytes_per_s)


def races_in(runs_dir: Path) -> list[Path]:
    """Return the folders of the races in a folder of runs, newest first."""
    folders = [(path.stat().st_mtime_ns, path.parent) for path in (runs_dir / FOLDER).glob(f"*/{FILE}")]
    return [folder for _, folder in sorted(folders, reverse=True)]


def new_race(plan: RacePlan, runs_dir: Path) -> Path:
    """Make a folder ``<runs_dir>/races/<date>-<name>``, or with ``-2``, ``-3`` if that exists.

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
    """Return the newest race of a name; None if there is none. Folders of other names are not read."""
    pattern = re.compile(rf"(\d{{8}})-{re.escape(name)}(?:-(\d+))?")
    matches = [(match, path) for path in (runs_dir / FOLDER).glob("*") if (match := pattern.fullmatch(path.name))]
    for _, folder in sorted(matches, key=lambda pair: (pair[0][1], int(pair[0][2] or 1)), reverse=True):
        if (folder / FILE).is_file() and RacePlan.load(folder).name == name:
            return folder
    return None
