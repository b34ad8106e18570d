"""Data of events ``partition``, for tests of charts and tiles."""

from __future__ import annotations

from typing import Any


def partition_data(edges: list[list[float]], *, layout: str = "halo_vertex", cut: float = 0.47) -> dict[str, Any]:
    """Return parts with given edges in two columns: snapshots 0 and 1, and snapshot 2."""
    parts = len(edges)
    even = [[2.0, 4.0]] * parts
    measures = {
        "bins": [0, 2, 3],
        "edges": edges,
        "halo": even,
        "replicated": even,
        "replicated_edges": [[1.0, 1.0]] * parts,
        "owned": [10] * parts,
        "load": [5.0, *[1.0] * (parts - 1)],
        "halo_bytes": [1024] * parts,
        "cached_bytes": [2048] * parts,
        "cut_share": cut,
        "halo_share": 0.2,
        "replicated_share": 0.3,
        "totals": {},
        "imbalance": {},
    }
    return {"partitioner": "metis", "parts": parts, "ranks": 2, "layout": layout, "seconds": 0.1, "measures": measures}
