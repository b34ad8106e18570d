"""Run directories: record tables on disk, their Parquet files, summaries, comparison and the HTML report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtdg_lab.core.lazy import lazy_namespace

if TYPE_CHECKING:
    from dtdg_lab.cluster.replay import fork, replay, verify_replay
    from dtdg_lab.export.export import export
    from dtdg_lab.runs.exports import open_run as open
    from dtdg_lab.runs.run import compare, show_progress

__all__ = ["compare", "export", "fork", "open", "replay", "show_progress", "verify_replay"]

__getattr__, __dir__ = lazy_namespace(__name__)
