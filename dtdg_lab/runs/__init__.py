"""Run directories: record tables on disk, their Parquet files, summaries, comparison and the HTML report."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtdg_lab.cluster.fork import fork
    from dtdg_lab.cluster.replay import replay, verify_replay
    from dtdg_lab.export.export import export
    from dtdg_lab.runs.comparison import compare
    from dtdg_lab.runs.exports import open_run as open
    from dtdg_lab.runs.progress import show_progress

__all__ = ["compare", "export", "fork", "open", "replay", "show_progress", "verify_replay"]

_HOMES = {
    "compare": "dtdg_lab.runs.comparison:compare",
    "export": "dtdg_lab.export.export:export",
    "fork": "dtdg_lab.cluster.fork:fork",
    "open": "dtdg_lab.runs.exports:open_run",
    "replay": "dtdg_lab.cluster.replay:replay",
    "show_progress": "dtdg_lab.runs.progress:show_progress",
    "verify_replay": "dtdg_lab.cluster.replay:verify_replay",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"{__name__} has no {name!r}; it has {', '.join(sorted(_HOMES))}", name=name)
    return resolve_name(_HOMES[name])


def __dir__() -> list[str]:
    return sorted(_HOMES)
