"""Data sets by name: published files, seeded generators, download, and the user's own edges. No torch, no pandas."""

from __future__ import annotations

from collections.abc import Collection
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtdg_lab.datasets.csv_file import from_csv
    from dtdg_lab.datasets.data_frame import from_pandas, from_parquet
    from dtdg_lab.datasets.names import default_dataset as default
    from dtdg_lab.datasets.names import list_datasets as list
    from dtdg_lab.datasets.names import load_dataset as load
    from dtdg_lab.datasets.snapshot_lists import from_dgl, from_snapshots
    from dtdg_lab.datasets.user_data import from_edges, from_static
    from dtdg_lab.runs.inspect_model import compare_graphs as compare

__all__ = [
    "compare",
    "default",
    "from_csv",
    "from_dgl",
    "from_edges",
    "from_pandas",
    "from_parquet",
    "from_snapshots",
    "from_static",
    "list",
    "load",
]

_HOMES = {
    "compare": "dtdg_lab.runs.inspect_model:compare_graphs",
    "default": "dtdg_lab.datasets.names:default_dataset",
    "from_csv": "dtdg_lab.datasets.csv_file:from_csv",
    "from_dgl": "dtdg_lab.datasets.snapshot_lists:from_dgl",
    "from_edges": "dtdg_lab.datasets.user_data:from_edges",
    "from_pandas": "dtdg_lab.datasets.data_frame:from_pandas",
    "from_parquet": "dtdg_lab.datasets.data_frame:from_parquet",
    "from_snapshots": "dtdg_lab.datasets.snapshot_lists:from_snapshots",
    "from_static": "dtdg_lab.datasets.user_data:from_static",
    "list": "dtdg_lab.datasets.names:list_datasets",
    "load": "dtdg_lab.datasets.names:load_dataset",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"{__name__} has no {name!r}; it has {', '.join(sorted(_HOMES))}", name=name)
    return resolve_name(_HOMES[name])


def __dir__() -> Collection[str]:
    return sorted(_HOMES)
