"""Data sets by name: published files, a seeded generator, and the user's own edges. No torch, no pandas."""

from dtdg_lab.datasets.names import DatasetInfo, datasets, default_dataset, load_dataset, load_for
from dtdg_lab.datasets.own import from_edges

__all__ = ["DatasetInfo", "datasets", "default_dataset", "from_edges", "load_dataset", "load_for"]
