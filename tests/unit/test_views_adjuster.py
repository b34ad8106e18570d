"""Several runs over wall time."""

from __future__ import annotations

import pytest
from hybrid_windows import check, evaluated, window
from runs_synthetic import finished_run
from targets_synthetic import (
    dynahb_data,
    hybrid_data,
)  # fmt: skip

import dtdg_lab as lab
from dtdg_lab.runs.finish import finish
from dtdg_lab.runs.run import compare
from dtdg_lab.visualization.loss import near_best, near_by_seed_words, seconds_to, wall_time_figure, wall_time_words

# wall time


def test_losses_are_drawn_over_seconds_with_a_star_where_all_have_been() -> None:
    fast = evaluated(window(hybrid_data(), system="dbov"), [1.0, 0.5, 0.25])
    slow = evaluated(window(hybrid_data(), system="dbos"), [1.0, 0.8, 0.5, 0.45])
    evaluated(slow, [0.9], split="train")
    near = near_best([fast, slow])
    assert near == pytest.approx(1.05 * 0.25)
    assert seconds_to(fast, 0.45) == pytest.approx(0.6) and seconds_to(slow, 0.45) == pytest.approx(0.8)
    assert seconds_to(slow, 0.3) is None and near_best([fast, window()]) is None
    figure = wall_time_figure([("fast", fast), ("slow", slow)])
    check(figure)
    stars = [(t["x"], t["y"]) for t in figure["data"] if t.get("marker", {}).get("symbol") == "star"]
    assert stars == [([0.6], [near])], "what the worst run reaches says nothing of a quick one"
    below = [trace for trace in figure["data"] if trace.get("yaxis") == "y2"]
    assert below[0]["mode"] == "lines" and below[0]["y"] == [2.0], "steps where training was not evaluated"
    assert below[1]["y"] == [0.9]
    words = wall_time_words([("fast", fast), ("slow", slow)])
    assert words.startswith("To loss 0.2625, 5% above the least of all, fast took 600 ms. slow did not get there.")
    close = evaluated(window(hybrid_data(), system="bvr"), [1.0, 0.8, 0.5, 0.26])
    words = wall_time_words([("fast", fast), ("close", close)])
    assert "fast took 600 ms; close 800 ms, 1.33 times as long. Look" in words
    check(wall_time_figure([]))
    check(wall_time_figure([("one", fast)]))
    assert wall_time_words([]) and "least of all" not in wall_time_words([("new", window())])


def test_times_to_a_loss_have_a_spread_over_seeds() -> None:
    quick = [evaluated(window(dynahb_data()), losses) for losses in ([1.0, 0.5], [1.0, 0.8, 0.5], [1.0, 0.9, 0.8])]
    slow = [evaluated(window(hybrid_data()), [1.0, 0.9])]
    first, quickly, never = near_by_seed_words({"dqn": quick, "fixed": slow}).splitlines()
    assert first.startswith("seconds to loss 0.525, 5% above the least of all")
    assert quickly.endswith("never  (1 of 3 never)") and never == "  fixed: never  never  never  (1 of 1 never)"
    assert near_by_seed_words({"dqn": [window(dynahb_data())]}) == ""


def test_stored_runs_are_compared_over_wall_time(tmp_path) -> None:
    runs = [finished_run(tmp_path / name, epochs=epochs) for name, epochs in (("a", 2), ("b", 3))]
    for run in runs:
        finish(run, "finished")
    found = compare([run.path for run in runs])
    check(found.wall_time)
    words = found.summary()
    assert words.startswith("Scored by protocol warm with 0 snapshots left out")
    assert "To loss 0.63, 5% above the least of all, epochs 3 took 300 ms. epochs 2 did not " in words
    assert lab.plot(found.wall_time).data[0].name == found.labels[0]


def test_runs_are_labelled_by_the_settings_that_tell_them_apart(tmp_path) -> None:
    runs = []
    for number, (system, batch_policy) in enumerate((("dynahb", "dqn"), ("dynahb", "none"), ("dbos", "none"))):
        runs.append(finished_run(tmp_path / str(number), epochs=2, system=system, batch_policy=batch_policy))
        finish(runs[-1], "finished")
    labels = compare([run.path for run in runs]).labels
    assert labels == (
        "system dynahb, batch_policy dqn",
        "system dynahb, batch_policy none",
        "system dbos, batch_policy none",
    )
