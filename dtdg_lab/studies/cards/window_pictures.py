"""Pictures of windows of snapshots: the trapezoid, whole windows, and windows of sampled neighbours."""

from __future__ import annotations

import numpy as np

from dtdg_lab.batching.decay import RULES
from dtdg_lab.batching.sampling import sampled_edges, sampling_key
from dtdg_lab.core.catalogue import System
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.views.card_pictures import Panel, compared_panel, stacked_panel
from dtdg_lab.views.layout import percent
from dtdg_lab.views.trapezoid_facts import Shape, TrapezoidFacts
from dtdg_lab.views.trapezoid_shape import shape_figure

CHUNKS, PAPER_WINDOW = 128, 8
FANOUT = 5


def window_pictures(system: System, graph: DynamicGraph) -> list[Panel]:
    """The window of a step, and its rows beside those of the systems it is compared with."""
    window = int(system.defaults.get("window", OPTIONS["window"].default))
    decays = system.parts["batching"] == "trapezoid"
    full = int(OPTIONS["full_snapshots"].default) if decays else window
    shapes = {
        "ladder": Shape(2, 0.1, "ladder"), "text": Shape(2, 0.1, "text"),
    }  # fmt: skip
    whole = _facts(graph, PAPER_WINDOW, shapes["ladder"])
    rows = {f"flaredtdg, {rule}": float(whole.rows(shapes[rule])) for rule in RULES if rule in shapes}
    rows |= {"full-history": float(whole.whole_rows), "recent-only": 2.0 * graph.num_nodes}
    facts = _facts(graph, window, Shape(full, OPTIONS["alpha"].default, OPTIONS["decay"].default))
    own = f"flaredtdg, {facts.shape.decay}" if decays else system.name
    words = (
        f"Chunks of every snapshot of a window, oldest on the left: {', '.join(map(str, facts.counts()))}. "
        f"{percent(facts.kept())} of the rows of {window} whole snapshots are kept."
    )
    return [
        (shape_figure(facts, None), words),
        compared_panel("Rows of vertices in a window", "rows", rows, own=own, words=(
            f"{graph.num_nodes:,} vertices, window {PAPER_WINDOW}, K = 2, alpha = 0.1, {CHUNKS} chunks: the two rules "
            "of decay, all of the history, and the newest two alone.")),
    ]  # fmt: skip


def sampled_pictures(system: System, graph: DynamicGraph) -> list[Panel]:
    """Edges of the window's snapshots that are drawn, with two fan-outs."""
    window = int(system.defaults.get("window", OPTIONS["window"].default))
    fanout = min(int(OPTIONS["fanout"].default), FANOUT)
    newest = graph.snapshots[-window:]
    rows = np.arange(graph.num_nodes)
    drawn = [
        len(sampled_edges(snapshot, rows, fanout=fanout, key=sampling_key(0, 0, number, 0)).indices)
        for number, snapshot in enumerate(newest)
    ]
    edges = [snapshot.num_edges for snapshot in newest]
    kept = sum(drawn) / sum(edges)
    words = (
        f"At most {fanout} in-neighbours of each vertex are drawn, anew in every epoch: {percent(kept)} of this "
        "window's edges. All snapshots are treated alike, however old: that is what FlareDTDG objects to."
    )
    left_out = [all_of - some for all_of, some in zip(edges, drawn, strict=True)]
    return [
        stacked_panel("Edges of a window", ("snapshot of a window, oldest first", "edges"),
                      {"drawn": drawn, "left out": left_out}, words=words)
    ]  # fmt: skip


def _facts(graph: DynamicGraph, window: int, shape: Shape) -> TrapezoidFacts:
    counts = np.linspace(0, graph.num_nodes, CHUNKS + 1)
    return TrapezoidFacts(window, shape, CHUNKS, graph.num_nodes, counts, counts[None], None, None)
