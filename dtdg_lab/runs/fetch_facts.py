"""What fetching features came to in a run, from its record tables."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "hit_rate": "share of the remote rows that batches asked for which a cache had",
        "rpcs": "remote procedure calls for features, for batches and for caches",
        "feature_bytes": "bytes of these, requests and replies",
        "probe_bytes": "bytes of fetches beside these, made only to see how long one takes; in no other sum",
        "fetch_wait_s": "seconds a step that training stood still for features, mean over steps and parts",
        "cache_rebuilds": "caches that began to serve",
        "late_steps": "steps for which a new cache came late, summed over parts",
    }
)


def fetch_facts(resolved: pd.DataFrame, fetches: pd.DataFrame, windows: pd.DataFrame) -> dict[str, Any]:
    """The numbers of ``MEANINGS``; None where nothing was fetched by remote procedure calls."""
    if not len(resolved):
        return dict.fromkeys(MEANINGS)
    probes = fetches["purpose"] == "probe"
    hits, misses = (int(sum(np.sum(of) for of in resolved[name])) for name in ("hits", "misses"))
    return {
        "hit_rate": hits / (hits + misses) if hits + misses else None,
        "rpcs": int((~probes).sum()),
        "feature_bytes": int(fetches.loc[~probes, "bytes"].sum()),
        "probe_bytes": int(fetches.loc[probes, "bytes"].sum()),
        "fetch_wait_s": float(resolved["wait_s"].mean()),
        "cache_rebuilds": len(windows),
        "late_steps": int(windows["late_steps"].sum()),
    }
