"""Data sets by name: published files, seeded generators, download, and the user's own edges. No torch, no pandas.

Called, ``dtdg_lab.datasets()``, it lists the names; the package and the function share one name.
"""

import sys
from types import ModuleType

from dtdg_lab.datasets.names import DatasetInfo, datasets, default_dataset, load_dataset, load_for
from dtdg_lab.datasets.user_data import from_csv, from_dgl, from_edges, from_pandas, from_parquet

__all__ = [
    "DatasetInfo",
    "datasets",
    "default_dataset",
    "from_csv",
    "from_dgl",
    "from_edges",
    "from_pandas",
    "from_parquet",
    "load_dataset",
    "load_for",
]


class _CallablePackage(ModuleType):
    """Importing anything of this package sets it as ``dtdg_lab.datasets``, so that it must be callable itself."""

    def __call__(self, root: str | None = None) -> list[DatasetInfo]:
        return datasets(root)


sys.modules[__name__].__class__ = _CallablePackage
