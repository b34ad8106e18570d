"""Text about a name of the catalogue or glossary, for ``lab.describe``."""

from __future__ import annotations

from dtdg_lab.config.catalogue import CHOSEN_BY, ENTRIES, PROTOCOLS, SINGULAR, SYSTEMS, Entry, entry, names
from dtdg_lab.config.options import OPTIONS, TAKES_EFFECT, Option
from dtdg_lab.core.errors import UnknownNameError


def describe(name: str) -> str:
    """Describe a system, algorithm, data set, protocol or option in a few lines of text.

    Raises:
        UnknownNameError: nothing has that name.
    """
    lines = []
    for system in SYSTEMS:
        if system.name == name:
            parts = ", ".join(f"{kind}: {part}" for kind, part in system.parts.items())
            lines += [f"system {name}: {system.summary}", f"  made of {parts}", f"  source: {system.source}"]
    for candidate in ENTRIES:
        if candidate.name == name:
            lines += [f"{candidate.kind} {name}: {candidate.summary}", f"  source: {candidate.source}"]
            lines += [f"  options: {', '.join(candidate.options)}"] if candidate.options else []
    if name in PROTOCOLS:
        protocol = PROTOCOLS[name]
        lines += [f"protocol {name}: {protocol.meaning}", f"  source: {protocol.source}"]
        settings = ", ".join(f"{key}={value}" for key, value in protocol.settings.items())
        lines += [f"  brings: {settings}"] if settings else []
    if name in OPTIONS:
        lines += _option_lines(OPTIONS[name])
    if not lines:
        allowed = {*names("systems"), *PROTOCOLS, *OPTIONS, *(candidate.name for candidate in ENTRIES)}
        raise UnknownNameError("name", name, allowed)
    return "\n".join(lines)


def _option_lines(option: Option) -> list[str]:
    kind = next((kind for kind, chooser in CHOSEN_BY.items() if chooser == option.name), "")
    defaults = {
        system.name: system.defaults.get(option.name, system.parts.get(kind, option.default)) for system in SYSTEMS
    }
    exceptions = "".join(f"; {value!r} for {system}" for system, value in defaults.items() if value != option.default)
    systems = [
        system.name
        for system in SYSTEMS
        if any(option.name in entry(kind, part).options for kind, part in system.parts.items())
    ]
    readers = [*systems, *(f"{SINGULAR[reader.kind]} {reader.name}" for reader in _readers(option, bool(systems)))]
    return [
        f"option {option.name}: {option.meaning}",
        f"  allowed: {option.allowed}",
        *([f"  unit: {option.unit}"] if option.unit else []),
        f"  default: {option.default!r}{exceptions}",
        f"  a change takes effect: {TAKES_EFFECT[option.live]}",
        f"  read by: {', '.join(readers) or 'every system'}",
    ]


def _readers(option: Option, systems_read_it: bool) -> list[Entry]:
    """Return the entries that read an option, beside the systems that do: models and data sets, or all kinds."""
    return [
        candidate
        for candidate in ENTRIES
        if option.name in candidate.options and (candidate.kind in ("models", "datasets") or not systems_read_it)
    ]
