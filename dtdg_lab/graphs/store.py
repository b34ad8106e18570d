"""Folders of arrays on disk: written whole or not at all, read as memory maps."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.graphs.arrays import give_up

FORMAT = "dtdg-lab graph"
SCHEMA = 1
_META = "meta.json"


def cache_folder(root: str | Path | None = None) -> Path:
    """Where the lab keeps data: ``root``, else $DTDG_LAB_CACHE, else ~/.cache/dtdg-lab. It need not exist."""
    chosen = root or os.environ.get("DTDG_LAB_CACHE") or Path.home() / ".cache" / "dtdg-lab"
    return Path(chosen).expanduser()


def graph_folder(key: str, root: str | Path | None = None) -> Path:
    """The folder of the graph stored under ``key`` in the cache."""
    return cache_folder(root) / "graphs" / key


def holds_graph(folder: Path) -> bool:
    """Whether a whole graph has been written into ``folder``."""
    return (folder / _META).is_file()


def write(folder: Path, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Path:
    """Write arrays and meta.json into ``folder`` so that no reader ever sees a part of them.

    The files go into a hidden folder beside it, which is renamed at the end. Where several processes write the same
    graph at once, one wins and the others find the equal result in place.

    Raises:
        DataError: ``folder`` holds something else, or cannot be written.
    """
    folder = Path(os.path.abspath(folder))
    # not tempfile: its folders are closed to other users, and a cache may be shared
    draft = folder.parent / f".{folder.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
    try:
        draft.mkdir(parents=True)
        for name, array in arrays.items():
            np.save(draft / f"{name}.npy", array, allow_pickle=False)
        text = json.dumps({"format": FORMAT, "schema": SCHEMA, **meta, "arrays": sorted(arrays)}, indent=2)
        (draft / _META).write_text(text, encoding="utf-8")
        _put(draft, folder, str(meta["data_hash"]))
    except OSError as error:
        raise DataError(
            f"cannot write the graph into {folder}: {error.strerror or error}. "
            "Free space there, or set DTDG_LAB_CACHE to a folder you can write."
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _put(draft: Path, folder: Path, data_hash: str) -> None:
    """Rename ``draft`` to ``folder``, moving an older graph out of the way."""
    with contextlib.suppress(OSError):  # taken: looked at below
        draft.rename(folder)
        return
    if holds_graph(folder):
        if read_meta(folder)["data_hash"] == data_hash:
            return
        aside = draft.with_name(draft.name + ".old")
        folder.rename(aside)
        draft.rename(folder)
        shutil.rmtree(aside)
    elif folder.exists():
        raise DataError(f"{folder} exists and holds no graph; nothing was written. Choose a new or an empty folder.")
    else:
        draft.rename(folder)  # fails again, with the reason


def read_meta(folder: Path) -> dict[str, Any]:
    """The meta.json of a stored graph.

    Raises:
        DataError: there is none, it cannot be read, or its schema is newer than this version.
    """
    try:
        meta = json.loads((folder / _META).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(
            f"{folder} holds no stored graph (no {_META}). Save one there with graph.save(folder), or keep it under "
            "its hash with graph.store()."
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(
            f"cannot read {folder / _META}: {error}. Delete the folder and save the graph again."
        ) from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT or meta.get("schema") != SCHEMA:
        raise DataError(
            f"{folder / _META} is not a {FORMAT} of schema {SCHEMA}. Save the graph again with this version."
        )
    return meta


def read(folder: Path, *, mmap: bool) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The read-only arrays by name, and meta.json, of a stored graph.

    Raises:
        DataError: the folder holds no graph, or an array is missing or cut short.
    """
    meta = read_meta(folder)
    arrays = {}
    try:
        for name in meta["arrays"]:
            array = np.load(folder / f"{name}.npy", mmap_mode="r" if mmap else None, allow_pickle=False)
            arrays[name] = give_up(array)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"the graph in {folder} is damaged: {error}. Delete the folder and make the graph again."
        ) from error
    return arrays, meta
