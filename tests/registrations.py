"""Registrations that end with a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.record_tables import TABLES
from dtdg_lab.config.registration import ADDED, REGISTERED


@contextmanager
def registered_apart() -> Iterator[None]:
    """Undo at the end all registrations that are made meanwhile."""
    lists = (catalogue.ENTRIES, catalogue.SYSTEMS, REGISTERED)
    tables = (catalogue.FAMILIES, catalogue.MEMORY_ON_LAYOUT, catalogue.ABSENT, OPTIONS, TABLES, ADDED)
    absent = set(catalogue.ABSENT_OPTIONS)
    before = [list(items) for items in lists], [dict(items) for items in tables]
    try:
        yield
    finally:
        catalogue.ABSENT_OPTIONS.clear()
        catalogue.ABSENT_OPTIONS.update(absent)
        for items, old in zip(lists, before[0], strict=True):
            items[:] = old  # type: ignore[index]
        for items, old in zip(tables, before[1], strict=True):
            items.clear()
            items.update(old)
