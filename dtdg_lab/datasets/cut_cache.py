"""Cut graphs on disk: made once, by whichever process is first, then mapped by all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dtdg_lab.datasets.one_at_a_time import one_at_a_time
from dtdg_lab.graphs.build import BUILD_VERSION
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.store import graph_folder, holds_graph


def cached_graph(parameters: Mapping[str, Any], make: Callable[[Path], object], *, source: str) -> DynamicGraph:
    """The graph that ``make`` builds, kept on disk under a hash of everything it depends on.

    Several processes may ask at once: the first builds it, the others wait; all map the same files.

    Args:
        parameters: what the graph depends on besides the code of ``graphs``: hashes of files, options; JSON values.
        make: builds the graph in a folder, which appears whole or not at all.
        source: where the data came from this time; it may differ from when the graph was cached.

    Raises:
        DataError: the cache cannot be written, or what it holds is damaged.
    """
    text = json.dumps({"build": BUILD_VERSION, **parameters}, sort_keys=True)
    folder = graph_folder(hashlib.sha256(text.encode()).hexdigest()[:16])
    if not holds_graph(folder):
        with one_at_a_time(folder):
            if not holds_graph(folder):
                make(folder)
    return DynamicGraph.load(folder, source=source)
