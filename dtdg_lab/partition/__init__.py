"""Which part owns each node: partitioners, all functions of one signature, and what their partitions cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.core.lazy import lazy_namespace

if TYPE_CHECKING:
    from dtdg_lab.partition.base import load_partition as load
    from dtdg_lab.partition.metrics import compare_partitions as compare
    from dtdg_lab.partition.metrics import partition_graph as partition

__all__ = ["compare", "load", "partition"]

__getattr__, __dir__ = lazy_namespace(__name__)
