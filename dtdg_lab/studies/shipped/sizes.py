"""The smallest data that shipped studies run on in their short form."""

from __future__ import annotations

from typing import Any

QUICK: dict[str, Any] = {
    "dataset": "growing", "generated_nodes": 200, "generated_edges": 800, "generated_snapshots": 30, "hidden": 8,
    "threads": 1,
}  # fmt: skip
