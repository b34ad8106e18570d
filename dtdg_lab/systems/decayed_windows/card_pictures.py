"""Pictures on the cards of its systems: rows and edges of a window."""

from __future__ import annotations

import numpy as np

from dtdg_lab.config.catalogue import System
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.engine.minibatch.neighbour_sampling import sampled_edges, sampling_key
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.systems.decayed_windows.events import Shape, TrapezoidFacts
from dtdg_lab.systems.decayed_windows.window import RULES
from dtdg_lab.systems.decayed_windows.window_picture import DECAYED, FULL, LEFT_OUT
from dtdg_lab.visualization.bar_charts import compared_bars, stacked_bars
from dtdg_lab.visualization.chart import CaptionedFigure, card, trace_keys
from dtdg_lab.visualization.numbers import percent_text
from dtdg_lab.visualization.traces import Attributes, bars

CHUNKS, PAPER_WINDOW = 128, 8
FANOUT = 5


def window_pictures(system: System, graph: DynamicGraph) -> list[CaptionedFigure]:
    """Return the window of a step, and its rows beside those of comparable systems."""
    window = int(system.defaults.get("window", OPTIONS["window"].default))
    decays = system.parts["batching"] == "trapezoid"
    full = int(OPTIONS["full_snapshots"].default) if decays else window
    paper = {rule: _facts(graph, PAPER_WINDOW, Shape(2, 0.1, rule)) for rule in RULES}
    rows = {f"flaredtdg, {rule}": float(facts.rows()) for rule, facts in paper.items()}
    rows |= {"full-history": float(PAPER_WINDOW * graph.num_nodes), "recent-only": 2.0 * graph.num_nodes}
    facts = _facts(graph, window, Shape(full, OPTIONS["alpha"].default, OPTIONS["decay"].default))
    highlighted = f"flaredtdg, {facts.shape.decay}" if decays else system.name
    return [
        window_card(facts),
        compared_bars(
            "Rows of nodes in a window",
            "rows",
            rows,
            highlighted=highlighted,
            caption=f"Windows of {PAPER_WINDOW} snapshots of {graph.num_nodes:,} nodes, with K 2 and alpha 0.1.",
        ),
    ]


def sampled_pictures(system: System, graph: DynamicGraph) -> list[CaptionedFigure]:
    """Return the sampled edges of a window's snapshots."""
    window = int(system.defaults.get("window", OPTIONS["window"].default))
    fanout = min(int(OPTIONS["fanout"].default), FANOUT)
    newest, nodes = graph.snapshots[-window:], np.arange(graph.num_nodes)
    sampled = [
        len(sampled_edges(snapshot, nodes, fanout=fanout, key=sampling_key(0, 0, number, 0)).indices)
        for number, snapshot in enumerate(newest)
    ]
    edges = [snapshot.num_edges for snapshot in newest]
    share = percent_text(sum(sampled) / sum(edges))
    caption = f"Sampling up to {fanout} in-neighbours of each node keeps {share} of this window's edges."
    left_out = np.subtract(edges, sampled).tolist()
    return [
        stacked_bars(
            "Edges of a window",
            ("snapshot of a window, oldest first", "edges"),
            {"sampled": sampled, "left out": left_out},
            caption=caption,
        )
    ]


def window_card(facts: TrapezoidFacts) -> CaptionedFigure:
    """Return the share of nodes that each snapshot of a window keeps."""
    shares = np.round(100 * np.array(facts.shares()), 2)
    snapshots, border = np.arange(facts.window), facts.window - facts.full
    kinds = (
        ("full", FULL, snapshots[border:], shares[border:]),
        ("decayed", DECAYED, snapshots[:border], shares[:border]),
        ("left out", LEFT_OUT, snapshots[:border], 100 - shares[:border]),
    )
    data = [bars(name, x.tolist(), y.tolist(), colour, "%{y:.0f}%") for name, colour, x, y in kinds if len(x)]
    texts: Attributes = {"unit": "share of nodes kept (%)", "x_title": "snapshot, oldest to newest"}
    layout: Attributes = {"barmode": "stack", "bargap": 0.12, "xaxis": {"dtick": 1, "showgrid": False}}
    caption = f"A window keeps {percent_text(facts.kept_share())} of the rows of {facts.window} full snapshots."
    return card(data, "Window of a step", keys=trace_keys(data), **texts, **layout), caption


def _facts(graph: DynamicGraph, window: int, shape: Shape) -> TrapezoidFacts:
    counts = np.linspace(0, graph.num_nodes, CHUNKS + 1)
    return TrapezoidFacts(window, shape, CHUNKS, graph.num_nodes, counts, counts, None, None)
