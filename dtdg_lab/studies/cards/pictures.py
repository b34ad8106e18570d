"""The pictures of a system's card: made by our planners from a small generated graph, or those of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from dtdg_lab.core.catalogue import System
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.studies.cards.batch_pictures import batch_pictures
from dtdg_lab.studies.cards.cache_pictures import cache_pictures
from dtdg_lab.studies.cards.schedule_pictures import schedule_pictures
from dtdg_lab.studies.cards.snapshot_pictures import snapshot_pictures
from dtdg_lab.studies.cards.vertex_pictures import vertex_pictures
from dtdg_lab.studies.cards.window_pictures import sampled_pictures, window_pictures
from dtdg_lab.views.card_pictures import Panel, stacked_panel
from dtdg_lab.views.layout import Figure

Drawer = Callable[[System, DynamicGraph], list[Panel]]
MOST = 4  # panels of a run
_SMALL_NOTE = "Drawn now by this laboratory's own planners, from a generated graph of 240 vertices and 24 snapshots."
CACHE_NOTE = (
    "Simulated now: one run of 12 epochs with 25 steps each on four parts, by constants fitted to the step times of "
    "the authors' cluster (Reddit) and modelled watts. Nothing of it was measured here."
)
SMALL: Mapping[str, Any] = MappingProxyType(
    {"generated_nodes": 240, "generated_edges": 1600, "generated_snapshots": 24, "growth": 6.0}
)  # fmt: skip


def drawn_pictures(system: System) -> list[Panel]:
    """One to four charts with their sentences, computed now from the small graph.

    Args:
        system: of the catalogue.
    """
    return _DRAWERS[_family(system)](system, small_graph())


def picture_note(system: System) -> str:
    """What :func:`drawn_pictures` draws them from."""
    return CACHE_NOTE if _family(system) == "cache" else _SMALL_NOTE


def run_pictures(system: System, run: Any) -> list[Panel]:
    """Charts of a run of the system, the first few of those that its records have.

    Args:
        system: of the catalogue.
        run: with ``config`` and ``window``, such as ``lab.open_run`` gives.

    Raises:
        ConfigError: the run is of another system, or has recorded nothing yet that could be drawn.
    """
    if run.config.system != system.name:
        raise ConfigError(
            f"run {run.id} trained system {run.config.system!r}, and this is the card of {system.name!r}: "
            f"card({run.config.system!r}, run=...) draws it."
        )
    window = run.window
    views = {
        "schedule": (window.schedule,), "snapshot": (window.blocks,), "vertex": (window.partition, window.blocks),
        "batch": (window.hybrid,), "window": (window.trapezoid,), "sampled": (window.trapezoid,),
        "cache": (window.features,), "single": (),
    }  # fmt: skip
    panels = [panel for view in views[_family(system)] for panel in view.panels() if _shows(panel[0])]
    if not panels:
        sentences = window.sentences()
        panels = [(figure, sentences[name]) for name, figure in window.figures("steps").items() if name in sentences]
    if not panels:
        raise ConfigError(f"run {run.id} has recorded nothing that could be drawn: wait for its first epoch.")
    return panels[:MOST]


@lru_cache(maxsize=1)
def small_graph() -> DynamicGraph:
    """A graph of 240 vertices whose 24 snapshots grow sixfold, from seed 0."""
    return load_dataset("growing", **SMALL)


def _shows(figure: Figure) -> bool:
    """Whether there is anything in it but a note."""
    return any(value is not None for trace in figure["data"] for value in trace.get("x") or ())


def _family(system: System) -> str:
    layout = system.parts["parallel"]
    if layout == "cached_vertex":
        return "batch" if system.parts.get("batching") == "hybrid" else "vertex"
    return {
        "snapshot_group": "schedule", "snapshot": "snapshot", "halo_vertex": "vertex", "halo_window": "window",
        "sampled_window": "sampled", "remote_feature": "cache",
    }.get(layout, "single")  # fmt: skip


def _single(system: System, graph: DynamicGraph) -> list[Panel]:
    edges = [snapshot.num_edges for snapshot in graph.snapshots]
    return [
        stacked_panel("One step takes all of it", ("snapshot", "edges"), {"edges": edges}, words=(
            f"All {graph.num_snapshots} snapshots of {graph.num_nodes} vertices, {sum(edges):,} edges, in one batch; "
            "every other system is a way to take less of this at once, or to share it."))
    ]  # fmt: skip


_DRAWERS: Mapping[str, Drawer] = MappingProxyType(
    {
        "schedule": schedule_pictures, "snapshot": snapshot_pictures, "vertex": vertex_pictures,
        "batch": batch_pictures, "window": window_pictures, "sampled": sampled_pictures, "cache": cache_pictures,
        "single": _single,
    }
)  # fmt: skip
