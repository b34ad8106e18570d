"""Studies that come with the lab, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dtdg_lab.core.errors import UnknownNameError
from dtdg_lab.studies.shipped.batch_sizes import BATCH_SIZES
from dtdg_lab.studies.shipped.cache_window import CACHE_WINDOW
from dtdg_lab.studies.shipped.dynahb_table8 import TABLE8
from dtdg_lab.studies.shipped.dynahb_table10 import TABLE10
from dtdg_lab.studies.shipped.entry import Panel, Shipped
from dtdg_lab.studies.shipped.figure8 import FIGURE8
from dtdg_lab.studies.shipped.partitioners import PARTITIONING
from dtdg_lab.studies.shipped.scaling import SCALING

__all__ = ["SHIPPED", "Panel", "Shipped", "shipped"]

_ALL = (FIGURE8, TABLE8, TABLE10, BATCH_SIZES, CACHE_WINDOW, SCALING, PARTITIONING)
SHIPPED: Mapping[str, Shipped] = MappingProxyType({each.name: each for each in _ALL})


def shipped(name: str) -> Shipped:
    """The study called ``name``.

    Raises:
        UnknownNameError: none is.
    """
    if name not in SHIPPED:
        raise UnknownNameError("shipped study", name, SHIPPED)
    return SHIPPED[name]
