"""The folder of a race: its plan, and a record of the run of each contestant and seed, updated at start and end."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, RunStoreError
from dtdg_lab.runs.directory import RunDirectory, read_json, store_error, write_json
from dtdg_lab.studies.stop_rule import StopRule

SCHEMA = 1
FILE, FOLDER, LOCK = "race.json", "races", "race.lock"
UNDER_WAY, FINISHED, FAILED, LEFT = "under way", "finished", "failed", "left"


def races_in(runs_dir: Path) -> list[Path]:
    """Folders of the races in a folder of runs, newest first."""
    found = [(path.stat().st_mtime_ns, path.parent) for path in (runs_dir / FOLDER).glob(f"*/{FILE}")]
    return [folder for _, folder in sorted(found, reverse=True)]


@dataclass(frozen=True, slots=True)
class RaceEntry:
    """One run of a race.

    Attributes:
        label: of the contestant.
        seed: of the run.
        path: of its folder; empty if it could not be started.
        state: ``under way``, ``finished``, ``failed``, or ``left`` if it was interrupted and restarted.
        why: reason for an end before its last epoch, or for a failure.
        beside: contestant that ran on the other half of the engines at its start.
    """

    label: str
    seed: int
    path: Path | None
    state: str = UNDER_WAY
    why: str = ""
    beside: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a race.

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


class RaceStore:
    """Reads and writes ``race.json`` atomically; one writer at a time holds the folder's lock."""

    def __init__(self, folder: Path, plan: Plan, entries: Sequence[RaceEntry] = ()) -> None:
        self.folder, self.plan = folder, plan
        self.entries: list[RaceEntry] = list(entries)
        self._lock: Any = None

    @classmethod
    def create(cls, plan: Plan, runs_dir: Path) -> RaceStore:
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
            store = cls(folder, plan)
            store.hold()
            store.write()
            return store

    @classmethod
    def find(cls, name: str, runs_dir: Path) -> RaceStore | None:
        """The newest race of a name; None if there is none. Folders of other names are not read."""
        named = re.compile(rf"(\d{{8}})-{re.escape(name)}(?:-(\d+))?")
        found = [(match, path) for path in (runs_dir / FOLDER).glob("*") if (match := named.fullmatch(path.name))]
        for _, folder in sorted(found, key=lambda pair: (pair[0][1], int(pair[0][2] or 1)), reverse=True):
            if (folder / FILE).is_file():
                store = cls.open(folder)
                if store.plan.name == name:
                    return store
        return None

    @classmethod
    def open(cls, path: str | Path) -> RaceStore:
        """Read a race's folder, or its ``race.json``.

        Raises:
            RunStoreError: there is no race, its file is damaged, or a newer version wrote it.
        """
        folder = Path(path).parent if Path(path).name == FILE else Path(path)
        file = folder / FILE
        if not file.is_file():
            raise RunStoreError(
                f"{path} is not a race: it has no {FILE}. Give its folder, such as runs/races/20260131-psg-blad."
            )
        data = read_json(file)
        if isinstance(data, dict) and isinstance(data.get("schema"), int) and data["schema"] > SCHEMA:
            raise RunStoreError(
                f"{file} has schema {data['schema']}; this version reads up to {SCHEMA}. Update dtdg_lab."
            )
        try:
            return cls(folder, _plan(data), [_entry(each, folder) for each in data["runs"]])
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # ConfigError is a ValueError
            raise RunStoreError(
                f"{file} cannot be read as a race ({error!r}). Restore it, or start a race under another name."
            ) from error

    def hold(self) -> None:
        """Keep other writers out until :meth:`release`, or the end of this process.

        Raises:
            RunStoreError: another process writes the race.
        """
        import filelock

        file = self.folder / LOCK
        lock = filelock.FileLock(file, thread_local=False)
        try:
            lock.acquire(blocking=False)
            file.write_text(str(os.getpid()), encoding="utf-8")
        except filelock.Timeout as error:
            raise RunStoreError(
                f"the race in {self.folder} is under way in process {file.read_text(encoding='utf-8') or 'unknown'}: "
                "wait for it, stop it, or race under another name."
            ) from error
        except OSError as error:
            raise store_error("write", file, error) from error
        self._lock = lock

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def extend(self, plan: Plan) -> None:
        """Resume this race: the same contestants and rule, possibly with more of them or more seeds.

        The file on disk counts: another process may have written it before this one acquired the lock.

        Raises:
            ConfigError: the plan differs; the message names the difference.
            RunStoreError: its file cannot be read or written.
        """
        stored = RaceStore.open(self.folder)
        self.plan = _joined(stored.plan, _as_named_before(stored.plan, plan), self.folder)
        self.entries = [replace(each, state=LEFT) if _is_lost(each) else each for each in stored.entries]
        self.write()

    def done(self, label: str, seed: int) -> RaceEntry | None:
        """The finished run of a contestant and seed; None if there is none, or its folder is missing."""
        of_place = [each for each in self.entries if (each.label, each.seed, each.state) == (label, seed, FINISHED)]
        return next((each for each in reversed(of_place) if not _is_lost(each)), None)

    def begin(self, entry: RaceEntry) -> int:
        """Record a started run; return its index among the entries."""
        self.entries.append(entry)
        self.write()
        return len(self.entries) - 1

    def end(self, place: int, state: str, why: str = "") -> None:
        """Record how a run ended."""
        self.entries[place] = replace(self.entries[place], state=state, why=why)
        self.write()

    def write(self) -> None:
        """Write ``race.json``.

        Raises:
            RunStoreError: the disk is full, or the folder cannot be written.
        """
        plan = self.plan
        write_json(
            self.folder / FILE,
            {
                "schema": SCHEMA,
                "name": plan.name,
                "parallel": plan.parallel,
                "seeds": list(plan.seeds),
                "stop": None if plan.stop is None else plan.stop.to_dict(),
                "data": {str(seed): digits for seed, digits in plan.data.items()},
                "copy_bytes_per_s": plan.copy_bytes_per_s,
                "contestants": [
                    {"label": label, "config": config.model_dump()} for label, config in plan.configs.items()
                ],
                "runs": [_to_dict(each, self.folder) for each in self.entries],
            },
        )


def _to_dict(entry: RaceEntry, folder: Path) -> dict[str, Any]:
    # relative, so that a folder of runs can be moved with its races
    path = None if entry.path is None else os.path.relpath(entry.path, folder)
    return {**asdict(entry), "path": path}


def _entry(data: dict[str, Any], folder: Path) -> RaceEntry:
    path = None if data["path"] is None else Path(os.path.normpath(folder / data["path"]))
    return RaceEntry(**{**data, "path": path})


def _plan(data: dict[str, Any]) -> Plan:
    return Plan(
        name=str(data["name"]),
        configs={each["label"]: RunConfig(**each["config"]) for each in data["contestants"]},
        seeds=tuple(int(seed) for seed in data["seeds"]),
        stop=None if data["stop"] is None else StopRule.from_dict(data["stop"]),
        parallel=bool(data["parallel"]),
        data={int(seed): str(digits) for seed, digits in data["data"].items()},
        copy_bytes_per_s=data["copy_bytes_per_s"],
    )


def _is_lost(entry: RaceEntry) -> bool:
    """Whether a run was active when the race was interrupted, or has finished but its folder is missing."""
    if entry.state == FINISHED:
        return entry.path is None or not RunDirectory(entry.path).config_file.is_file()
    return entry.state == UNDER_WAY


def _as_named_before(old: Plan, new: Plan) -> Plan:
    """The new plan with the old labels of existing contestants: generated labels depend on the other contestants."""
    before = {config.replace(seed=0).to_json(): label for label, config in old.configs.items()}
    labels = [before.get(config.replace(seed=0).to_json(), label) for label, config in new.configs.items()]
    if len(set(labels)) < len(labels):
        return new
    return replace(new, configs=dict(zip(labels, new.configs.values(), strict=True)))


def _joined(old: Plan, new: Plan, folder: Path) -> Plan:
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
