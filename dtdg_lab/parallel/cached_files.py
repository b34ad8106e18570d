"""Cached parts on disk: written once, whole or not at all, then mapped by all processes of the machine.

Mapped pages are the machine's, not a process's: whoever maps the same part shares its memory. The folders are written
and read as those of graphs are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.one_at_a_time import one_at_a_time
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.store import META, cache_folder, holds_graph, read
from dtdg_lab.graphs.streamed_store import Draft
from dtdg_lab.parallel.cached_part import CachedPart, Reach, pieces

PARTS_VERSION = 1  # of what the files hold: a change makes all parts anew
KEPT_BYTES, UNUSED_S = 16 << 30, 3600.0  # files above are removed, the longest unused first, after an hour


def cached_part(graph: DynamicGraph, own: NDArray[np.integer], reach: Reach) -> CachedPart:
    """The cached part of some vertices, mapped from disk; made there by the first process that asks.

    Two partitions that give a part the same vertices share it. A damaged one is made anew.

    Args:
        graph: N vertices.
        own: (n,) the part's vertices, ascending.
        reach: what is to be held.

    Raises:
        DataError: the cache cannot be written.
        PlanError: the snapshots or hops are none.
    """
    folder = part_folder(graph, own, reach)
    if holds_graph(folder):
        with contextlib.suppress(DataError):  # cut short, or just replaced by another process: looked at again alone
            return _opened(folder, reach)
    with one_at_a_time(folder):
        return _made(folder, graph, own, reach)


def part_folder(graph: DynamicGraph, own: NDArray[np.integer], reach: Reach) -> Path:
    """Where the part's files are, or will be."""
    text = json.dumps(_meta(graph, own, reach), sort_keys=True)
    return cache_folder() / "parts" / hashlib.sha256(text.encode()).hexdigest()[:24]


def _made(folder: Path, graph: DynamicGraph, own: NDArray[np.integer], reach: Reach) -> CachedPart:
    """The part in the folder, written there unless a sound one has come meanwhile."""
    if holds_graph(folder):
        try:
            return _opened(folder, reach)
        except DataError:
            shutil.rmtree(folder, ignore_errors=True)  # who has mapped it keeps it
    with Draft(folder) as draft:
        for name, piece in pieces(graph, own, reach):
            draft.file(name, piece.dtype, piece.shape[1:]).extend(piece)
        draft.close_files()
        draft.finish(_meta(graph, own, reach))
    forget_unused(folder.parent)
    return _opened(folder, reach)


def _opened(folder: Path, reach: Reach) -> CachedPart:
    """The part in a folder, which counts as used now."""
    part = CachedPart(read(folder, mmap=True)[0], reach)
    with contextlib.suppress(OSError):  # somebody else's cache may be read and not touched
        os.utime(folder / META)
    return part


def forget_unused(folder: Path, *, kept_bytes: int = KEPT_BYTES, unused_s: float = UNUSED_S) -> None:
    """Remove parts until the rest takes no more than is kept, the longest unused first.

    Every new partition leaves parts behind. What a process has mapped stays its own until it ends.

    Args:
        folder: where the parts are.
        kept_bytes: what all may take.
        unused_s: seconds for which a part is kept whatever it takes.
    """
    parts = []
    for meta in folder.glob(f"*/{META}"):
        with contextlib.suppress(FileNotFoundError):  # somebody else removes it
            size = sum(file.stat().st_size for file in meta.parent.iterdir())
            parts.append((meta.stat().st_mtime, size, meta.parent))
    taken = sum(size for _, size, _ in parts)
    for used, size, path in sorted(parts):
        if taken <= kept_bytes or time.time() - used < unused_s:
            return
        shutil.rmtree(path, ignore_errors=True)
        taken -= size


def _meta(graph: DynamicGraph, own: NDArray[np.integer], reach: Reach) -> dict[str, Any]:
    """Everything that the files depend on."""
    given = dataclasses.asdict(reach) | {"snapshots": [reach.snapshots.start, reach.snapshots.stop]}
    vertices = hashlib.sha256(np.ascontiguousarray(own, np.int64).tobytes()).hexdigest()
    return {"holds": "cached part", "version": PARTS_VERSION, "data_hash": graph.data_hash, "own": vertices, **given}
