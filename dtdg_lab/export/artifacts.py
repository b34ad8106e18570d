"""The files of an exported run: page, tables, script and notebook."""

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

# How to repeat a run: train it again if its settings determine it; replay it if timing or live changes mattered.


_DECIDED = ("settings", "control_received", "paused", "resumed")  # kinds of events that settings do not determine
_DECIDING = ("rounds", "decisions")  # tables of decisions that settings do not determine
_BULKY = ("phases", "energy", "phase_energy", "memory", "links", "exchanges", "transfers", "fetches", "resolved")
_SCORES = ("train_loss", "validation_loss", "test_loss")
_FORKED = "forked"  # entry in the environment of a run that started from another run's checkpoint
_GRAPH = "graph:"  # prefix of the names of graphs that users stored


@dataclass(frozen=True, slots=True)
class Again:
    """The content of a script or notebook that repeats a run.

    Attributes:
        run: the run's name.
        config: the settings at its start.
        packed: its records as base64, which ``lab.runs.replay`` reads; empty for a fork, or if the settings determine
            the run.
        forked: whether it started from a checkpoint of another run; the checkpoint is in its folder.
        changes: the changes during training, a line each.
        scores: its losses by name.
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
        """Statements that register the code that the run uses; empty if it uses none."""
        return register_statements(self.extensions)

    @property
    def marked(self) -> dict[str, Any]:
        """Entries of a script or notebook that ``lab.open`` can read."""
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
        """A sentence that says why the run is trained again or replayed."""
        if self.forked:
            return (
                "That run started from a checkpoint of another run, which is too large to embed. lab.runs.replay "
                "repeats it from its folder, which must be in the folder of runs."
            )
        if self.packed:
            return (
                "That run depended on timing or on live changes (live settings, measured schedules, batch-size "
                "controllers, averaging rounds), so its records are embedded and lab.runs.replay repeats it from them."
            )
        return "Its settings determine it, so the same data, versions and processor give the same losses."

    @property
    def note(self) -> str:
        """What must be done first; empty if nothing."""
        is_own_graph = self.config.dataset.startswith(_GRAPH)
        return (
            "The data set is a graph of your own. Store it on this machine first with graph.store()."
            if is_own_graph
            else ""
        )


def again(run: StoredRun) -> Again:
    """Return the content of a script or notebook that repeats a run.

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
    """Return the arguments of RunConfig as code, one per line: first the chosen settings, then all defaults."""
    explicit = changed_settings(config)
    defaults = {name: value for name, value in config.flat.items() if name not in explicit}
    lines = [f"    {name}={value!r},\n" for name, value in explicit.items()]
    lines += ["    # the defaults of the version that made the run\n"] if defaults else []
    return "".join([*lines, *(f"    {name}={value!r},\n" for name, value in defaults.items())])


# A notebook that repeats a run.


def notebook(run: StoredRun, name: str) -> bytes:
    """Return the notebook as JSON (nbformat 4.5), without outputs.

    Args:
        run: a run read from its folder.
        name: the notebook's file name; a replay reads the records from this file.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: the run's files cannot be read.
    """
    of = again(run)
    told = {"file": repr(name), "folder": repr(f"runs/{of.run}"), "settings": settings_code(of.config)}
    text = template("export/templates/notebook.jinja").render(of=of, **told)
    return notebook_of(text, {**of.marked, PACKED: of.packed or None})


def notebook_of(text: str, noted: dict[str, Any]) -> bytes:
    """Return a notebook of cells. In the text, a line with its kind is before each cell; metadata hold data for us."""
    cells = []
    for number, part in enumerate(f"\n{text}".split("\n%% ")[1:]):
        kind, _, source = part.rstrip("\n").partition("\n")
        name = hashlib.sha256(f"{number}:{source}".encode()).hexdigest()[:12]
        cell: dict[str, Any] = {"cell_type": kind, "id": name, "metadata": {}, "source": source}
        cells.append(cell | {"execution_count": None, "outputs": []} if kind == "code" else cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}, "dtdg_lab": noted}
    return (dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n").encode()


# Writing exported files: atomically, and never over files that are not exports.


MARK = "export.json"  # the file in an exported folder or zip by which it is recognized; others are never replaced
# every other exported file (pages, scripts, notebooks, timelines) contains one of these texts
_MARKS = tuple(
    text.encode() for text in (f"id='{PACKED}'", CONFIG_MARK, f'"{MADE_BY}": {{', '"""Repeats a race of DTDG Lab')
)
_HEAD = 2**20  # number of bytes of a compressed file that are searched


def target(path: str | Path | None, name: str, *, overwrite: bool) -> Path:
    """Return the file or folder to write: the given one, or ``name`` in the given or current folder.

    Args:
        path: a file to write, an existing folder (that is not itself an export), or None.
        name: the default name.
        overwrite: whether an earlier export may be overwritten.

    Raises:
        DataError: the argument is not a path.
        RunStoreError: something exists there already, or the parent folder does not exist.
    """
    destination = as_path(name if path is None else path, "path")
    if os.path.isdir(destination) and not os.path.isfile(
        destination / MARK
    ):  # if the folder is not accessible, writing to it raises the error
        destination = destination / name
    writable_folder(destination.parent, "path", RunStoreError)
    if not destination.parent.is_dir():
        raise RunStoreError(
            f"cannot export to {destination}: the folder {destination.parent} does not exist. Create it first."
        )
    if destination.exists() or destination.is_symlink():
        if not overwrite:
            raise _taken(destination)
        if not _was_exported(destination):
            raise RunStoreError(
                f"cannot export to {destination}: it exists and is not an export, so overwrite=True does not "
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
        return False  # the file was not made by an export
    return any(mark in content for mark in _MARKS)


def place_file(destination: Path, content: bytes, *, overwrite: bool) -> Path:
    """Write a file atomically. If that fails, nothing is left behind.

    Raises:
        RunStoreError: something exists there and may not be overwritten, or the file cannot be written.
    """
    with replacing(destination) as temporary:
        temporary.write_bytes(content)
        if not overwrite and destination.exists():
            raise _taken(destination)
    return destination


def place_folder(destination: Path, fill: Callable[[Path], None], *, overwrite: bool) -> Path:
    """Create a folder atomically with ``fill``. An earlier export is replaced at the end; a failure leaves nothing.

    Raises:
        RunStoreError: something exists there and may not be overwritten, or the folder cannot be written.
    """
    if destination.is_file():
        raise RunStoreError(
            f"cannot export to {destination}: it is a file, but this export makes a folder. Give another path=."
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


# A run as one page: its report with embedded tables, which can be read offline and by ``lab.open``.


MOST_BYTES = 10_000_000  # maximum size of a page
_SPARE = 8_000  # bytes reserved for text next to the tables
PLACE = "<!-- tables -->"  # where the tables go in the page


def run_page(run: StoredRun, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the page of a run: its whole report, and its tables as far as the size allows.

    Args:
        run: a run read from its folder.
        most_bytes: maximum size of the page. Tables that do not fit are thinned, and the page says so.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: the run's files cannot be read, or the page cannot be made small enough.
    """
    page = report_page(run, more=PLACE)
    bare = len(page.encode())
    room = (most_bytes - bare - _SPARE) * 3 // 4  # base64 writes three bytes as four letters
    if room <= 0:
        raise RunStoreError(
            f"the page of run {run.id} takes {format_bytes(bare)} without its tables, but only "
            f"{format_bytes(most_bytes)} are allowed. Export with kind='parquet', which has no limit."
        )
    packed = pack(run, most_bytes=room)
    tables = tables_section("The run's record tables", packed, run.id, reader="open", what="run")
    return page.replace(PLACE, tables).encode()


def tables_section(words: str, packed: PackedRun, name: str, **reader: str) -> str:
    """Render the section with the tables that are embedded in a page, and a button that saves them.

    Args:
        words: what the tables are, as the start of a sentence.
        packed: the tables.
        name: name of the zip file that the button saves.
        reader: ``reader`` (the function that reads the page) and ``what`` (what that function returns).
    """
    size, held = format_bytes(packed.size), base64.b64encode(packed.zipped()).decode()
    values = {"words": words, "size": size, "thinned": packed.thinned, "held": held, "id": PACKED, "name": name}
    return render("export/templates/tables.html", **values, **reader)


# A Python script that repeats a run.


def script(run: StoredRun) -> bytes:
    """Return the text of a script with the settings, training or replay, and the losses of the original run.

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
    """Return a text as the code of a docstring in triple quotes, whatever characters it has."""
    safe = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'"""{safe}"""\n'


# A run's tables as Parquet, with its settings, environment and summary, in a zip file or a folder.


def place_tables(destination: Path, files: dict[str, bytes], *, overwrite: bool) -> Path:
    """Write named files into a zip if the destination ends in ``.zip``, else into a folder.

    Raises:
        RunStoreError: the files cannot be written.
    """
    if destination.suffix == ".zip":
        return place_file(destination, zip_of(files), overwrite=overwrite)

    def fill(folder: Path) -> None:
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)

    return place_folder(destination, fill, overwrite=overwrite)


def run_tables(run: StoredRun) -> dict[str, bytes]:
    """Return all tables of a run with all attempts; each has config, environment and summary as metadata.

    Raises:
        DataError: a record line is damaged.
        RunStoreError: the run's files cannot be read.
    """
    return dict(pack(run, telling=True).files)
