"""Data sets by name: published files, a seeded generator, and the user's own edges. No torch, no pandas.

Called, ``dtdg_lab.datasets()``, it lists the names; the room and the function people type share one word.
"""

import sys
from types import ModuleType

from dtdg_lab.datasets.names import DatasetInfo, datasets, default_dataset, load_dataset, load_for
from dtdg_lab.datasets.own import from_edges

__all__ = ["DatasetInfo", "datasets", "default_dataset", "from_edges", "load_dataset", "load_for"]


class _CallableRoom(ModuleType):
    """Importing anything of this room sets it as ``dtdg_lab.datasets``, so that it must be callable itself."""

    def __call__(self, root: str | None = None) -> list[DatasetInfo]:
        return datasets(root)


sys.modules[__name__].__class__ = _CallableRoom
