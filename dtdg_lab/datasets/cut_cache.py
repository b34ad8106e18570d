"""Cut graphs on disk: made once, by whichever process is first, then mapped by all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from dtdg_lab.graphs.build import BUILD_VERSION
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.store import graph_folder, holds_graph


def cached_graph(parameters: Mapping[str, Any], make: Callable[[], DynamicGraph], *, source: str) -> DynamicGraph:
    """The graph that ``make`` builds, kept on disk under a hash of everything it depends on.

    Several processes may ask at once: each may build it, one puts it in place, all map the same files.

    Args:
        parameters: what the graph depends on besides the code: hash of the data, options; JSON values.
        make: builds the graph.
        source: where the data came from this time; it may differ from when the graph was cached.

    Raises:
        DataError: the cache cannot be written, or what it holds is damaged.
    """
    text = json.dumps({"build": BUILD_VERSION, **parameters}, sort_keys=True)
    folder = graph_folder(hashlib.sha256(text.encode()).hexdigest()[:16])
    if not holds_graph(folder):
        make().save(folder)
    return DynamicGraph.load(folder, source=source)
