"""Pictures on the cards of its systems: rows and edges of a window."""

from __future__ import annotations

import numpy as np

from dtdg_lab.config.catalogue import System
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.engine.minibatches import sampled_edges, sampling_key
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.systems.decayed_windows.events import Shape, TrapezoidFacts
from dtdg_lab.systems.decayed_windows.picture import DECAYED, FULL, LEFT_OUT
from dtdg_lab.systems.decayed_windows.step_windows import shares_of
from dtdg_lab.systems.decayed_windows.window import RULES
from dtdg_lab.visualization.layout import chart
from dtdg_lab.visualization.numbers import percent_text
from dtdg_lab.visualization.panels import Panel, compared_panel, stacked_panel
from dtdg_lab.visualization.traces import Drawn, bars

CHUNKS, PAPER_WINDOW = 128, 8
FANOUT = 5


def window_pictures(system: System, graph: DynamicGraph) -> list[Panel]:
    """Return the window of a step, and its rows beside those of comparable systems."""
    window = int(system.defaults.get("window", OPTIONS["window"].default))
    decays = system.parts["batching"] == "trapezoid"
    full = int(OPTIONS["full_snapshots"].default) if decays else window
    shapes = {"ladder": Shape(2, 0.1, "ladder"), "text": Shape(2, 0.1, "text")}
    whole = _facts(graph, PAPER_WINDOW, shapes["ladder"])
    rows = {f"flaredtdg, {rule}": float(whole.rows(shapes[rule])) for rule in RULES if rule in shapes}
    rows |= {"full-history": float(whole.whole_rows), "recent-only": 2.0 * graph.num_nodes}
    facts = _facts(graph, window, Shape(full, OPTIONS["alpha"].default, OPTIONS["decay"].default))
    own = f"flaredtdg, {facts.shape.decay}" if decays else system.name
    return [
        _whole_window(facts),
        compared_panel(
            "Rows of nodes in a window",
            "rows",
            rows,
            highlighted=own,
            caption=f"Windows of {PAPER_WINDOW} snapshots of {graph.num_nodes:,} nodes, with K 2 and alpha 0.1.",
        ),
    ]


def sampled_pictures(system: System, graph: DynamicGraph) -> list[Panel]:
    """Return the sampled edges of a window's snapshots."""
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
    words = f"Sampling up to {fanout} in-neighbours of each node keeps {percent_text(kept)} of this window's edges."
    left_out = [all_of - some for all_of, some in zip(edges, drawn, strict=True)]
    return [
        stacked_panel(
            "Edges of a window",
            ("snapshot of a window, oldest first", "edges"),
            {"sampled": drawn, "left out": left_out},
            caption=words,
        )
    ]


def _whole_window(facts: TrapezoidFacts) -> Panel:
    shares = np.round(100 * np.array(shares_of(facts)), 2)
    full = min(facts.shape.full_snapshots, facts.window)
    places, border = np.arange(facts.window), facts.window - full
    kinds = (
        ("full", FULL, places[border:], shares[border:]),
        ("decayed", DECAYED, places[:border], shares[:border]),
        ("left out", LEFT_OUT, places[:border], 100 - shares[:border]),
    )
    data = [bars(name, x.tolist(), y.tolist(), colour, "%{y:.0f}%") for name, colour, x, y in kinds if len(x)]
    titles = ("Window of a step", "snapshot, oldest to newest", "share of nodes kept (%)")
    looks: Drawn = {"barmode": "stack", "bargap": 0.12, "xaxis": {"dtick": 1, "showgrid": False}}
    words = f"A window keeps {percent_text(facts.kept())} of the rows of {facts.window} full snapshots."
    return chart(*titles, data, **looks), words


def _facts(graph: DynamicGraph, window: int, shape: Shape) -> TrapezoidFacts:
    counts = np.linspace(0, graph.num_nodes, CHUNKS + 1)
    return TrapezoidFacts(window, shape, CHUNKS, graph.num_nodes, counts, counts, None, None)
