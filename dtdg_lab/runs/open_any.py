"""``lab.open_run``: a run from its folder, or from whatever it was exported to."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dtdg_lab.core.config import RunConfig
from dtdg_lab.core.errors import ConfigError, DataError, RunStoreError
from dtdg_lab.core.paths import as_path
from dtdg_lab.core.units import format_bytes
from dtdg_lab.runs import open as of_folder
from dtdg_lab.runs.exported_run import ExportedRun, PartialRun
from dtdg_lab.runs.json_files import store_error
from dtdg_lab.runs.open import StoredRun
from dtdg_lab.runs.packed_run import ABOUT, PARQUET_KEY, WHOLE, read_table
from dtdg_lab.runs.read_events import is_events, read_events
from dtdg_lab.runs.read_trace import read_trace
from dtdg_lab.runs.stored_files import reading

CONFIG = "config.json"
PACKED = "dtdg-lab-packed"  # id of the element, or name of the entry, that holds a packed run as base64
CONFIG_MARK = "# settings of the run, read back by dtdg_lab.open_run: "
PACKED_MARK = "# what was recorded of the run, read back by dtdg_lab.open_run: "
EXPORT_AGAIN = "Export the run again."
# what is packed here becomes ten times as long, or twenty: a file that would fill the memory was made to do so
_MOST_UNPACKED, _MOST_TIMES = 2**28, 100
_ELEMENT = re.compile(rf"<script[^>]*\bid=['\"]{PACKED}['\"][^>]*>([A-Za-z0-9+/=\s]*)</script>")
_ALLOWED = (
    "a run's folder, or a file that lab.export made of one (html, parquet, tensorboard, trace, script or notebook)"
)


def open_run(path: str | Path) -> StoredRun | PartialRun:
    """Open a run: its folder, or what ``lab.export`` made of it.

    A page (html) and exported tables (parquet: a zip or a folder) give a whole run again, with the tables that were
    exported. TensorBoard events, a trace, a script, a notebook or a single table give what they hold of it; a script
    or notebook of a run that was steered gives the whole run, as far as it was recorded there.

    Raises:
        RunStoreError: there is nothing at that path, it was not made by this program, is damaged, or is a race.
    """
    where = as_path(path, "path")
    if not where.exists():
        raise RunStoreError(f"{where} is not a run: there is nothing at that path. Give {_ALLOWED}.")
    if where.is_dir() and not (where / ABOUT).is_file() and ((where / CONFIG).is_file() or not is_events(where)):
        return of_folder.open_run(where)
    try:
        with reading(where, EXPORT_AGAIN):
            found = _open_folder(where) if where.is_dir() else _opened(where, _content(where))
    except ConfigError as error:
        raise RunStoreError(f"{where} holds settings that cannot be read: {error}") from error
    except DataError as error:
        said = str(error)
        raise RunStoreError(said if said.startswith(str(where)) else f"{where}: {said}") from error
    except RunStoreError as error:
        raise RunStoreError(f"{where}: {error}") from error
    if found is None:
        raise RunStoreError(f"{where} is not a run, nor a file that one was exported to. Give {_ALLOWED}.")
    return found


def pieces(path: str | Path) -> dict[str, bytes] | None:
    """The named pieces of an exported run or race, from its page, zip, folder, script or notebook; None without any.

    Raises:
        RunStoreError: the file cannot be read, or is damaged.
    """
    where = as_path(path, "path")
    try:
        if where.is_dir():
            names = [file for file in where.rglob("*") if file.is_file()] if (where / ABOUT).is_file() else []
            return {file.relative_to(where).as_posix(): file.read_bytes() for file in names} or None
        return _pieces_in(where.read_bytes())
    except OSError as error:
        raise store_error("read", where, error) from error


def _open_folder(where: Path) -> StoredRun | PartialRun | None:
    if is_events(where):
        return read_events(where)
    found = pieces(where)
    return ExportedRun(found, where) if found is not None else None


def _content(where: Path) -> bytes:
    try:
        return where.read_bytes()
    except OSError as error:
        raise store_error("read", where, error) from error


def _opened(where: Path, content: bytes) -> StoredRun | PartialRun | None:
    if content[:2] == b"\x1f\x8b":
        content = _decompressed(content)
    packed = _pieces_in(content)
    if packed is not None:
        return ExportedRun(packed, where)
    if content[:4] == b"PAR1":
        return _one_table(where, content)
    if ".tfevents." in where.name:
        return read_events(where)
    text = _as_text(content)
    if text is None:
        return None
    start = text.lstrip()
    if start[:1] == "{":
        return _of_json(where, start)
    if start[:15].lower() == "<!doctype html>":
        raise RunStoreError(
            "this page holds no tables: it is the report of a run. Open the run's folder, or export(run, kind='html')."
        )
    return _of_script(where, text)


def _decompressed(content: bytes) -> bytes:
    most = _most(len(content))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            unpacked = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise RunStoreError(f"it is compressed, and damaged ({error}). Export the run again.") from error
    _check_unpacked(len(unpacked), most)
    return unpacked


def _most(size: int) -> int:
    """Bytes that ``size`` bytes may become."""
    return max(_MOST_UNPACKED, _MOST_TIMES * size)


def _check_unpacked(size: int, most: int) -> None:
    if size > most:
        raise RunStoreError(
            f"it would take more than {format_bytes(most)} of memory unpacked, which no run that was exported does: it "
            "was not made by lab.export. Ask where it is from."
        )


def _as_text(content: bytes) -> str | None:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _pieces_in(content: bytes) -> dict[str, bytes] | None:
    """The packed run in a zip, page, script or notebook."""
    if content[:4] == b"PK\x03\x04":
        return _unzipped(content)
    text = _as_text(content)
    if text is None or not (PACKED in text or PACKED_MARK in text):
        return None
    element = _ELEMENT.search(text)
    if element is not None:
        return _unzipped(_decoded(element.group(1)))
    line = next((line for line in text.splitlines() if line.startswith(PACKED_MARK)), None)
    if line is not None:
        return _unzipped(_decoded(line.removeprefix(PACKED_MARK)))
    if text.lstrip()[:1] == "{":
        held = _metadata(_json(text)).get(PACKED)
        return _unzipped(_decoded(held)) if isinstance(held, str) else None
    return None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except ValueError as error:
        raise RunStoreError(f"the run packed in it is damaged ({error}). Export the run again.") from error


def _unzipped(content: bytes) -> dict[str, bytes] | None:
    """Its files; None for a zip of something else."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = archive.namelist()
            if ABOUT not in names:
                return None
            _check_unpacked(sum(each.file_size for each in archive.infolist()), _most(len(content)))
            return {name: archive.read(name) for name in names}
    except RunStoreError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError) as error:  # also encrypted
        raise RunStoreError(f"the run packed in it is damaged ({error}). Export the run again.") from error


def _json(text: str) -> dict[str, Any]:
    try:
        read = json.loads(text)
    except ValueError as error:
        raise RunStoreError(f"it begins as JSON and is damaged ({error}). Export the run again.") from error
    return read if isinstance(read, dict) else {}


def _metadata(notebook: Mapping[str, Any]) -> dict[str, Any]:
    """What this program noted in a notebook."""
    metadata = notebook.get("metadata")
    noted = metadata.get("dtdg_lab") if isinstance(metadata, dict) else None
    return noted if isinstance(noted, dict) else {}


def _of_json(where: Path, text: str) -> PartialRun | None:
    read = _json(text)
    if "traceEvents" in read:
        return read_trace(where, read)
    noted = _metadata(read)
    if "cells" not in read or "config" not in noted:
        return None
    return _config_only(where, "notebook", noted)


def _of_script(where: Path, text: str) -> PartialRun | None:
    line = next((line for line in text.splitlines() if line.startswith(CONFIG_MARK)), None)
    if line is None:
        return None
    return _config_only(where, "script", _json(line.removeprefix(CONFIG_MARK)))


def _config_only(where: Path, kind: str, noted: Mapping[str, Any]) -> PartialRun:
    config = RunConfig.from_json(json.dumps(noted.get("config")))
    return PartialRun(str(noted.get("run")), kind, where, config, holds="its settings")


def _one_table(where: Path, content: bytes) -> PartialRun:
    """A table taken out of an exported run: it says itself what it is of."""
    import pyarrow as pa

    from dtdg_lab.runs.merge import LINE, to_frame

    try:
        table = read_table(content)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RunStoreError(f"it begins as Parquet and is damaged ({error}). Export the run again.") from error
    told = (table.schema.metadata or {}).get(PARQUET_KEY)
    if told is None:
        raise RunStoreError("it is a Parquet file that was not exported from a run. Open the run's folder instead.")
    facts = _json(told.decode())
    config = RunConfig.from_json(json.dumps(facts["config"]))
    bare = table.drop_columns([LINE]) if LINE in table.schema.names else table
    names = [name.partition(".")[0] for name in WHOLE if name != "status.json"]
    held = {name: facts.get(name) or {} for name in names if name != "config"}
    return PartialRun(
        str(held["summary"].get("run", where.stem)), "table", where, config, {where.stem: to_frame(bare)},
        held["summary"], held["environment"], f"its table {where.stem}, settings, environment and summary",
    )  # fmt: skip
