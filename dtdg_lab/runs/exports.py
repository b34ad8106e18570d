"""Runs restored from exported files: complete runs, and parts of runs from other files."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtdg_lab.config.extensions import Extension, add_absent
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, DataError, RunStoreError, UnknownNameError
from dtdg_lab.core.system_errors import store_error
from dtdg_lab.core.units import as_path, format_bytes
from dtdg_lab.runs.frames import to_frame
from dtdg_lab.runs.json_files import reading
from dtdg_lab.runs.packed_run import (
    ABOUT,
    EXPORT_AGAIN,
    PARQUET_KEY,
    read_about,
    read_content,
    read_table,
    unpack,
    unpacking,
)
from dtdg_lab.runs.parquet import LINE_NUMBER
from dtdg_lab.runs.stored_run import StoredRun
from dtdg_lab.runs.stored_run import open_run as open_run_folder

if TYPE_CHECKING:
    import pandas as pd


# Runs restored from exported files: complete runs, and parts of runs from other files.


def temporary_folder(owner: object) -> Path:
    """Return a new folder that is deleted with its owner, even if creating the owner fails."""
    folder = tempfile.mkdtemp(prefix="dtdg-lab-export-")
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


class ExportedRun(StoredRun):
    """A run restored from an exported file, with everything except checkpoints.

    It is unpacked to a temporary folder (``path``), which is deleted with the object.

    Attributes:
        source: the exported file.
        thinned: description of omitted table rows; empty if complete.
    """

    def __init__(self, files: Mapping[str, bytes], source: Path) -> None:
        about = read_about(files, "run")
        super().__init__(unpack(files, temporary_folder(self)))
        self.source = source
        self.thinned: str = about.get("thinned") or ""

    def __repr__(self) -> str:
        note = f", thinned: {self.thinned}" if self.thinned else ""
        return f"ExportedRun({self.id!r}, {self.status!r}, from {str(self.source)!r}{note})"


@dataclass(frozen=True, slots=True, eq=False)
class PartialRun:
    """A part of a run, from an incomplete exported file.

    Attributes:
        id: name of the run.
        kind: kind of the file: ``script``, ``notebook`` or ``table``.
        source: the exported file or folder.
        config: the settings at the start of the run.
        tables: available record tables, or parts of their columns, by name.
        summary: the run's summary, if available.
        environment: the run's environment, if available.
        holds: description of the available part.
    """

    id: str
    kind: str
    source: Path
    config: RunConfig
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    holds: str = ""

    def __repr__(self) -> str:
        return f"PartialRun({self.id!r}, from the {self.kind} {str(self.source)!r}: {self.holds})"

    def table(self, name: str) -> pd.DataFrame:
        """Return a table of ``tables``.

        Raises:
            UnknownNameError: the file does not contain the table.
        """
        if name not in self.tables:
            advice = "An HTML or Parquet export, or the run's folder, has all tables."
            raise UnknownNameError(f"record table of a {self.kind}", name, self.tables, advice)
        return self.tables[name]


# ``lab.runs.open``: opens a run from its folder or from any of its exports.


CONFIG = "config.json"
PACKED = "dtdg-lab-packed"  # id of the element, or name of the entry, with a packed run as base64
CONFIG_MARK = "# settings of the run, read back by dtdg_lab.runs.open: "
PACKED_MARK = "# what was recorded of the run, read back by dtdg_lab.runs.open: "
# packed content expands ten- to twentyfold; files beyond these limits were crafted to exhaust the memory
_MOST_UNPACKED, _MOST_TIMES = 2**28, 100
_ELEMENT = re.compile(rf"<script[^>]*\bid=['\"]{PACKED}['\"][^>]*>([A-Za-z0-9+/=\s]*)</script>")
_ALLOWED = "a run's folder, or a file that lab.runs.export made from a run (html, parquet, script or notebook)"


def open_run(path: str | Path) -> StoredRun | PartialRun:
    """Open a run: its folder, or a file that ``lab.runs.export`` made from it.

    A page (html) and exported tables (parquet: a zip or a folder) give the complete run, with the exported tables. A
    script, a notebook or a single table gives the available part; a script or notebook of a run with live changes gives
    the whole run, as far as its records are included.

    Raises:
        RunStoreError: nothing is at that path, or it was not made by this program, is damaged, or is a race.
    """
    source = as_path(path, "path")
    if not source.exists():
        raise RunStoreError(f"{source} is not a run: there is nothing at that path. Give {_ALLOWED}.")
    if source.is_dir() and not (source / ABOUT).is_file():
        return open_run_folder(source)
    try:
        with reading(source, EXPORT_AGAIN):
            run = _opened(source)
    except ConfigError as error:
        raise RunStoreError(f"{source} has settings that cannot be read: {error}") from error
    except DataError as error:
        message = str(error)
        raise RunStoreError(message if message.startswith(str(source)) else f"{source}: {message}") from error
    except RunStoreError as error:
        raise RunStoreError(f"{source}: {error}") from error
    if run is None:
        raise RunStoreError(f"{source} is neither a run nor an export of one. Give {_ALLOWED}.")
    return run


def pieces(path: str | Path) -> dict[str, bytes] | None:
    """Return the named pieces of an exported run or race; None for a file without any.

    Raises:
        RunStoreError: the file cannot be read, or is damaged.
    """
    source = as_path(path, "path")
    try:
        if source.is_dir():
            names = [file for file in source.rglob("*") if file.is_file()] if (source / ABOUT).is_file() else []
            return {file.relative_to(source).as_posix(): file.read_bytes() for file in names} or None
        return _pieces_in(source.read_bytes())
    except OSError as error:
        raise store_error("read", source, error) from error


def _opened(source: Path) -> StoredRun | PartialRun | None:
    packed = pieces(source)
    if packed is not None:
        return ExportedRun(packed, source)
    content = b"" if source.is_dir() else read_content(source) or b""
    if content[:4] == b"PAR1":
        return _one_table(source, content)
    text = _as_text(content)
    if text is None:
        return None
    start = text.lstrip()
    if start[:15].lower() == "<!doctype html>":
        raise RunStoreError(
            "this page has no tables, because it is a run's report. Open the run's folder, or export(run, kind='html')."
        )
    if start[:1] == "{":
        kind, read = "notebook", _json(text)
        noted = _metadata(read) if "cells" in read else {}
    else:
        lines = [line for line in text.splitlines() if line.startswith(CONFIG_MARK)]
        kind, noted = "script", _json(lines[0].removeprefix(CONFIG_MARK)) if lines else {}
    if "config" not in noted:
        return None
    _learn(noted)
    config = RunConfig.from_json(json.dumps(noted.get("config")), stored=True)
    return PartialRun(str(noted.get("run")), kind, source, config, holds="its settings")


def _as_text(content: bytes) -> str | None:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _pieces_in(content: bytes) -> dict[str, bytes] | None:
    """Return the packed run in a zip, page, script or notebook."""
    if content[:4] == b"PK\x03\x04":
        return _unzipped(content)
    text = _as_text(content)
    if text is None or not (PACKED in text or PACKED_MARK in text):
        return None
    element = _ELEMENT.search(text)
    line = next((line for line in text.splitlines() if line.startswith(PACKED_MARK)), None)
    if element is not None:
        packed = element.group(1)
    elif line is not None:
        packed = line.removeprefix(PACKED_MARK)
    else:
        packed = _metadata(_json(text)).get(PACKED) if text.lstrip()[:1] == "{" else None
    if not isinstance(packed, str):
        return None
    try:
        return _unzipped(base64.b64decode("".join(packed.split()), validate=True))
    except ValueError as error:
        raise RunStoreError(f"the run packed in it is damaged ({error}). {EXPORT_AGAIN}") from error


def _unzipped(content: bytes) -> dict[str, bytes] | None:
    """Return the files of a zip; None for an unrelated zip."""
    with unpacking("the run packed in it"), zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
        if ABOUT not in names:
            return None
        limit = max(_MOST_UNPACKED, _MOST_TIMES * len(content))
        if sum(entry.file_size for entry in archive.infolist()) > limit:
            raise RunStoreError(
                f"it would take more than {format_bytes(limit)} of memory unpacked, which no exported run does, so it "
                "was not made by lab.runs.export. Check its origin."
            )
        return {name: archive.read(name) for name in names}


def _json(text: str) -> dict[str, Any]:
    try:
        read = json.loads(text)
    except ValueError as error:
        raise RunStoreError(f"it starts as JSON but is damaged ({error}). Export the run again.") from error
    return read if isinstance(read, dict) else {}


def _metadata(notebook: Mapping[str, Any]) -> dict[str, Any]:
    """Return this program's metadata of a notebook."""
    metadata = notebook.get("metadata")
    noted = metadata.get("dtdg_lab") if isinstance(metadata, dict) else None
    return noted if isinstance(noted, dict) else {}


def _learn(noted: Mapping[str, Any]) -> None:
    """Add the registered code that an exported file describes, so that configs can name it.

    Raises:
        RunStoreError: the description is damaged.
    """
    try:
        add_absent(map(Extension.from_dict, noted.get("extensions", ())))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RunStoreError(f"its description of registered code is damaged ({error!r}). {EXPORT_AGAIN}") from error


def _one_table(source: Path, content: bytes) -> PartialRun:
    """Open a table of an exported run, whose metadata name the run."""
    with unpacking("the Parquet table in it"):
        table = read_table(content)
    metadata = (table.schema.metadata or {}).get(PARQUET_KEY)
    if metadata is None:
        raise RunStoreError("it is a Parquet file that was not exported from a run. Open the run's folder instead.")
    facts = _json(metadata.decode())
    _learn(facts.get("extensions") or {})
    config = RunConfig.from_json(json.dumps(facts["config"]), stored=True)
    bare = table.drop_columns([LINE_NUMBER]) if LINE_NUMBER in table.schema.names else table
    packed = {name: facts.get(name) or {} for name in ("environment", "summary")}
    run = str(packed["summary"].get("run", source.stem))
    contents = f"its table {source.stem}, settings, environment and summary"
    return PartialRun(run, "table", source, config, {source.stem: to_frame(bare)}, **packed, holds=contents)
