"""Folders of arrays on disk: where they are, and reading them as memory maps."""

from __future__ import annotations

import json
import os
import threading
import tokenize
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.paths import as_path
from dtdg_lab.graphs.arrays import give_up

FORMAT = "dtdg-lab graph"
SCHEMA = 2
READABLE = (1, 2)  # schema 1 has neither label graphs nor classes
META = "meta.json"
# numpy parses an array's header with ast, and Python 3.11 counts depths for all threads together: of two that parse at
# a time, either may fail with SystemError (python/cpython issue 106905)
_ONE_AT_A_TIME = threading.Lock()


def cache_folder(root: str | Path | None = None) -> Path:
    """Where the lab keeps data: ``root``, else $DTDG_LAB_CACHE, else ~/.cache/dtdg-lab. It need not exist.

    Raises:
        DataError: what is given is no path.
    """
    if root is not None:
        return as_path(root, "root")
    given = os.environ.get("DTDG_LAB_CACHE")
    return as_path(given, "DTDG_LAB_CACHE") if given else as_path("~/.cache/dtdg-lab", "the cache folder")


def graph_folder(key: str, root: str | Path | None = None) -> Path:
    """The folder of the graph stored under ``key`` in the cache."""
    return cache_folder(root) / "graphs" / key


def holds_graph(folder: Path) -> bool:
    """Whether a whole graph has been written into ``folder``."""
    return os.path.isfile(folder / META)  # unlike Path's, it calls what the system refuses to look at no file


def read_meta(folder: Path) -> dict[str, Any]:
    """The meta.json of a stored graph.

    Raises:
        DataError: there is none, it cannot be read, or its schema is newer than this version.
    """
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(
            f"{folder} holds no stored graph (no {META}). Save one there with graph.save(folder), or keep it under "
            "its hash with graph.store()."
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {folder / META}: {error}. Delete the folder and save the graph again.") from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT or meta.get("schema") not in READABLE:
        raise DataError(
            f"{folder / META} is not a {FORMAT} of schema {SCHEMA}. Save the graph again with this version."
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
            with _ONE_AT_A_TIME:
                array = np.load(folder / f"{name}.npy", mmap_mode="r" if mmap else None, allow_pickle=False)
            arrays[name] = give_up(np.asarray(array))  # a plain array over the same pages: slicing it is faster
    except (OSError, ValueError, KeyError, EOFError, SyntaxError, tokenize.TokenError) as error:
        raise DataError(
            f"the graph in {folder} is damaged: {error}. Delete the folder and make the graph again."
        ) from error
    return arrays, meta
