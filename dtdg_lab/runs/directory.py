"""RunDirectory: the folder of all files of one run, and the metadata of its checkpoints."""

from __future__ import annotations

import collections
import errno
import io
import json
import math
import os
import pickle
import platform
import shutil
import subprocess
import time
import uuid
import zipfile
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from dtdg_lab.config import extensions
from dtdg_lab.config.extensions import Extension
from dtdg_lab.config.run_config import SCHEMA, RunConfig
from dtdg_lab.core import files, system_errors
from dtdg_lab.core.errors import ConfigError, LabError, NotAvailableError, RunStoreError, shortened
from dtdg_lab.core.system_errors import explain
from dtdg_lab.core.units import as_path
from dtdg_lab.energy.nvml import ask, name_gpus, start_nvml, stop_nvml

# The checkpoints of a run's folder and their metadata: read without torch and without executing code.


LAST = "last"


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint as the source of a fork.

    Attributes:
        name: ``last``; ``epoch-00012``, after 12 epochs; ``step-00345``, after 345 steps; ``begun``, from another
            run, from which a fork started.
        path: of the file.
        epoch: next epoch.
        iteration: next iteration of that epoch; 0 between two epochs.
        step: next step.
        config: the settings in force.
        waiting: settings that change with the next epoch.
        data_hash: of the graph; empty where the file names none.
    """

    name: str
    path: Path
    epoch: int
    iteration: int
    step: int
    config: RunConfig
    waiting: dict[str, Any]
    data_hash: str

    def __repr__(self) -> str:
        where = f", iteration {self.iteration}" if self.iteration else ""
        return f"Kept({self.name!r}, epoch {self.epoch}{where}, step {self.step})"


def kept_checkpoints(folder: Path) -> tuple[Kept, ...]:
    """Return the checkpoints of a folder, in order of steps; damaged files are left out.

    Args:
        folder: of the checkpoints.

    Raises:
        RunStoreError: the system refuses to read one.
    """
    found = []
    for path in sorted(folder.glob("*.pt")):
        try:
            found.append(read_kept(path))
        except LabError as error:
            if system_errors.is_refusal(error):
                raise
            continue  # opening it by name reports the reason
    return tuple(sorted(found, key=lambda kept: (kept.step, kept.name == LAST)))


def read_kept(path: Path) -> Kept:
    """The metadata of a checkpoint.

    Raises:
        RunStoreError: there is none, or it cannot be read.
    """
    with system_errors.reading(
        path,
        remedy="Take another one of the run.",
        damaged="is not a readable checkpoint",
        raises=RunStoreError,
        damage=(pickle.UnpicklingError,),
    ):
        try:
            with zipfile.ZipFile(path) as file:
                (inside,) = (name for name in file.namelist() if name.endswith("/data.pkl"))
                described = _Plain(io.BytesIO(file.read(inside))).load()
        except FileNotFoundError as error:
            raise RunStoreError(f"there is no checkpoint at {path}.") from error
        learn_extensions(path.parent.parent)
        at, config = described["position"], RunConfig.from_json(described["config_json"])
        place = (int(at["epoch"]), int(at["iteration"]), int(at["step"]))
        waiting = described["waiting"]
        requests = waiting if isinstance(waiting, list) else [waiting]  # one until schema 1
        waiting = {name: value for changes in requests for name, value in changes.items()}
        return Kept(path.stem, path, *place, config, waiting, described.get("data_hash", ""))


class _Plain(pickle.Unpickler):
    """Reads the plain values of a torch file: tensors are left out, and no other objects are created."""

    def persistent_load(self, pid: Any) -> None:
        """A placeholder for the bytes of a tensor."""

    def find_class(self, module: str, name: str) -> Any:
        """Allows only the names in torch's files: ordered dicts, and tensor rebuilding."""
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if module == "torch" or (module == "torch._utils" and name.startswith("_rebuild")):
            return _nothing
        raise pickle.UnpicklingError(f"it names {module}.{name}")


_nothing: Callable[..., None] = lambda *_: None  # noqa: E731


# Environment of a run: versions, processors, memory, GPUs and commit; nothing that identifies a person or machine.


_OF_DATA = ("numpy", "pandas", "pyarrow", "pydantic", "psutil")
_OF_TRAINING = ("torch", "dgl", "ipyparallel", "pyzmq")
_OF_PAGES = ("panel", "bokeh", "plotly", "jupyterlab")
PACKAGES = ("dtdg-lab", *_OF_DATA, *_OF_TRAINING, *_OF_PAGES, "nvidia-ml-py")
ENVIRONMENT_SCHEMA = 1


def describe_environment(
    config: RunConfig | None = None, *, graph_source: str | None = None, data_hash: str | None = None
) -> dict[str, Any]:
    """The environment of this process, without importing torch.

    Args:
        config: names the data set and its protocol.
        graph_source: description of the data's origin, if already known.
        data_hash: SHA-256 of the data set's arrays, if already known.

    Returns:
        A JSON-compatible dict; values that are not installed, present or known are None.
    """
    facts: dict[str, Any] = {
        "schema": ENVIRONMENT_SCHEMA,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "versions": {name: _version(name) for name in PACKAGES},
        "cpu": _cpu(),
        "memory_bytes": psutil.virtual_memory().total,
        **_gpus(),
        "git": _git(Path(__file__).resolve().parents[2]),
    }
    if config is not None:
        facts["data"] = {"dataset": config.dataset, "source": graph_source, "sha256": data_hash}
    return facts


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> dict[str, Any]:
    model = platform.processor() or None
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        named = [
            line.partition(":")[2].strip() for line in listing.read_text().splitlines() if line[:10] == "model name"
        ]
        model = named[0] if named else model
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"model": model, "cores": psutil.cpu_count(logical=False), "threads": os.cpu_count(), "usable": usable}


def gpu_count() -> int:
    """Number of GPUs that NVML reports; 0 without a driver."""
    return len(_gpus()["gpus"] or [])


def _gpus() -> dict[str, Any]:
    """Names and memory of the GPUs through NVML, or the reason why there are none."""
    try:
        nvml = start_nvml()
    except NotAvailableError as error:
        return {"gpus": [], "gpus_note": str(error)}
    try:
        gpus = [
            {"name": name, "memory_bytes": _memory_bytes(nvml, index)} for index, name in enumerate(name_gpus(nvml))
        ]
        return {"gpus": gpus, "gpus_note": f"driver {ask(nvml, 'nvmlSystemGetDriverVersion')}"}
    except NotAvailableError as error:
        return {"gpus": None, "gpus_note": f"NVML does not answer. {error}"}
    finally:
        stop_nvml(nvml)


def _memory_bytes(nvml: ModuleType, index: int) -> int | None:
    """A GPU's memory; None where it does not tell, such as one that shares the machine's."""
    try:
        return int(ask(nvml, "nvmlDeviceGetMemoryInfo", ask(nvml, "nvmlDeviceGetHandleByIndex", index)).total)
    except NotAvailableError:
        return None


def _git(checkout: Path) -> dict[str, Any] | None:
    """Commit of the project's own checkout and whether it is clean; None without a checkout or without git."""
    if not (checkout / ".git").exists():
        return None
    commit = _git_answer(checkout, "rev-parse", "HEAD")
    changed = _git_answer(checkout, "status", "--porcelain", "--untracked-files=no")
    if commit is None or changed is None:
        return None
    return {"commit": commit, "dirty": bool(changed)}


def _git_answer(checkout: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


# JSON files that are written atomically, and errors with remedies for disk problems.


def store_error(action: str, path: str | Path, error: OSError, *, setting: str = "") -> RunStoreError:
    """Return a RunStoreError that names the action, the path, the cause and a remedy."""
    return RunStoreError(f"cannot {action} {path}: {explain(error, path, setting=setting)}")


def finite(value: Any) -> Any:
    """A JSON-compatible copy: numpy scalars and arrays become Python's, NaN and infinities become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if hasattr(value, "tolist"):
        return finite(value.tolist())
    return value


def dumps(value: Any, *, indent: int | None = None) -> str:
    """JSON text without NaN literals; see :func:`finite`."""
    return json.dumps(finite(value), indent=indent, allow_nan=False)


def write_text(path: str | Path, text: str) -> Path:
    """Write a text file so that readers see the old one or the new one, never a partial one (temporary file, rename).

    Raises:
        RunStoreError: the file cannot be written; no partial file remains.
    """
    path = Path(path)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file to write beside ``path``, which it replaces at the end of the block.

    Raises:
        RunStoreError: the file cannot be written; no partial file remains.
    """
    try:
        with files.replacing(path) as temporary:
            yield temporary
    except OSError as error:
        raise error if isinstance(error, RunStoreError) else store_error("write", path, error) from error


def write_json(path: str | Path, value: Any) -> Path:
    """Write indented JSON atomically (see :func:`write_text`); NaN and infinities become null.

    Raises:
        RunStoreError: the file cannot be written; no partial file remains.
    """
    return write_text(path, dumps(value, indent=2) + "\n")


def read_json(path: str | Path) -> Any:
    """Read a JSON file.

    Raises:
        RunStoreError: the file cannot be read or is not JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise store_error("read", path, error) from error
    except ValueError as error:
        raise RunStoreError(
            f"{path} is not valid JSON ({error}). It was not written by this program; restore it."
        ) from error


# Registered code that the settings in a folder name: of a run, a race or a study.


def read_extensions(folder: Path) -> tuple[Extension, ...]:
    """Return the descriptions of registered code in a folder; none where it has no such file.

    Raises:
        RunStoreError: the file cannot be read, is damaged, or of a newer version.
    """
    file = folder / extensions.FILE
    if not file.is_file():
        return ()
    described = read_object(file, newest=extensions.SCHEMA, needs=("extensions",))["extensions"]
    try:
        return tuple(map(Extension.from_dict, described))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RunStoreError(f"{file} is damaged ({error!r}). {RESTORE}") from error


def learn_extensions(folder: Path) -> None:
    """Let configs of this process name the registered code that a folder describes.

    Raises:
        RunStoreError: the description cannot be read, is damaged, or of a newer version.
    """
    try:
        extensions.add_absent(read_extensions(folder))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, RunStoreError):
            raise
        raise RunStoreError(f"{folder / extensions.FILE} is damaged ({error!r}). {RESTORE}") from error


def check_same_code(what: str, folder: Path, *configs: RunConfig, texts: Collection[str] = (), remedy: str) -> None:
    """Refuse to continue with registered code that has changed since a folder described it.

    Args:
        what: is continued, such as ``study 'rates'``.
        folder: of the run, race or study.
        configs: settings to continue with.
        texts: values of settings; some may name registered code.
        remedy: what to do instead of registering the former code, as an infinitive without ``to``.

    Raises:
        ConfigError: some code that the settings use has changed.
        RunStoreError: the description cannot be read, is damaged, or of a newer version.
    """
    now = extensions.extensions_of(*configs, texts=texts)
    if changes := extensions.code_changes(read_extensions(folder), now):
        raise ConfigError(
            f"{what} cannot be continued: {'; '.join(changes)}. Register the code as it was (where it is of a notebook "
            f"cell, its source is in {extensions.FILE} in the folder {folder.name}), or {remedy}."
        )


def add_extensions(folder: Path, *configs: RunConfig, texts: Collection[str] = (), begin: Path | None = None) -> None:
    """Describe in a folder the registered code that runs of these settings use, in place of older descriptions.

    Args:
        folder: of a run, race or study; without registered code, nothing is written.
        configs: the settings.
        texts: values of settings; some may name registered code.
        begin: folder of another run, whose descriptions are kept too.

    Raises:
        RunStoreError: the file cannot be written, or an older one cannot be read.
    """
    described = {(one.kind, one.name): one for place in (begin, folder) if place for one in read_extensions(place)}
    before = dict(described)
    described |= {(one.kind, one.name): one for one in extensions.extensions_of(*configs, texts=texts)}
    if described != before or (begin is not None and described):
        listed = [one.to_dict() for one in described.values()]
        write_json(folder / extensions.FILE, {"schema": extensions.SCHEMA, "extensions": listed})


# interrupted: recorded if a signal asked its processes to leave, else derived: they are gone, see runs/liveness.py
ENDED = ("finished", "stopped", "failed", "interrupted")
STATES = ("starting", "running", "paused", "stopping", *ENDED)
_FOLDERS = ("records", "checkpoints", "live")
_MOST_RUNS_A_SECOND = 1000
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


class _Within:
    """A file or folder of a run, by its path within the run's folder."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, run: RunDirectory, _: object) -> Path:
        return run.path / self._path


def record_file(records: Path, rank: int) -> Path:
    """The lines of a rank in a folder of records."""
    return records / f"rank{rank}.jsonl"


@dataclass(frozen=True)
class RunDirectory:
    """The folder ``<root>/<yyyymmdd-hhmmss>-<system>-<config hash>/`` of one run and the files in it.

    Attributes:
        path: the folder.
        config_file: the settings, as RunConfig.to_json wrote them.
        extensions_file: descriptions of the registered code that the run uses; missing where it uses none.
        environment_file: versions, devices and commit at the start of the run.
        status_file: the current state (see :meth:`status`).
        records: the folder of record tables.
        checkpoint_file: the last checkpoint.
        begin_file: the checkpoint of another run from which this one started, if it is a fork.
        summary_file: the summary of the whole run, after its end.
        report_file: the HTML report, after the end.
        live: the folder of addresses used while the run is active.
        name_file: the name that a person gave the run; missing where none did.
    """

    path: Path
    config_file = _Within("config.json")
    extensions_file = _Within(extensions.FILE)
    environment_file = _Within("environment.json")
    status_file = _Within("status.json")
    records = _Within("records")
    checkpoint_file = _Within("checkpoints/last.pt")
    begin_file = _Within("checkpoints/begun.pt")
    summary_file = _Within("summary.json")
    report_file = _Within("report.html")
    live = _Within("live")
    name_file = _Within("name.txt")

    @classmethod
    def create(
        cls,
        config: RunConfig,
        *,
        root: str | Path = "runs",
        environment: dict[str, Any] | None = None,
        begin: Path | None = None,
    ) -> RunDirectory:
        """Create the folder of a new run with its config, environment and status ``starting``.

        It appears atomically: it is filled under a hidden name and then renamed.

        Args:
            config: the settings of the run.
            root: the folder that holds runs; created if missing.
            environment: content of environment.json; by default ``describe_environment(config)``.
            begin: a checkpoint of another run from which this one starts; it is copied.

        Raises:
            ConfigError: it uses code that is not registered in this process.
            RunStoreError: the disk is full, the folder is read-only, or a file is in the way.
        """
        extensions.check_registered(config)
        root = as_path(root, "root", RunStoreError)
        made_root = not root.exists()
        hidden = root / f".new-{uuid.uuid4().hex[:12]}"
        name = f"{datetime.now():%Y%m%d-%H%M%S}-{config.system}-{config.short_hash}"
        try:
            for folder in _FOLDERS:
                (hidden / folder).mkdir(parents=True)
            draft = cls(hidden)
            write_text(draft.config_file, config.to_json() + "\n")
            write_json(draft.environment_file, environment or describe_environment(config))
            if begin is not None:
                shutil.copyfile(begin, draft.begin_file)
            add_extensions(hidden, config, begin=begin.parent.parent if begin is not None else None)
            draft.write_status("starting")
            return cls(_place(hidden, root, name))
        except BaseException as error:
            _clear(hidden, root if made_root else None)
            if isinstance(error, OSError) and not isinstance(error, RunStoreError):
                raise store_error("make a run in", root, error, setting="root=") from error
            raise

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """The folder of an existing run.

        Raises:
            RunStoreError: there is no run at that path.
        """
        directory = cls(as_path(path, "path", RunStoreError))
        with system_errors.reading(directory.path, remedy="", raises=RunStoreError):
            is_run = directory.config_file.is_file()
        if not is_run:
            raise RunStoreError(
                f"{path} is not a run: it has no config.json. Give the folder of one run, such as "
                "runs/20260131-120000-psg-1a2b3c4d."
            )
        return directory

    @property
    def id(self) -> str:
        """The folder's name, which is the name of the run."""
        return self.path.resolve().name

    def record_file(self, rank: int) -> Path:
        """The lines that ``rank`` appends to."""
        return record_file(self.records, rank)

    def record_files(self) -> dict[int, Path]:
        """Rank -> its lines, in order of ranks, for the ranks with any."""
        return self.rank_files(".jsonl")

    def rank_files(self, suffix: str) -> dict[int, Path]:
        """Return rank -> its file ``rank<number><suffix>`` in the folder of records, in order of ranks.

        Raises:
            RunStoreError: the folder cannot be read.
        """
        try:
            names = os.listdir(self.records)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise store_error("read", self.records, error) from error
        numbers = [name.removeprefix("rank").removesuffix(suffix) for name in names]
        pairs = zip(numbers, names, strict=True)
        ranks = sorted(int(number) for number, name in pairs if number.isdigit() and name == f"rank{number}{suffix}")
        return {rank: self.records / f"rank{rank}{suffix}" for rank in ranks}

    @property
    def checkpoints(self) -> tuple[Kept, ...]:
        """All checkpoints that can be forked, in order of steps: ``name epoch iteration step``."""
        return kept_checkpoints(self.checkpoint_file.parent)

    def config(self) -> RunConfig:
        """The settings at the start of the run."""
        learn_extensions(self.path)
        return RunConfig.load(self.config_file)

    def extensions(self) -> tuple[Extension, ...]:
        """Return the descriptions of the registered code that the run uses, in order of registration.

        Raises:
            RunStoreError: they cannot be read, are damaged, or of a newer version.
        """
        return read_extensions(self.path)

    def environment(self) -> dict[str, Any]:
        """The content of environment.json.

        Raises:
            RunStoreError: it cannot be read, is damaged, or of a newer version.
        """
        return read_object(self.environment_file, newest=ENVIRONMENT_SCHEMA)

    def name(self) -> str:
        """Return the name that a person gave the run; empty where none did."""
        try:
            return self.name_file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return ""

    def rename(self, name: str) -> None:
        """Give the run a name; an empty one removes it.

        Raises:
            RunStoreError: the file cannot be written.
        """
        write_text(self.name_file, name.strip() + "\n")

    def add_environment(self, **facts: Any) -> None:
        """Add facts that become known later, such as the data hash or the energy reader."""
        write_json(self.environment_file, self.environment() | facts)

    def write_status(self, state: str, *, reason: str = "", rank: int | None = None, attempt: int = 1) -> None:
        """Replace status.json atomically; readers see the old or the new one, never a partial one.

        Args:
            state: one of ``STATES``.
            reason: explanation, for an unusual state.
            rank: the rank that caused it, if any.
            attempt: number of the attempt, from 1.

        Raises:
            ConfigError: there is no such state.
            RunStoreError: the file cannot be written.
        """
        if state not in STATES:
            raise ConfigError(f"state={state!r}: allowed {', '.join(STATES)}.")
        facts = {"state": state, "reason": reason, "rank": rank, "attempt": attempt, "time_ns": time.time_ns()}
        write_json(self.status_file, facts)

    def recorded_status(self) -> dict[str, Any]:
        """The last status written: ``state``, ``reason``, ``rank``, ``attempt``, ``time_ns``."""
        return read_object(self.status_file, needs=("state", "reason"))

    def status(self) -> dict[str, Any]:
        """As :meth:`recorded_status`; the state is ``interrupted`` if no process continues an attempt without end."""
        from dtdg_lab.runs.liveness import interruption  # imported here because that module imports this one

        status = self.recorded_status()
        reason = "" if status["state"] in ENDED else interruption(self, int(status.get("attempt", 1)))
        return status if not reason else {**status, "state": "interrupted", "reason": reason}

    def summary(self) -> dict[str, Any]:
        """The content of summary.json; empty before the end."""
        try:
            return dict(json.loads(self.summary_file.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}


def _place(hidden: Path, root: Path, name: str) -> Path:
    """Rename to the first free name of name, name-2, name-3, ...; never replaces a non-empty folder."""
    for number in range(1, _MOST_RUNS_A_SECOND):
        target = root / (name if number == 1 else f"{name}-{number}")
        try:
            return hidden.rename(target)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
    raise RunStoreError(f"cannot make a run in {root}: {_MOST_RUNS_A_SECOND} runs are called {name}. Try again.")


def _clear(hidden: Path, made_root: Path | None) -> None:
    """Remove the remains of a failed create: the hidden folder, and the root if it is new and otherwise empty."""
    if hidden.is_dir():
        shutil.rmtree(hidden)
    if made_root is not None and made_root.is_dir() and not any(made_root.iterdir()):
        made_root.rmdir()


# Files of a stored run that may be damaged or of a newer version: read completely, or refused with a clear error.


RESTORE = "Restore it from a copy; nothing in the run's folder was changed."


def reading(path: str | Path, remedy: str = RESTORE) -> AbstractContextManager[None]:
    """Tell damage of a run's files from a refusal of the system; see :func:`system_errors.reading`.

    Raises:
        DataError: the content does not have this version's format, or cannot be read.
    """
    return system_errors.reading(path, remedy=remedy)


def read_object(path: Path, *, newest: int | None = None, needs: Collection[str] = ()) -> dict[str, Any]:
    """A JSON file that holds an object.

    Args:
        path: the file.
        newest: the schema of this version; files without a number have the oldest.
        needs: required names.

    Raises:
        RunStoreError: it cannot be read, is damaged, or its schema is newer.
    """
    try:
        found = read_json(path)
    except RecursionError as error:
        raise RunStoreError(f"{path} is damaged (it is nested too deeply to be read). {RESTORE}") from error
    if not isinstance(found, dict):
        raise RunStoreError(f"{path} is damaged: it holds a JSON {type(found).__name__}, not an object. {RESTORE}")
    if newest is not None:  # names may have other meanings in a newer version
        schema = found.get("schema", newest)
        if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
            raise RunStoreError(f"{path} is damaged: its schema is {shortened(schema)}, not a number from 1. {RESTORE}")
        if schema > newest:
            raise RunStoreError(
                f"{path} was written by a newer version of DTDG Lab: it has schema {schema}, and this version reads up "
                f"to {newest}. Update dtdg_lab, or open the run where it was made; nothing in its folder was changed."
            )
    missing = [name for name in needs if name not in found]
    if missing:
        raise RunStoreError(f"{path} is damaged: it lacks {', '.join(missing)}. {RESTORE}")
    return found


def read_config(path: Path) -> RunConfig:
    """The settings of a run.

    Raises:
        RunStoreError: they cannot be read, are damaged, or are of a newer version: another schema, or settings
            that this version does not have.
    """
    read_object(path, newest=SCHEMA)
    learn_extensions(path.parent)
    try:
        with reading(path):
            return RunConfig.load(path)
    except ConfigError as error:
        raise RunStoreError(
            f"{path} cannot be used by this version of DTDG Lab: {error} If a newer version wrote it (environment.json "
            "beside it names the version), update dtdg_lab; if it was damaged, restore it from a copy."
        ) from error
