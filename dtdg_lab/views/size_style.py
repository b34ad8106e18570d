"""How lines and points of the sizes of batches are told apart."""

from __future__ import annotations

from typing import Any

from dtdg_lab.views.hybrid_facts import HybridFacts, given_words
from dtdg_lab.views.palette import series_colour

_DASHES = ("solid", "dash", "dot", "dashdot")


_WORDS = ("solid", "dashed", "dotted", "dash-dotted")


def size_style(facts: HybridFacts, action: int) -> dict[str, Any]:
    """Line and marker of a size: a colour for its snapshots, dashes for its vertices; the one in use is thicker."""
    given = facts.sizes[action].given if 0 <= action < len(facts.sizes) else (0.0, 0.0)
    snapshots, vertices = _given(facts)
    colour = series_colour(snapshots.index(given[0]) if given[0] in snapshots else action)
    dash = _DASHES[vertices.index(given[1]) % len(_DASHES)] if given[1] in vertices else "solid"
    width = 3 if action == facts.choice else 1.5
    return {"line": {"color": colour, "dash": dash, "width": width}, "marker": {"color": colour, "size": 6}}


def size_key(facts: HybridFacts) -> dict[str, Any]:
    """A line over the chart that says which colour and dashes are which; a legend of nine sizes would not fit."""
    snapshots, vertices = _given(facts)
    colours = ", ".join(
        f"<span style='color:{series_colour(at)}'><b>{given_words(value)}</b></span>"
        for at, value in enumerate(snapshots)
    )
    dashes = ", ".join(f"{_WORDS[at % len(_WORDS)]} {given_words(value)}" for at, value in enumerate(vertices))
    return {
        "text": f"{colours} of snapshots; {dashes} of vertices", "xref": "paper", "yref": "paper", "x": 0, "y": 1,
        "xanchor": "left", "yanchor": "bottom", "showarrow": False, "font": {"size": 10},
    }  # fmt: skip


def _given(facts: HybridFacts) -> tuple[list[float], list[float]]:
    """The values of N_S and N_V among the sizes, each once."""
    return (
        list(dict.fromkeys(size.given[0] for size in facts.sizes)),
        list(dict.fromkeys(size.given[1] for size in facts.sizes)),
    )
