"""What the catalogue is made of: entries, one per algorithm or data set, and systems as compositions of entries."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One algorithm or data set: where it lives, where it comes from, and the options it reads.

    Attributes:
        name: what it is called in a config.
        room: the package that holds it.
        target: module and attribute as text, so that listing it imports nothing.
        summary: one sentence.
        source: paper and section, or data collection.
        options: names of the options it reads.
        memory: what a model remembers between snapshots; empty elsewhere.
        defaults: values it brings for its options, where the glossary's would be wrong.
        tasks: what can be learned on a data set; empty elsewhere.
    """

    name: str
    room: str
    target: str
    summary: str
    source: str
    options: tuple[str, ...] = ()
    memory: str = ""
    defaults: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    tasks: tuple[str, ...] = ()

    def load(self) -> Any:
        """Import and return the class, function or definition this entry names."""
        module, _, attribute = self.target.partition(":")
        return getattr(importlib.import_module(module), attribute)


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A training system: a choice of one entry per room, with the options whose defaults it changes."""

    name: str
    parts: Mapping[str, str]
    summary: str
    source: str
    defaults: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    differs_by: str = ""
