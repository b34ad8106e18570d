"""Pictures on the cards of its systems: rows and edges of a window."""

from __future__ import annotations

import numpy as np

from dtdg_lab.core.catalogue import System
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.engine.minibatches import sampled_edges, sampling_key
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.systems.decayed_windows.charts import shape_figure
from dtdg_lab.systems.decayed_windows.events import Shape, TrapezoidFacts
from dtdg_lab.systems.decayed_windows.window import RULES
from dtdg_lab.visualization.charts import Panel, compared_panel, stacked_panel
from dtdg_lab.visualization.layout import percent

CHUNKS, PAPER_WINDOW = 128, 8
FANOUT = 5


def window_pictures(system: System, graph: DynamicGraph) -> list[Panel]:
    """The window of a step, and its rows beside those of comparable systems."""
    window = int(system.defaults.get("window", OPTIONS["window"].default))
    decays = system.parts["batching"] == "trapezoid"
    full = int(OPTIONS["full_snapshots"].default) if decays else window
    shapes = {"ladder": Shape(2, 0.1, "ladder"), "text": Shape(2, 0.1, "text")}
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
        compared_panel(
            "Rows of nodes in a window",
            "rows",
            rows,
            own=own,
            words=(
                f"{graph.num_nodes:,} nodes, window {PAPER_WINDOW}, K = 2, alpha = 0.1, {CHUNKS} chunks: the two decay "
                "rules, the whole history, and only the newest two snapshots."
            ),
        ),
    ]


def sampled_pictures(system: System, graph: DynamicGraph) -> list[Panel]:
    """Sampled edges of the window's snapshots, with two fan-outs."""
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
        f"At most {fanout} in-neighbours of each node are sampled, again in every epoch: {percent(kept)} of this "
        "window's edges. All snapshots are treated alike, however old, which FlareDTDG criticises."
    )
    left_out = [all_of - some for all_of, some in zip(edges, drawn, strict=True)]
    return [
        stacked_panel(
            "Edges of a window",
            ("snapshot of a window, oldest first", "edges"),
            {"drawn": drawn, "left out": left_out},
            words=words,
        )
    ]


def _facts(graph: DynamicGraph, window: int, shape: Shape) -> TrapezoidFacts:
    counts = np.linspace(0, graph.num_nodes, CHUNKS + 1)
    return TrapezoidFacts(window, shape, CHUNKS, graph.num_nodes, counts, counts, None, None)
