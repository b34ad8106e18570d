"""ALGORITHMS.md, written from the catalogue: ``python tests/algorithms.py [FILE]``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dtdg_lab.config import catalogue
from dtdg_lab.config.catalogue import PROTOCOLS
from dtdg_lab.config.model_facts import memory

_KINDS = {
    "datasets": "Data sets",
    "models": "Models",
    "tasks": "Tasks",
    "parallel": "Layouts: parallelism strategies",
    "control": "Batch-size controllers",
    "comm": "Synchronisation: gradients or model averaging",
    "scheduling": "Schedulers: assignment of snapshot groups to parts and iterations",
}
_HEAD = """# Algorithms

Written by `make algorithms` from the catalogue (`config/catalogue.toml` and each family's `family.toml`, read by
`dtdg_lab/config/catalogue.py`); a test fails when it is stale, so edit the catalogue.
Each algorithm is one file. docs/extending.md shows how to add one.
"""
_PROTOCOLS = (
    "`leaky` means that splits share edges if edges live longer than one interval. Settings are defaults; "
    "given values take precedence."
)


def render() -> str:
    """The text of ALGORITHMS.md for the current catalogue."""
    sections = [_HEAD, "## Systems\n\nA system is a choice of one algorithm per kind.\n", _systems()]
    kinds = [*_KINDS, *sorted({entry.kind for entry in catalogue.ENTRIES} - set(_KINDS))]
    for kind in kinds:
        sections += [f"## {_KINDS.get(kind, kind.capitalize())}\n", _kind(kind)]
    sections += [f"## Evaluation protocols\n\n{_PROTOCOLS}\n", _protocols()]
    sections += [f"## Model/parallelism compatibility\n\n{_memory_note()}\n", _memory()]
    return "\n".join(sections).rstrip() + "\n"


def main() -> int:
    """Write the file named on the command line, ``ALGORITHMS.md`` by default."""
    Path(sys.argv[1] if len(sys.argv) > 1 else "ALGORITHMS.md").write_text(render())
    return 0


def _systems() -> str:
    rows = [
        (
            f"`{system.name}`",
            system.summary,
            ", ".join(f"{kind}: `{name}`" for kind, name in system.parts.items()),
            system.differs_by,
            system.source,
        )
        for system in catalogue.SYSTEMS
    ]
    return _table(("system", "what it does", "made of", "differs by", "source"), rows)


def _kind(kind: str) -> str:
    rows = []
    for entry in catalogue.ENTRIES:
        if entry.kind == kind:
            file = entry.target.partition(":")[0].replace(".", "/") + ".py"
            options = ", ".join(f"`{name}`" for name in entry.options) or "none"
            row = [f"`{entry.name}`", entry.summary, options, f"[{Path(file).name}]({file})", entry.source]
            if kind == "datasets":
                row[3:3] = [", ".join(catalogue.tasks_of(entry.name)), _settings(entry.defaults)]
            rows.append(tuple(row))
    more = ("tasks", "brings") if kind == "datasets" else ()
    return _table(("name", "what it is" if more else "what it does", "options", *more, "file", "source"), rows)


def _settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}={value}`" for name, value in settings.items()) or "nothing"


def _protocols() -> str:
    rows = [
        (
            f"`{one.name}`",
            one.meaning,
            "yes" if one.leaky else "no",
            one.state,
            "newest interval" if one.strict_label else "whole window",
            _settings(one.settings),
            one.source,
        )
        for one in PROTOCOLS.values()
    ]
    return _table(("protocol", "what it means", "leaky", "state", "label counts", "settings", "source"), rows)


def _memory_note() -> str:
    kinds = {memory(name): name for name in catalogue.names("models")}
    named = "; ".join(f"`{kind}` (such as {model})" for kind, model in kinds.items())
    return f"The memory of a model is its state between snapshots: {named}. Other combinations are refused."


def _memory() -> str:
    rows = [(f"`{carried}`", f"`{layout}`", kept) for (carried, layout), kept in catalogue.MEMORY_ON_LAYOUT.items()]
    return _table(("memory", "layout", "kept"), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
