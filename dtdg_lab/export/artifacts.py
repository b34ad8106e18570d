"""Exported files of a run: page, tables, script and notebook."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dtdg_lab.config.extensions import Extension, register_statements
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import RunStoreError
from dtdg_lab.core.files import draft_path, writable_folder
from dtdg_lab.core.system_errors import is_refusal, store_error
from dtdg_lab.core.units import as_path, format_bytes
from dtdg_lab.runs.event_rows import event_rows
from dtdg_lab.runs.exports import CONFIG_MARK, PACKED, PACKED_MARK
from dtdg_lab.runs.html import render, template
from dtdg_lab.runs.json_files import dumps, replacing
from dtdg_lab.runs.packed_run import MADE_BY, PackedRun, pack, zip_of
from dtdg_lab.runs.report import changed_settings, report_page
from dtdg_lab.runs.stored_run import StoredRun

# Repeating a run: trained again if its settings determine it, replayed if timing or live changes mattered.


_DECIDED = ("settings", "control_received", "paused", "resumed")  # kinds of events that settings do not determine
_DECIDING = ("rounds", "decisions")  # tables of such decisions
_BULKY = ("phases", "energy", "phase_energy", "memory", "links", "exchanges", "transfers", "fetches", "resolved")
_SCORES = ("train_loss", "validation_loss", "test_loss")
_FORKED = "forked"  # entry of the environment of such a run
_GRAPH = "graph:"  # prefix of the names of a user's own graphs


@dataclass(frozen=True, slots=True)
class Again:
    """The content of a script or notebook that repeats a run.

    Attributes:
        run: its name.
        config: the settings at its start.
        packed: its records as base64, for ``lab.runs.replay``; empty if the settings determine the run, and for a fork.
        forked: whether it started from a checkpoint of another run, which is in its folder.
        changes: changes during training, a line each.
        scores: its losses, by name.
        extensions: descriptions of the registered code that it uses.
    """

    run: str
    config: RunConfig
    packed: str
    forked: bool
    changes: tuple[str, ...]
    scores: dict[str, float]
    extensions: tuple[Extension, ...] = ()

    @property
    def register(self) -> str:
        """Statements that register the code that it uses; empty where it uses none."""
        return register_statements(self.extensions)

    @property
    def marked(self) -> dict[str, Any]:
        """Entries of a script or notebook that ``lab.open`` reads back."""
        extensions = {"extensions": [one.to_dict() for one in self.extensions]} if self.extensions else {}
        return {"run": self.run, "config": self.config.model_dump(), **extensions}

    @property
    def title(self) -> str:
        """A description of the repeated run."""
        config, ranks = self.config, self.config.ranks
        ranks_text = f"{ranks} rank{'s' if ranks > 1 else ''}"
        return f"{config.system}, {config.model} on {config.dataset}, {ranks_text}, seed {config.seed}"

    @property
    def why(self) -> str:
        """Reason why it is trained or replayed."""
        if self.forked:
            return (
                "That run started from another run's checkpoint, which is too large to embed: lab.runs.replay repeats "
                "it from its folder, which must be in the folder of runs."
            )
        if self.packed:
            return (
                "That run depended on timing or on live changes (live settings, measured schedules, batch-size "
                "controllers, averaging rounds): its records are embedded, and lab.runs.replay repeats it from them."
            )
        return "Its settings determine it, so the same data, versions and processor give the same losses."

    @property
    def note(self) -> str:
        """Prerequisites; empty if there are none."""
        is_own_graph = self.config.dataset.startswith(_GRAPH)
        return (
            "The data set is a user's own graph: first store it on this machine with graph.store()."
            if is_own_graph
            else ""
        )


def again(run: StoredRun) -> Again:
    """Return the content for repeating a run.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: the run's files cannot be read.
    """
    events = run.events
    decided = any(event["kind"] in _DECIDED for event in events)
    schedules = [event["data"] or {} for event in events if event["kind"] == "schedule"]  # of sizes, or measured times
    decided = decided or any(data.get("source", "size") != "size" for data in schedules)
    decided = decided or any(len(run.table(name, all_attempts=True)) for name in _DECIDING)
    forked = _FORKED in run.environment
    packed = base64.b64encode(pack(run, without=_BULKY).zipped()).decode() if decided and not forked else ""
    steered = [event for event in events if event["kind"] in ("settings", "paused", "resumed", "congestion")]
    changes = tuple(
        f"step {step or 'unknown'}: {kind}: {' '.join(what.split())}" for _, step, _, kind, what in event_rows(steered)
    )
    scores = {name: run.summary[name] for name in _SCORES if run.summary.get(name) is not None}
    return Again(run.id, run.config, packed, forked, changes, scores, run.directory.extensions())


def settings_code(config: RunConfig) -> str:
    """Arguments of RunConfig as code, a line each: explicit settings first, then all defaults of that version."""
    explicit = changed_settings(config)
    defaults = {name: value for name, value in config.flat.items() if name not in explicit}
    lines = [f"    {name}={value!r},\n" for name, value in explicit.items()]
    lines += ["    # the defaults of the version that made the run\n"] if defaults else []
    return "".join([*lines, *(f"    {name}={value!r},\n" for name, value in defaults.items())])


# A notebook that repeats a run.


def notebook(run: StoredRun, name: str) -> bytes:
    """Return the notebook as JSON (nbformat 4.5), without outputs.

    Args:
        run: read from its folder.
        name: file name: a replay reads the records from it.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: the run's files cannot be read.
    """
    of = again(run)
    told = {"file": repr(name), "folder": repr(f"runs/{of.run}"), "settings": settings_code(of.config)}
    text = template("export/templates/notebook.jinja").render(of=of, **told)
    return notebook_of(text, {**of.marked, PACKED: of.packed or None})


def notebook_of(text: str, noted: dict[str, Any]) -> bytes:
    """Return a notebook of cells, each below a line with its kind; program data are in its metadata."""
    cells = []
    for number, part in enumerate(f"\n{text}".split("\n%% ")[1:]):
        kind, _, source = part.rstrip("\n").partition("\n")
        name = hashlib.sha256(f"{number}:{source}".encode()).hexdigest()[:12]
        cell: dict[str, Any] = {"cell_type": kind, "id": name, "metadata": {}, "source": source}
        cells.append(cell | {"execution_count": None, "outputs": []} if kind == "code" else cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}, "dtdg_lab": noted}
    return (dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n").encode()


# Writing exported files: atomically, and never over other files.


MARK = "export.json"  # marks an exported folder or zip: only such a one is ever replaced
# one of these is in every other file that is written here: pages, settings of scripts, notebooks, timelines, and how
# scripts begin
_MARKS = tuple(
    text.encode() for text in (f"id='{PACKED}'", CONFIG_MARK, f'"{MADE_BY}": {{', '"""Repeats a race of DTDG Lab')
)
_HEAD = 2**20  # bytes of a compressed file that are searched


def target(path: str | Path | None, name: str, *, overwrite: bool) -> Path:
    """Return the file or folder to write: the given one, or ``name`` in the given or current folder.

    Args:
        path: a file to write, an existing folder (that is not an export itself), or None.
        name: default name.
        overwrite: whether an earlier export may be overwritten.

    Raises:
        DataError: it is not a path.
        RunStoreError: something exists there, or its folder does not.
    """
    destination = as_path(name if path is None else path, "path")
    if os.path.isdir(destination) and not os.path.isfile(
        destination / MARK
    ):  # where a folder is closed, writing says so
        destination = destination / name
    writable_folder(destination.parent, "path", RunStoreError)
    if not destination.parent.is_dir():
        raise RunStoreError(
            f"cannot export to {destination}: there is no folder {destination.parent}. Create it first."
        )
    if destination.exists() or destination.is_symlink():
        if not overwrite:
            raise _taken(destination)
        if not _was_exported(destination):
            raise RunStoreError(
                f"cannot export to {destination}: it exists but is not an export, so overwrite=True does not "
                "overwrite it. Give another path=."
            )
    return destination


def _was_exported(exported: Path) -> bool:
    if exported.is_dir():
        return (exported / MARK).is_file()
    try:
        if zipfile.is_zipfile(exported):
            with zipfile.ZipFile(exported) as archive:
                return MARK in archive.namelist()
        content = exported.read_bytes()
        if content[:2] == b"\x1f\x8b":
            with gzip.open(exported) as file:
                content = file.read(_HEAD)
    except (OSError, EOFError, ValueError, zlib.error, zipfile.BadZipFile) as error:
        if isinstance(error, OSError) and is_refusal(error):
            raise store_error("read", exported, error) from error
        return False  # whatever it is, it was not made here
    return any(mark in content for mark in _MARKS)


def place_file(destination: Path, content: bytes, *, overwrite: bool) -> Path:
    """Write a file atomically.

    Raises:
        RunStoreError: something exists there and may not be overwritten, or the file cannot be written; nothing
        remains.
    """
    with replacing(destination) as temporary:
        temporary.write_bytes(content)
        if not overwrite and destination.exists():
            raise _taken(destination)
    return destination


def place_folder(destination: Path, fill: Callable[[Path], None], *, overwrite: bool) -> Path:
    """Create a folder atomically with ``fill``; an earlier export is replaced only at the end.

    Raises:
        RunStoreError: something exists there and may not be overwritten, or it cannot be written; nothing remains.
    """
    if destination.is_file():
        raise RunStoreError(
            f"cannot export to {destination}: it is not a folder, and this kind makes one. Give another path=."
        )
    hidden = draft_path(destination)
    old = hidden.with_suffix(".old")
    try:
        hidden.mkdir()
        fill(hidden)
        if destination.exists():
            if not overwrite:
                raise _taken(destination)
            destination.rename(old)
        hidden.rename(destination)
    except OSError as error:
        if old.is_dir() and not destination.exists():
            old.rename(destination)
        if isinstance(error, RunStoreError):
            raise
        raise store_error("write", destination, error) from error
    finally:
        for leftover in (hidden, old):
            if leftover.is_dir():
                shutil.rmtree(leftover)
    return destination


def _taken(destination: Path) -> RunStoreError:
    return RunStoreError(
        f"cannot export to {destination}: it exists already. Give another path=, or overwrite=True to overwrite it."
    )


# A run as one page: its report with embedded tables, readable offline and by ``lab.open``.


MOST_BYTES = 10_000_000  # maximum size of a page
_SPARE = 8_000  # for text beside the tables
PLACE = "<!-- tables -->"


def run_page(run: StoredRun, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the page of a run: its whole report, and its tables within the limit.

    Args:
        run: read from its folder.
        most_bytes: maximum size of the page; above it tables are thinned, which the page reports.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: the run's files cannot be read, or the page cannot be made small enough.
    """
    page = report_page(run, more=PLACE)
    bare = len(page.encode())
    room = (most_bytes - bare - _SPARE) * 3 // 4  # base64 makes four letters of three bytes
    if room <= 0:
        raise RunStoreError(
            f"the page of run {run.id} takes {format_bytes(bare)} without its tables, and {format_bytes(most_bytes)} "
            "are allowed. Export kind='parquet', which has no limit."
        )
    packed = pack(run, most_bytes=room)
    tables = tables_section("The run's record tables", packed, run.id, reader="open", what="run")
    return page.replace(PLACE, tables).encode()


def tables_section(words: str, packed: PackedRun, name: str, **reader: str) -> str:
    """Render the section of the tables embedded in a page, with a button that saves them.

    Args:
        words: what they are, at the beginning of a sentence.
        packed: the tables.
        name: of the zip that is saved.
        reader: ``reader``, the function that reads the page back, and ``what`` it gives.
    """
    size, held = format_bytes(packed.size), base64.b64encode(packed.zipped()).decode()
    values = {"words": words, "size": size, "thinned": packed.thinned, "held": held, "id": PACKED, "name": name}
    return render("export/templates/tables.html", **values, **reader)


# A Python script that repeats a run.


def script(run: StoredRun) -> bytes:
    """Return the text of a script: settings, training or replay, and the losses of the original run.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: the run's files cannot be read.
    """
    of = again(run)
    note = f"\n{of.note}" if of.note else ""
    head = (
        f"Repeats a run of DTDG Lab: {of.title}.\n\nMade from run {of.run}. Start it with: python FILE [FOLDER FOR "
        f"RUNS]\n{of.why}{note}\n"
    )
    recorded = f"Path(runs_dir) / {of.run!r}" if of.forked else ""
    marks = CONFIG_MARK + json.dumps(of.marked)
    if of.packed:
        recorded, marks = "lab.runs.open(__file__)", f"{marks}\n{PACKED_MARK}{of.packed}"
    values = {"head": docstring(head), "settings": settings_code(of.config), "recorded": recorded, "marks": marks}
    return template("export/templates/script.py.jinja").render(of=of, **values).encode()


def docstring(text: str) -> str:
    """Return a text as a docstring in triple quotes, with any characters."""
    safe = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'"""{safe}"""\n'


# A run's tables as Parquet, with its settings, environment and summary: a zip file or a folder.


def place_tables(destination: Path, files: dict[str, bytes], *, overwrite: bool) -> Path:
    """Write named pieces as a zip where the name ends in ``.zip``, else as a folder.

    Raises:
        RunStoreError: they cannot be written.
    """
    if destination.suffix == ".zip":
        return place_file(destination, zip_of(files), overwrite=overwrite)

    def fill(folder: Path) -> None:
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)

    return place_folder(destination, fill, overwrite=overwrite)


def run_tables(run: StoredRun) -> dict[str, bytes]:
    """Return all tables of a run, all attempts, each with config, environment and summary as metadata.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: the run's files cannot be read.
    """
    return dict(pack(run, telling=True).files)
