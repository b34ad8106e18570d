"""Work of an epoch of the single-process reference."""

from __future__ import annotations

import numpy as np

from dtdg_lab.systems.workload import EXACT, EpochWork, Facts, plain_work


def single_work(facts: Facts) -> EpochWork:
    """One step of all snapshots on one rank."""
    edges, many = np.array([facts.edges.sum()], float), len(facts.train)
    rows = np.array([many * facts.graph.num_nodes], float)
    return plain_work(facts, steps=1, edges=edges, rows=rows, snapshots=float(many), exact=frozenset(EXACT))
