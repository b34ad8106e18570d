"""Statistics of a graph, computed once and kept in the cache under its data hash."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from dtdg_lab.graphs.arrays import give_up
from dtdg_lab.graphs.describe import SERIES, GraphStatistics, describe
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.store import cache_folder
from dtdg_lab.graphs.tail import Tail

# raise it when the statistics of a graph change, so that older ones are not taken from a cache
STATISTICS_VERSION = 1
_INTEGERS = ("edges", "active", "degrees", "degree_counts")


def statistics_of(graph: DynamicGraph) -> GraphStatistics:
    """What ``graph.describe()`` gives, from the cache where it holds it.

    A cache that cannot be read or written is no reason to fail: the statistics are then computed.
    """
    path = cache_folder() / "statistics" / f"{graph.data_hash[:32]}-{STATISTICS_VERSION}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return _from_dict({**json.loads(path.read_text(encoding="utf-8")), "name": graph.name})
    found = describe(graph)
    with contextlib.suppress(OSError):
        _write(path, json.dumps(found.to_dict(), allow_nan=False))
    return found


def _write(path: Path, text: str) -> None:
    """Write a file so that no reader ever sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _from_dict(values: dict[str, Any]) -> GraphStatistics:
    """Read what ``GraphStatistics.to_dict`` gives."""
    series = {
        name: give_up(np.array(values[name], dtype=np.int64 if name in _INTEGERS else np.float64)) for name in SERIES
    }
    tail = values["tail"]
    return GraphStatistics(
        **{
            **values,
            **series,
            "empty": tuple(range(first, last + 1) for first, last in values["empty"]),
            "in_degrees": {float(share): degree for share, degree in values["in_degrees"].items()},
            "tail": None if tail is None else Tail(**tail),
            "classes": tuple(values["classes"]),
        }
    )
