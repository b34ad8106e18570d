"""Registrations that end with a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dtdg_lab.core import catalogue
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.core.records import TABLES


@contextmanager
def registered_apart() -> Iterator[None]:
    """Undo at the end all registrations that are made meanwhile."""
    lists = (catalogue.ENTRIES, catalogue.SYSTEMS, catalogue.REGISTERED)
    tables = (catalogue.FAMILIES, catalogue.MEMORY_ON_LAYOUT, OPTIONS, TABLES)
    before = [list(items) for items in lists], [dict(items) for items in tables]
    try:
        yield
    finally:
        for items, old in zip(lists, before[0], strict=True):
            items[:] = old  # type: ignore[index]
        for items, old in zip(tables, before[1], strict=True):
            items.clear()
            items.update(old)
