"""Times to a loss near the best, over seeds."""

from __future__ import annotations

from dtdg_lab.lessons import near_by_seed_words
from dtdg_lab.records.tables import RunTables
from dtdg_lab.visualization.runs.curves import CURVE_ROLLUPS
from tests.tables import run_tables


def evaluated(losses: list[float]) -> RunTables:
    rows = [{"step": 10 * place, "split": "validation", "loss": loss} for place, loss in enumerate(losses)]
    return run_tables({}, {"steps": [{"step": 0}], "evaluations": rows}, rollups=CURVE_ROLLUPS)


def test_times_to_a_loss_have_a_spread_over_seeds() -> None:
    quick = [evaluated(losses) for losses in ([1.0, 0.5], [1.0, 0.8, 0.5], [1.0, 0.9, 0.8])]
    first, spread, never = near_by_seed_words({"dqn": quick, "fixed": [evaluated([1.0, 0.9])]}).splitlines()
    assert first.startswith("seconds to loss 0.525, 5% above the lowest of all")
    assert spread == "  dqn: 100 ms  200 ms  never  (1 of 3 never)"
    assert never == "  fixed: never  never  never  (1 of 1 never)"
    assert near_by_seed_words({"dqn": [evaluated([])]}) == ""
