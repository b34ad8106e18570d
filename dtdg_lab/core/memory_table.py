"""Which layout carries which memory of a model, and how: SYSTEMS.md's table "memory x layout" as data."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

LAYOUTS = (
    "single", "snapshot_group", "snapshot", "cached_vertex", "halo_vertex", "remote_feature", "halo_window",
    "sampled_window",
)  # fmt: skip
REFUSED = "refused"

_ROWS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "per_vertex": (
            "exact", "exact", "exact, all-to-all of vertices and snapshots", "exact", "exact", "exact, cold state",
            "exact of its batches", "exact of what is sampled",
        ),
        "weights": (
            "exact", "exact", "exact, gradients only", "exact", "exact", "exact",
            "exact of its batches, in which decayed snapshots count as time that passes and no more",
            "exact of what is sampled",
        ),
        "weights_from_data": (
            "exact", "exact", "exact, all-gather of the top-k summaries",
            "approximation: top-k among each part's own vertices", "exact, all-gather of candidates", REFUSED,
            "exact of its batches, all-gather of candidates", REFUSED,
        ),
        "neighbourhood": (
            "exact", "exact", REFUSED, "truncated: hidden states beyond the layers' hops are dropped",
            "exact, halo of the hidden state", REFUSED, "exact of its batches, halo of the hidden state", REFUSED,
        ),
        "none": (
            "exact", "exact", "exact", "exact", "exact", "exact",
            "exact of its batches, in which only the newest snapshot counts", "exact of what is sampled",
        ),
    }
)  # fmt: skip

MEMORY_ON_LAYOUT: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        (memory, layout): how
        for memory, row in _ROWS.items()
        for layout, how in zip(LAYOUTS, row, strict=True)
        if how != REFUSED
    }
)
