"""Charts of hybrid batches beside the picture: sizes, staleness, sources, reservoir, values, rewards, regret."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import pytest

from dtdg_lab.config import catalogue
from dtdg_lab.records.tables import RunTables
from dtdg_lab.systems.hybrid_batches.batch_picture import PICTURE
from dtdg_lab.systems.hybrid_batches.controller_charts import REGRET, REWARDS, VALUES
from dtdg_lab.systems.hybrid_batches.reservoir_charts import RESERVOIR, SOURCES
from dtdg_lab.systems.hybrid_batches.size_charts import SIZES
from dtdg_lab.systems.hybrid_batches.staleness_chart import STALENESS
from dtdg_lab.visualization.chart import NOTHING_YET, Chart, ChartOptions
from tests.hybrid_tables import (
    MIDDLE,
    averaged,
    batch,
    controlled_plan,
    decision,
    hybrid_run,
    level,
    plan,
    planned,
    steps,
)

NOW = ChartOptions()
CHARTS = catalogue.family("hybrid_batches").charts()


def drawn(chart: Chart, tables: RunTables, options: ChartOptions = NOW) -> dict[str, Any]:
    figure = chart.figure(tables, options)
    go.Figure(figure)  # refuses attributes that plotly does not know
    json.dumps(figure, allow_nan=False)
    return figure


def traces(figure: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in figure["data"]}


def note(figure: dict[str, Any]) -> str:
    return str(figure["layout"]["annotations"][-1]["text"])


# sizes


def test_sizes_are_squares_where_they_were_best_and_crosses_where_the_controller_explored() -> None:
    made = [decision(0, 0), decision(1, 8, greedy=False), decision(2, MIDDLE)]
    figure = drawn(SIZES, hybrid_run(controlled_plan(), {"steps": steps(20), "decisions": made}))
    best, exploring = traces(figure)["best value"], traces(figure)["exploring"]
    assert (best["marker"]["symbol"], exploring["marker"]["symbol"]) == ("square", "x")
    assert best["x"] == [0.05, 0.15] and exploring["x"] == [0.1], "steps of ranks are their own, so the axis is time"
    axis = figure["layout"]["yaxis"]
    assert best["customdata"][1] == "20% × 5%" and best["y"][1] == 4
    assert axis["tickvals"] == [0, 2, 4, 6, 8] and axis["ticktext"][2] == "20% × 5% ", (
        "each second of nine has its name"
    )


def test_ranks_that_step_together_have_an_axis_of_steps() -> None:
    data = controlled_plan(exchange="gradients")
    tables = hybrid_run(data, {"steps": steps(20), "decisions": [decision(0), decision(1)]})
    assert traces(drawn(SIZES, tables))["best value"]["x"] == [5, 10]
    assert traces(drawn(SIZES, tables, ChartOptions(x="seconds")))["best value"]["x"] == [0.05, 0.1]


def test_stretches_without_a_controller_are_lines() -> None:
    larger = planned(plan(shares=[(0.5, 0.1)]), step=12)
    tables = hybrid_run(plan(), {"steps": steps(20)}, events=[larger])
    lines = drawn(SIZES, tables)["data"]
    assert [line["x"] for line in lines] == [[0.0, 12.0], [12.0, 19.0]]
    assert [line["y"] for line in lines] == [[0, 0], [1, 1]]
    assert SIZES.caption(tables, NOW) == "The batch size is 50% × 10%; no controller changes it."


def test_decisions_keep_the_names_of_the_sizes_they_chose_among() -> None:
    few = planned(controlled_plan(shares=[(0.5, 0.5), (1.0, 1.0)], choice=0), step=11)
    made = [decision(0, 0), decision(2, 0), decision(3, 1)]
    figure = drawn(SIZES, hybrid_run(controlled_plan(), {"steps": steps(30), "decisions": made}, events=[few]))
    assert traces(figure)["best value"]["customdata"] == ["10% × 1%", "50% × 50%", "100% × 100%"]


def test_the_caption_tells_which_size_was_chosen_most_often() -> None:
    made = [decision(number, 8 if number < 30 else number % 2 * MIDDLE) for number in range(51)]
    tables = hybrid_run(controlled_plan(), {"steps": steps(300), "decisions": made})
    assert SIZES.caption(tables, NOW) == "The controller chose 10% × 1% in 10 of its last 20 decisions."


def test_long_runs_have_few_points_up_to_the_newest_decision() -> None:
    made = [decision(number) for number in range(3_001)]
    tables = hybrid_run(controlled_plan(), {"steps": steps(60), "decisions": made})
    x = traces(drawn(SIZES, tables))["best value"]["customdata"]
    assert len(x) <= 500 and len(traces(drawn(VALUES, tables))["20% × 5%"]["x"]) <= 300


def test_decisions_of_other_controllers_are_left_out() -> None:
    other = {"step": 5, "policy": "greedy", "state": {"alpha": 0.5}, "values": [1.0], "action": {"alpha": 0.6}}
    tables = hybrid_run(controlled_plan(), {"steps": steps(20), "decisions": [other]})
    assert SIZES.caption(tables, NOW) == NOTHING_YET and not drawn(SIZES, tables)["data"]


# staleness


def test_staleness_is_a_line_a_rank() -> None:
    rows = [averaged(number, rank, staleness=1 + rank) for number in range(1, 8) for rank in (0, 1)]
    rows += [averaged(8, 1, weight=0.0, gathered=True), averaged(0, 0)]
    tables = hybrid_run(controlled_plan(), {"steps": steps(80), "rounds": rows})
    lines = traces(drawn(STALENESS, tables))
    assert lines["rank 1"]["y"] == [2.0] * 7 and lines["rank 0"]["x"][0] == 0.1, "not of a rank that had finished"
    assert STALENESS.caption(tables, NOW) == "Averaged models were 1.0 steps stale on rank 0 and 2.0 on rank 1."


def test_of_many_ranks_staleness_is_a_band() -> None:
    rows = [averaged(number, rank, staleness=1 + rank) for number in range(1, 4) for rank in range(8)]
    tables = hybrid_run(controlled_plan(), {"steps": steps(40, ranks=8), "rounds": rows}, ranks=8)
    lines = traces(drawn(STALENESS, tables))
    assert lines["least"]["y"] == [1.0] * 3 and lines["most"]["y"] == [8.0] * 3 and lines["mean"]["y"] == [4.5] * 3
    assert STALENESS.caption(tables, NOW) == "Averaged models were 1.0 to 8.0 steps stale on 8 ranks."


def test_thousands_of_rounds_are_means() -> None:
    rows = [averaged(number, staleness=1 + number % 2) for number in range(1, 1_001)]
    ends = [{"step": step} for step in range(0, 10_001, 10)]
    tables = hybrid_run(controlled_plan(), {"steps": ends, "rounds": rows}, ranks=1)
    line = traces(drawn(STALENESS, tables))["rank 0"]
    assert 280 < len(line["x"]) <= 300 and sum(line["y"]) / len(line["y"]) == pytest.approx(1.5, abs=0.01)


def test_only_averaged_models_have_staleness() -> None:
    assert STALENESS.applies(hybrid_run(controlled_plan())) and not STALENESS.applies(hybrid_run(plan()))


# sources and reservoir


def test_sources_are_shares_of_the_batches() -> None:
    rows = [batch(step, part, source="reservoir" if step % 2 else "new") for step in range(10) for part in (0, 1)]
    rows += [batch(10, part, source="snapshot") for part in (0, 1)]
    tables = hybrid_run(controlled_plan(exchange="gradients"), {"steps": steps(11), "targets": rows})
    bars = traces(drawn(SOURCES, tables))
    assert bars["from the reservoir"]["y"] == [0.0, 100.0] * 5 + [0.0]
    assert bars["all nodes of its snapshots"]["y"][-1] == 100.0
    assert SOURCES.caption(tables, NOW) == "45% of batches came from the reservoir."


def test_of_many_steps_the_newest_are_drawn_in_bars_of_several() -> None:
    rows = [batch(step, source="reservoir" if step < 500 else "new") for step in range(1_000)]
    tables = hybrid_run(
        controlled_plan(exchange="gradients"), {"steps": steps(1_000, ranks=1), "targets": rows}, ranks=1
    )
    assert list(traces(drawn(SOURCES, tables))) == ["built in the step"]
    whole = traces(drawn(SOURCES, tables, ChartOptions(whole_run=True)))
    assert len(whole["from the reservoir"]["x"]) == 60 and whole["from the reservoir"]["y"][0] == 100.0


def test_batches_of_ranks_with_their_own_steps_are_placed_in_time() -> None:
    slow = [{"rank": 1, "step": step, "time_ns": 1_700_000_000_000_000_000 + (step + 1) * 10**9} for step in range(3)]
    rows = [batch(step, source="new") for step in range(10)] + [batch(2, 1, source="reservoir")]
    tables = hybrid_run(controlled_plan(), {"steps": [*steps(10, ranks=1), *slow], "targets": rows})
    assert traces(drawn(SOURCES, tables))["from the reservoir"]["y"][-1] == 100.0, "step 2 of rank 1 was the last"


def test_without_a_reservoir_every_batch_is_built() -> None:
    tables = hybrid_run(plan(), {"steps": steps(1), "targets": [batch(0)]})
    assert SOURCES.caption(tables, NOW) == "Every batch was built in its step."
    assert not RESERVOIR.applies(tables) and RESERVOIR.applies(hybrid_run(controlled_plan()))


def test_the_reservoir_is_filled_by_size_in_all_parts_together() -> None:
    rows = [level(at, part, action) for at in range(5) for part in (0, 1) for action in (0, MIDDLE)]
    rows += [level(5, 0, MIDDLE)]
    tables = hybrid_run(controlled_plan(), {"steps": steps(5), "reservoir": rows})
    lines = traces(drawn(RESERVOIR, tables))
    assert lines["20% × 5%"]["y"] == [0.0, 12.5, 25.0, 37.5, 50.0, 56.2], "of part 1, what it told before"
    assert lines["20% × 5%"]["line"]["width"] > lines["10% × 1%"]["line"]["width"], "the size in use"
    assert RESERVOIR.caption(tables, NOW) == "The reservoir holds 9 of 16 batches of 20% × 5%."


def test_levels_begin_when_every_part_has_told_its_own() -> None:
    rows = [level(at, 0, MIDDLE) for at in range(4)] + [level(2, 1, MIDDLE)]
    line = traces(drawn(RESERVOIR, hybrid_run(controlled_plan(), {"steps": steps(5), "reservoir": rows})))["20% × 5%"]
    assert line["x"] == [1.0, 1.5] and line["y"] == [25.0, 31.2]


# values, rewards, regret


def test_values_of_sizes_have_a_colour_for_snapshots_and_dashes_for_nodes() -> None:
    made = [decision(number) for number in range(4)]
    tables = hybrid_run(controlled_plan(), {"steps": steps(30), "decisions": made})
    lines = traces(drawn(VALUES, tables))
    looks = {name: line["line"] for name, line in lines.items()}
    assert len({look["color"] for look in looks.values()}) == len({look["dash"] for look in looks.values()}) == 3
    assert looks["10% × 5%"]["dash"] == looks["30% × 5%"]["dash"] == "dash"
    assert ["5% of nodes", "#5B5F66", "dash"] in drawn(VALUES, tables)["layout"]["meta"]["card"]["keys"]
    assert VALUES.caption(tables, NOW) == "20% × 5% had the highest value, 0.0600, in the decision at 0.2 s."


def test_the_best_value_is_the_same_in_the_grid_of_sizes_and_over_time() -> None:
    newest = decision(9, values=[0.2 if number == 7 else 0.19 if number else None for number in range(9)])
    tables = hybrid_run(controlled_plan(), {"decisions": [*(decision(number, 0) for number in range(9)), newest]})
    grid = traces(drawn(PICTURE, tables))["sizes"]["z"]
    assert grid[1][2] == max(map(max, grid)) == 0.2, "the size without a value was chosen nine times"
    assert VALUES.caption(tables, NOW) == "30% × 5% had the highest value, 0.200, in the decision at step 50."


def test_a_controller_without_values_says_so() -> None:
    made = [decision(0, policy="random", values=[None] * 9)]
    tables = hybrid_run(controlled_plan(batch_policy="random"), {"steps": steps(30), "decisions": made})
    assert note(drawn(VALUES, tables)) == "This controller estimates no values"
    assert VALUES.caption(tables, NOW) == "This controller estimates no values."


def test_values_rewards_and_regret_stay_after_the_size_is_fixed() -> None:
    made = [decision(number) for number in range(5)]
    fixed = planned(plan(reservoir=True, exchange="models"), step=30)
    tables = hybrid_run(controlled_plan(), {"steps": steps(60), "decisions": made}, events=[fixed])
    assert len(traces(drawn(VALUES, tables))) == 9 and drawn(REWARDS, tables)["data"] and drawn(REGRET, tables)["data"]
    assert VALUES.caption(tables, NOW) == "20% × 5% had the highest value, 0.0600, in the decision at 0.2 s."


def test_the_picture_and_the_values_name_the_same_decision() -> None:
    tables = hybrid_run(controlled_plan(), {"steps": steps(60), "decisions": [decision(4)]})
    assert "Value at 0.2 s, times chosen (last 50)" in json.dumps(drawn(PICTURE, tables), ensure_ascii=False)
    assert VALUES.caption(tables, NOW).endswith("in the decision at 0.2 s.")


def test_levels_of_the_sizes_before_a_fixed_one_stay() -> None:
    before = [level(at, part, action) for at in range(5) for part in (0, 1) for action in (0, MIDDLE)]
    after = [level(at, part, 0) for at in range(5, 8) for part in (0, 1)]
    fixed = planned(plan(reservoir=True, exchange="models"), step=30, time_ns=1_700_000_000_000_000_000 + 2_400_000_000)
    tables = hybrid_run(controlled_plan(), {"steps": steps(5), "reservoir": before + after}, events=[fixed])
    lines = traces(drawn(RESERVOIR, tables))
    assert lines["10% × 1%"]["y"] == [0.0, 12.5, 25.0, 37.5, 50.0], "size 0 of the controller is another than size 0"
    assert lines["20% × 5%"]["y"] == [0.0, 12.5, 25.0, 37.5, 50.0, None, 62.5, 75.0, 87.5]
    assert RESERVOIR.caption(tables, NOW) == "The reservoir holds 14 of 16 batches of 20% × 5%."


def test_decisions_of_an_earlier_controller_are_not_of_this_one() -> None:
    made = [*(decision(number, policy="bandit") for number in range(5)), decision(5), decision(6)]
    tables = hybrid_run(controlled_plan(), {"steps": steps(40), "decisions": made})
    assert len(traces(drawn(REWARDS, tables))["each"]["x"]) == 1


def test_rewards_have_a_mean_of_the_newest_twenty() -> None:
    made = [decision(number, reward=None if number == 0 else float(number > 20)) for number in range(31)]
    tables = hybrid_run(controlled_plan(), {"steps": steps(200), "decisions": made})
    figure = traces(drawn(REWARDS, tables))
    assert figure["each"]["y"] == [0.0] * 20 + [1.0] * 10 and figure["mean of 20"]["y"][-1] == 0.5
    assert REWARDS.caption(tables, NOW) == "The last 20 rewards average 0.500."


def test_regret_is_what_the_best_size_earned_more() -> None:
    """Size 4 earns 0.2 three times, then size 1 earns 0.1; a decision has the reward of the size before."""
    actions, rewards = [4, 4, 4, 1, 1, 1], [None, 0.2, 0.2, 0.2, 0.1, 0.1]
    made = [
        decision(number, *both[:1], reward=both[1]) for number, both in enumerate(zip(actions, rewards, strict=True))
    ]
    tables = hybrid_run(controlled_plan(), {"steps": steps(40), "decisions": made})
    assert traces(drawn(REGRET, tables))["against always 20% × 5%"]["y"] == pytest.approx([0, 0, 0, 0.1, 0.2])
    assert REGRET.caption(tables, NOW) == "Regret has grown by 0.200 over the last 5 decisions."


def test_regret_falls_where_another_size_earned_more_than_the_best_of_those_tried_often() -> None:
    actions, rewards = [4, 4, 4, 1], [None, 0.2, 0.2, 0.2]
    made = [
        decision(number, action, reward=reward)
        for number, (action, reward) in enumerate(zip(actions, rewards, strict=True))
    ]
    made.append(decision(4, 1, reward=0.9))
    tables = hybrid_run(controlled_plan(), {"steps": steps(40), "decisions": made})
    assert REGRET.caption(tables, NOW) == "Regret has fallen by 0.700 over the last 4 decisions."


def test_no_size_is_called_the_best_before_it_was_rewarded_three_times() -> None:
    tables = hybrid_run(controlled_plan(), {"steps": steps(40), "decisions": [decision(0), decision(1), decision(2)]})
    assert note(drawn(REGRET, tables)) == "Appears when a size was rewarded three times"


# all charts


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_a_chart_without_data_has_its_axes_and_says_when_it_fills(chart: Chart) -> None:
    for tables in (hybrid_run(None), hybrid_run(controlled_plan())):
        figure, caption = drawn(chart, tables), chart.caption(tables, NOW)
        assert figure["layout"]["meta"]["card"]["title"] == chart.title
        assert figure["data"] or "Appears" in note(figure)
        assert caption.endswith(".") and len(caption.split()) <= 20


def test_applied_changes_are_numbered_in_charts_over_time() -> None:
    changes = {"version": 1, "changes": {"average_every_s": 1.0}, "when": "step", "own_steps": True}
    events = [{"kind": "settings", "rank": rank, "step": 10 + rank, "data": changes} for rank in (0, 1)]
    rows = [averaged(number, rank) for number in range(1, 4) for rank in (0, 1)]
    tables = hybrid_run(controlled_plan(), {"steps": steps(40), "rounds": rows}, events=events)
    assert [each["text"] for each in drawn(STALENESS, tables)["layout"]["annotations"]] == ["1"]


def test_names_of_charts_are_unique_and_one_is_the_picture() -> None:
    assert len({chart.name for chart in CHARTS}) == len(CHARTS)
    places = [chart.section for chart in CHARTS]
    assert (places.count("picture"), places.count("supporting"), places.count("folded")) == (1, 2, 5)
