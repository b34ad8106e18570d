"""Pictures on the cards of hybrid batches: a batch beside those that it replaces."""

from __future__ import annotations

import plotly.graph_objects as go

from dtdg_lab.config import catalogue
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.systems.hybrid_batches.card_pictures import batch_pictures, kinds_figure, target_counts
from dtdg_lab.systems.hybrid_batches.events import HybridFacts
from dtdg_lab.systems.hybrid_batches.observations import PartBatch
from tests.hybrid_tables import FIRST, SNAPSHOTS, plan


def test_targets_of_the_example_of_the_paper() -> None:
    """Figure 2: four nodes in four snapshots; a round of three snapshots of a node, one of two of two."""
    data = plan(snapshots=4, first=1, candidates=[4], nodes=4, sizes=[[2, 2, 2]], shares=[(0.5, 0.5)])
    facts = HybridFacts.read(data)
    rounds = [
        PartBatch(part=0, action=0, source="new", snapshots=range(first, last), targets=targets, edges=0, counts=None)
        for first, last, targets in ((1, 4, 1), (3, 5, 2))
    ]
    assert sum(target_counts(facts, {0: batch})[0] for batch in rounds) == 3 + 4, "as the paper has it"
    assert target_counts(facts, {0: rounds[1]}) == (4, 2 * 4, 4 * 2)


def test_a_batch_stands_beside_those_that_it_replaces() -> None:
    counts = tuple(1 if place % 5 == 0 else 0 for place in range(60))
    batches = {
        part: PartBatch(part=part, action=0, source="new", snapshots=range(5, 9), targets=12, edges=0, counts=counts)
        for part in (0, 1)
    }
    figure = kinds_figure(HybridFacts.read(plan()), batches)
    go.Figure(figure)
    assert len(figure["data"]) == len(figure["layout"]["shapes"]) == 3 * 2, "three fields of two parts"
    hybrid, nodes, whole = figure["data"][:3]
    assert hybrid["x"] == [5 - FIRST - 0.5, 9 - FIRST - 0.5] and nodes["z"] == hybrid["z"], "the same nodes, always"
    assert nodes["x"][1] - nodes["x"][0] == SNAPSHOTS and {cell for (cell,) in whole["z"]} == {1.0}, "all nodes"


def test_every_system_has_its_pictures() -> None:
    graph = load_dataset("growing", generated_nodes=120, generated_edges=400, generated_snapshots=12)
    for name in ("dynahb", "dbov", "dbos"):
        (batch, words), _ = batch_pictures(catalogue.system(name), graph)
        assert len(batch["data"]) == 6 and words.startswith("A hybrid batch has")
