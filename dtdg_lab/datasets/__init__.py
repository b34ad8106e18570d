"""Data sets by name: published files, seeded generators, download, and the user's own edges. No torch, no pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.core.lazy import lazy_namespace

if TYPE_CHECKING:
    from dtdg_lab.datasets.csv_file import from_csv
    from dtdg_lab.datasets.data_frame import from_pandas, from_parquet
    from dtdg_lab.datasets.names import default_dataset as default
    from dtdg_lab.datasets.names import list_datasets as list
    from dtdg_lab.datasets.names import load_dataset as load
    from dtdg_lab.datasets.user_data import from_dgl, from_edges, from_static
    from dtdg_lab.runs.inspect_model import compare_graphs as compare

__all__ = [
    "compare",
    "default",
    "from_csv",
    "from_dgl",
    "from_edges",
    "from_pandas",
    "from_parquet",
    "from_static",
    "list",
    "load",
]

__getattr__, __dir__ = lazy_namespace(__name__)
