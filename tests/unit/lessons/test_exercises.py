"""Exercises without points accept the solutions, reject wrong answers with a hint, and never show the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dtdg_lab as lab
from dtdg_lab import lessons
from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.lessons import exercises
from dtdg_lab.lessons.checks import Feedback
from tests.factories import small_config
from tests.lesson_solutions import blocks

BATCHES = [rows.split() for rows in ("1a 1b 2a 3a", "1a 2a 2b 3a", "1b 1c 2b 3b", "1b 2b 2c 3b")]
TIMES = [1, 2, 5, 7, 9, 14, 15, 17]
PEAKS = {1: 100, 2: 60, 4: 40, 8: 30}
COSTS = {"clean": {(16, None): 10.0, (8, 1): 10.05, (4, None): 12.0}, "slow": {(16, None): 10.0, (8, 1): 5.0}}


def answer(lesson: str, number: int, name: str) -> Any:
    """What the solution of a lesson's exercise assigns to a name."""
    known: dict[str, Any] = {"lessons": lessons}
    exec(blocks(lesson)[number], known)
    return known[name]


GRAPH = lessons.graph_of("10 21 32 64", "40 54 35", "01 12")
Check = Callable[[Any], Feedback]
CASES: dict[str, tuple[Check, Any, list[Any]]] = {
    "sent rows": (
        exercises.check_sent_rows,
        answer("04_snapshot_parallel_esdg", 0, "mine"),
        [
            None,
            {},
            {"rank 2 to rank 1": None, "all together": 23},
            {"rank 2 to rank 1": 6, "all together": 35},
            {"rank 2 to rank 1": 4, "all together": 23},
            {"rank 2 to rank 1": "6", "all together": 23},
        ],
    ),
    "blocks": (lambda said: exercises.check_blocks(said, PEAKS, 50), 4, [None, 1, 2, 3, 8, "4"]),
    "targets": (
        exercises.check_targets,
        answer("05_hybrid_batches_dynahb", 0, "mine"),
        [
            None,
            {"hybrid": 200},
            {"hybrid": 20, "node": 1000, "snapshot": 4000},
            {"hybrid": 200, "node": 4000, "snapshot": 1000},
        ],
    ),
    "reads": (
        lambda said: exercises.check_reads(said, GRAPH),
        answer("05_hybrid_batches_dynahb", 1, "mine_read"),
        ["", None, "0", "0 1 4", "0 1 2 3 4 5 6", "0 1 2 4 5 9", "0 1 2 4 6"],
    ),
    "reservoir": (
        exercises.check_reservoir,
        answer("06_asynchrony_dynahb", 0, "mine"),
        [
            {"one size": None},
            {"one size": 90, "nine sizes": 90, "p": 0.5},
            {"one size": 90, "nine sizes": 10, "p": 0.05},
        ],
    ),
    "reward": (
        exercises.check_reward,
        answer("07_batch_size_dynahb", 1, "mine"),
        [
            {"there": 0.5, "back": -2 / 3, "staying": 0},
            {"there": 0, "back": 2 / 3, "staying": 0},
            {"there": 0, "back": -2 / 3, "staying": 1},
            {"there": 0, "back": None, "staying": 0},
        ],
    ),
    "schedule": (
        lambda said: exercises.check_schedule(said, TIMES),
        answer("08_scheduling_dygnex", 0, "mine"),
        [(((0, 7), (1, 6)), ((2, 5), (3, 4))), (((0, 7), (1, 6)),), (((5, 2), (7, 1)), ((6, 0), (4, 4)))],
    ),
    "window": (
        exercises.check_window,
        answer("09_temporal_decay_flaredtdg", 0, "mine"),
        [{"only the full ones": 0.68, "all eight": 0.09}, {"only the full ones": 0.32, "all eight": 0.25}, 0.32],
    ),
    "cache": (
        lambda said: exercises.check_cache(said, BATCHES),
        answer("10_feature_cache_greendygnn", 0, "mine"),
        [
            {},
            {"hits, W = 4": 8, "hits, W = 2": 12, "rows moved, W = 4": 8, "rows moved, W = 2": 4},
            {"hits, W = 4": 9, "hits, W = 2": 12, "rows moved, W = 4": 11, "rows moved, W = 2": 10},
        ],
    ),
    "choices": (
        lambda said: exercises.check_choices(said, COSTS),
        {"clean": (8, 1), "slow": (8, 1)},
        [
            None,
            {"clean": (None, None), "slow": (8, 1)},
            {"clean": (4, None), "slow": (8, 1)},
            {"clean": (16, None), "slow": (16, None)},
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_solution_is_accepted(name: str) -> None:
    check, right, _ = CASES[name]
    assert check(right), check(right)


@pytest.mark.parametrize("name", CASES)
def test_wrong_answers_get_a_hint(name: str) -> None:
    check, _, wrong = CASES[name]
    for said in wrong:
        feedback = check(said)
        assert not feedback and len(feedback.words) > 10, said


def test_a_hint_does_not_show_the_numbers() -> None:
    said = exercises.check_targets({"hybrid": 1, "node": 1, "snapshot": 1}).words
    assert "200" not in said and "1000" not in said and "4000" not in said
    assert "0 1 2 4 5 6" not in exercises.check_reads("0", GRAPH).words


def test_the_real_choices_of_the_cache_lesson() -> None:
    links = {"clean": (0.0, 1e12), "20 ms late": (0.02, 1e12), "50 Mbit/s": (0.0, 50e6 / 8)}
    costs = lessons.window_costs(links)
    assert exercises.check_choices(answer("10_feature_cache_greendygnn", 1, "mine_best"), costs)
    late, slow = costs["20 ms late"], costs["50 Mbit/s"]
    assert not exercises.near_best(late, (16, None)) and not exercises.near_best(slow, (16, None))


def test_times_that_no_schedule_can_even_out_are_accepted() -> None:
    bench = lessons.ScheduleBench(TIMES, ranks=2)
    assert not exercises.check_dragged(bench)
    exec(blocks("08_scheduling_dygnex")[1], {"bench": bench})
    assert exercises.check_dragged(bench)
    bench.set([2, 2, 7, 7, 9, 9, 15, 15], scheduler="psg")
    assert bench.makespan_s("psg") == pytest.approx(bench.bound_s), "as the solutions say"


def test_a_rule_must_be_better_than_no_rule() -> None:
    assert (
        exercises.check_rule(10.0, 12.0)
        and not exercises.check_rule(11.9, 12.0)
        and not exercises.check_rule(20.0, 12.0)
    )


def test_a_bar_chart_has_a_bar_for_each_value() -> None:
    single = lessons.bar_chart("Rows", "rows", {"a": 1, "b": 2})
    assert [(bar["x"], bar["y"]) for bar in single["data"]] == [(["a", "b"], [1.0, 2.0])]
    assert not single["layout"]["showlegend"]
    groups = lessons.bar_chart("Rows", "rows (log)", {"one": {"a": 1}, "other": {"a": 2}}, log=True)
    assert [bar["name"] for bar in groups["data"]] == ["one", "other"] and groups["layout"]["yaxis"]["type"] == "log"
    with pytest.raises(ConfigError, match="has no bars"):
        lessons.bar_chart("Rows", "rows", {})


def test_a_figure_of_a_lesson_has_at_most_four_panels() -> None:
    figure = lessons.bar_chart("Rows", "rows", {"a": 1})
    both = lessons.side_by_side(figure, figure, title="two")
    assert len([name for name in both["layout"] if name.startswith("xaxis")]) == 2
    with pytest.raises(ConfigError, match="5 panels"):
        lessons.side_by_side(*[figure] * 5, title="five")


def test_panels_are_chosen_by_name() -> None:
    config = small_config(epochs=2)
    run = lab.train(config, progress=False)
    drawn = lessons.panels(run, "loss", "schedule")
    assert len([name for name in drawn["layout"] if name.startswith("xaxis")]) == 2
    titles = [note["text"] for note in lessons.panels(run, "loss", "step_time")["layout"]["annotations"]]
    assert any(title.startswith("<b>Loss</b>") for title in titles), "charts of tables are cards on a sheet"
    with pytest.raises(UnknownNameError, match="nothing"):
        lessons.panels(run, "nothing")
    with pytest.raises(ConfigError, match="1 to 4"):
        lessons.panels(run)


def test_a_race_is_drawn_on_one_screen() -> None:
    config = small_config(epochs=2)
    configs = {"psg": config, "<single>": config.replace(system="single")}
    screen = lessons.RaceScreen(configs, {"psg": "groups of snapshots"})
    assert screen.words == "The race has not begun." and "groups of snapshots" in screen._cards.value
    assert "&lt;single&gt;" in screen._cards.value, "names are text, not markup"
    seen = []

    def show(race: Any) -> None:
        screen.show(race)
        seen.append(screen.words)

    race = lab.race(configs, seeds=(0, 1), on_change=show, progress=False)
    assert any("Training: psg, seed 0." in words for words in seen) and "2 done" in screen._cards.value
    lowest = race.table["validation_loss"].idxmin()
    assert f"and the lowest final loss {lowest}." in screen.words and "least memory" in screen.words
    figure = screen.figure(race)
    assert len([name for name in figure["layout"] if name.startswith("xaxis")]) == 4
    assert any("persistence" in note["text"] for note in figure["layout"]["annotations"])
    assert len([shape for shape in figure["layout"]["shapes"] if shape["line"]["dash"] == "dash"]) == 4
