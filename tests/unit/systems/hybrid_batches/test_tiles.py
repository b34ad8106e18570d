"""Tiles, suggestions, effect, captions and the verdict of hybrid batches."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.systems.hybrid_batches import captions
from dtdg_lab.systems.hybrid_batches.tiles import (
    STEPS_PER_SECOND,
    rate_tile,
    reservoir_tile,
    size_tile,
    staleness_tile,
)
from dtdg_lab.systems.hybrid_batches.verdict import controller_verdict
from dtdg_lab.visualization.runs.curves import Evaluation
from dtdg_lab.visualization.studies.comparison import ComparedRun
from tests.hybrid_tables import (
    GRID,
    averaged,
    batch,
    controlled_plan,
    decision,
    hybrid_run,
    plan,
    planned,
    steps,
)

FAMILY = catalogue.family("hybrid_batches")


def slow_rank() -> list[dict[str, Any]]:
    """Return steps of 10 ms on rank 0 and of 20 ms on rank 1."""
    start_ns = 1_700_000_000_000_000_000
    rows = [
        {"rank": 1, "step": step, "time_s": 0.02, "time_ns": start_ns + (step + 1) * 20_000_000} for step in range(500)
    ]
    return [*steps(1_000, ranks=1), *rows]


def test_the_size_is_that_of_the_newest_decision() -> None:
    made = [decision(number, number % 9) for number in range(9)]
    tile = size_tile(hybrid_run(controlled_plan(), {"steps": steps(50), "decisions": made}))
    assert (tile.value, tile.note) == ("30% × 10%", "6 snapshots × 20–24 nodes")
    assert tile.spark == tuple(float(math.ceil(20 * s) * math.ceil(240 * v - 1e-9)) for s, v in GRID)
    assert size_tile(hybrid_run(plan(candidates=[240, 240]))).value == "20% × 5%"
    assert size_tile(hybrid_run(None)).value == "–"


def test_steps_per_second_are_of_all_ranks_together() -> None:
    tile = rate_tile(hybrid_run(controlled_plan(), {"steps": slow_rank()}))
    assert (tile.value, tile.note) == ("150", "rank 0: 100, rank 1: 50")
    assert len(tile.spark) == 10 and tile.spark[0] == pytest.approx(150, rel=0.02)
    many = rate_tile(hybrid_run(controlled_plan(), {"steps": steps(100, ranks=8)}, ranks=8))
    assert many.note == "100 to 100 on 8 ranks"
    assert rate_tile(hybrid_run(None)).value == "–"


def test_steps_per_second_of_a_run_that_is_over_are_those_before_its_last_step() -> None:
    later_ns = 1_700_000_000_000_000_000 + 4_000_000_000
    over = {"kind": "ended", "step": 200, "time_ns": later_ns, "data": {"state": "finished"}}
    for events, rate in (([over], "200"), ([{**over, "kind": "epoch", "data": {"epoch": 0}}], "99.7")):
        tables = hybrid_run(controlled_plan(), {"steps": steps(200)}, events=events)
        assert rate_tile(tables).value == rate


def test_the_share_from_the_reservoir_is_of_the_newest_batches() -> None:
    rows = [batch(step, source="reservoir" if step >= 150 else "new") for step in range(250)]
    tile = reservoir_tile(hybrid_run(controlled_plan(), {"steps": steps(250, ranks=1), "targets": rows}, ranks=1))
    assert (tile.value, tile.note) == ("50%", "of the last 200 batches") and tile.spark[-1] == 1.0
    without = reservoir_tile(hybrid_run(plan(), {"steps": steps(1), "targets": [batch(0)]}))
    assert (without.value, without.note) == ("–", "no reservoir is kept")


def test_staleness_is_a_mean_over_the_ranks() -> None:
    rows = [averaged(number, rank, staleness=1 + 2 * rank) for number in range(1, 9) for rank in (0, 1)]
    tile = staleness_tile(hybrid_run(controlled_plan(), {"steps": steps(90), "rounds": rows}))
    assert (tile.value, tile.note, tile.spark) == ("2.0 steps", "of averaged models", (1.0,) * 8)
    assert staleness_tile(hybrid_run(plan())).value == "0 steps"


def test_changes_are_compared_by_steps_per_second_of_all_ranks() -> None:
    numbers, rates = STEPS_PER_SECOND.values(hybrid_run(controlled_plan(), {"steps": slow_rank()}))
    assert numbers.tolist() == list(range(1_000)) and rates[100:].tolist() == pytest.approx([150.0] * 900)
    together = STEPS_PER_SECOND.values(hybrid_run(plan(), {"steps": steps(9)}))
    assert together[1].tolist() == pytest.approx([100.0] * 9)
    assert len(STEPS_PER_SECOND.values(hybrid_run(None))[0]) == 0


# captions

EXAMPLES = {
    "part": "63",
    "targets": "1,095–1,096",
    "nodes": "10,949–10,950",
    "snapshots": "900",
    "total": "1,000",
    "size": "30% × 10%",
    "batches": "3 distinct batches",
    "count": "50",
    "decisions": "20",
    "by_rank": "1.7 steps stale on rank 0, 1.1 on rank 1 and 1.2 on rank 2",
    "ranks": "64",
    "least": "1.0",
    "most": "8.0",
    "share": "99%",
    "held": "24",
    "capacity": "24",
    "value": "−0.44",
    "moment": "at step 12,345",
    "reward": "0.108",
    "regret": "1.48",
    "controller": "the random controller",
    "loss": "0.0311",
    "times": "1.41",
}
TEMPLATES = {name: text for name, text in vars(captions).items() if name.isupper()}


# a controller against fixed sizes


def compared(data: dict[str, Any] | None, seconds: float | None, **settings: Any) -> ComparedRun:
    reached = None if seconds is None else Evaluation(9, seconds, 0.03, None)
    return ComparedRun("a run", "#000000", hybrid_run(data, **settings), (), reached)


def fixed(share: float, seconds: float | None, **settings: Any) -> ComparedRun:
    return compared(plan(shares=[(share, 0.05)], reservoir=True, exchange="models"), seconds, **settings)


def test_a_controller_is_compared_with_the_best_fixed_size() -> None:
    runs = [compared(controlled_plan(), 2.0), fixed(0.1, 5.0), fixed(0.2, 3.0), fixed(0.3, None)]
    assert controller_verdict(runs, 0.0311) == (
        "The DQN reached a loss of 0.0311 1.50 times as fast as the best fixed size, 20% × 5%."
    )
    runs[0] = compared(controlled_plan(), None)
    assert controller_verdict(runs, 0.0311) == (
        "The best fixed size, 20% × 5%, reached a loss of 0.0311 before the DQN."
    )


def test_of_several_seeds_the_median_counts() -> None:
    runs = [compared(controlled_plan(), seconds, seed=seed) for seed, seconds in enumerate((1.0, 2.0, 9.0))]
    assert "1.50 times as fast" in controller_verdict([*runs, fixed(0.2, 3.0)], 0.1)


def test_a_verdict_needs_a_controller_and_a_fixed_size_that_arrived() -> None:
    dqn = compared(controlled_plan(), 2.0)
    assert controller_verdict([dqn], 0.1) == controller_verdict([fixed(0.2, 3.0)], 0.1) == ""
    assert controller_verdict([dqn, fixed(0.2, None)], 0.1) == "The DQN reached a loss of 0.100, and no fixed size did."
    assert controller_verdict([compared(controlled_plan(), None), fixed(0.2, None)], 0.1) == ""


def test_runs_that_differ_in_more_or_were_changed_are_not_compared() -> None:
    dqn = compared(controlled_plan(), 2.0)
    assert controller_verdict([dqn, fixed(0.2, 3.0, model="gatlstm")], 0.1) == ""
    data = plan(shares=[(0.2, 0.05)], reservoir=True, exchange="models")
    changed = compared(data, 3.0, events=[planned(plan(shares=[(0.5, 0.5)]), step=9)])
    assert controller_verdict([dqn, changed], 0.1) == ""
    assert controller_verdict([dqn, fixed(0.2, 3.0), compared(None, 1.0, system="psg")], 0.1) != ""
