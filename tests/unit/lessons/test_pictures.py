"""Pictures of mechanisms have the numbers of what they show."""

from __future__ import annotations

import pytest

from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.lessons.pictures import batch_picture, cache_picture, owners_picture, schedule_picture, window_picture

TIMES_S = [1, 2, 5, 7, 9, 14, 15, 17]


def test_a_window_keeps_the_papers_share() -> None:
    figure, caption = window_picture()
    assert caption == "A window keeps 28% of the rows of 8 full snapshots."
    assert {trace["name"] for trace in figure["data"]} == {"full", "decayed", "left out"}
    assert window_picture(full_snapshots=8)[1].startswith("A window keeps 100%")
    assert window_picture(full_snapshots=9)[1] == window_picture(full_snapshots=8)[1]


def test_a_batch_is_counted_beside_those_that_it_replaces() -> None:
    graph = load_dataset("powerlaw", generated_nodes=100, generated_edges=300, generated_snapshots=10)
    _, caption = batch_picture(graph, batch_snapshots=1.0, batch_nodes=1.0)
    hybrid, nodes, snapshots = [int(word.strip(".,").replace(",", "")) for word in caption.split() if word[0].isdigit()]
    assert hybrid == nodes == snapshots


@pytest.mark.parametrize(("scheduler", "seconds"), [("psg", 40), ("fold", 36), ("consecutive", 44)])
def test_a_schedule_ends_when_its_times_say(scheduler: str, seconds: int) -> None:
    _, caption = schedule_picture(TIMES_S, scheduler=scheduler)
    assert f"takes {seconds}.0 s" in caption and "before 35.0 s" in caption
    assert schedule_picture(TIMES_S, scheduler=scheduler, noise=0.3)[1] != caption


@pytest.mark.parametrize(("ranks", "sent"), [(2, 72), (3, 96), (4, 108)])
def test_rows_are_sent_as_the_formula_says(ranks: int, sent: int) -> None:
    _, caption = owners_picture(ranks=ranks)
    assert caption.startswith(f"{sent} of 144 rows are sent.")
    assert "activations of 3 snapshots, and 3 states" in owners_picture(ranks=ranks, blocks=4)[1]


def test_a_cache_is_compared_with_the_best_plan() -> None:
    _, caption = cache_picture(policy="fixed-window")
    assert "keeps a cache for 16 steps" in caption and "more energy" in caption
    assert cache_picture(policy="planner (ours)")[1] != caption
