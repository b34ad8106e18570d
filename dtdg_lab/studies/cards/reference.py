"""The card of the reference that all other systems are compared with."""

from __future__ import annotations

from dtdg_lab.studies.cards.papers import OURS
from dtdg_lab.studies.cards.text import CardText, Formula, Measured

CARDS = (
    CardText(
        system="single", paper=OURS,
        idea=(
            "One process takes all training snapshots at once and in order.",
            "The state of every vertex runs from the first snapshot to the last with its gradient.",
            "Nothing is cut, sampled, cached or sent, so there is nothing that could be approximated.",
            "Its losses and gradients are what every exact system must repeat, and what every other system's deviation "
            "is counted from.",
            "It needs memory for all snapshots at once, which is the reason for all the rest.",
        ),
        formulas=(
            Formula(r"H_t = \text{RNN}(H_{t-1}, \text{GNN}(G_t, X_t)), \quad t = 1, \ldots, T",
                    "each snapshot is mixed over its edges, and what comes out runs through time, vertex by vertex"),
            Formula(r"\ell = \frac{1}{T N} \sum_{t=1}^{T} \sum_{v} \ell(H_t[v], y_{t,v})",
                    "one loss over all labelled vertices of all snapshots, one update an epoch"),
        ),
        measured=(
            Measured("training epoch of T-GCN on W1 (20,000 vertices, 40 snapshots of 100,000 edges), against "
                     "PyG-Temporal: time, times faster, share of its memory", "0.26 s, 8.7 times, 12 %",
                     "python benchmarks/models.py"),
            Measured("the same of EvolveGCN-O in two layers, against a plain port", "0.16 s, 6.1 times, 60 %",
                     "python benchmarks/models.py"),
        ),
        settings={"model": "tgcn"},
    ),
)  # fmt: skip
