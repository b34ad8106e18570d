"""The picture of hybrid batches: batches of the parts, visits, sizes, and its edge cases."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import pytest

from dtdg_lab.records.tables import RunTables
from dtdg_lab.runs.charts import charts_of
from dtdg_lab.systems.hybrid_batches.batch_picture import PICTURE, SHOWN_PARTS
from dtdg_lab.visualization.chart import ChartOptions
from tests.hybrid_tables import (
    CANDIDATES,
    FIRST,
    GRID,
    MIDDLE,
    SNAPSHOTS,
    batch,
    controlled_plan,
    decision,
    hybrid_run,
    plan,
    planned,
    steps,
)

NOW = ChartOptions()
BLUE, PURPLE = "#0072B2", "#4B2A7B"


def drawn(tables: RunTables, options: ChartOptions = NOW) -> dict[str, Any]:
    figure = PICTURE.figure(tables, options)
    go.Figure(figure)  # refuses attributes that plotly does not know
    json.dumps(figure, allow_nan=False)
    return figure


def outlines(figure: dict[str, Any], colour: str = BLUE, axis: str = "x") -> list[tuple[float, float]]:
    """Return the first and the last snapshot of each box."""
    shapes = [shape for shape in figure["layout"]["shapes"] if shape["xref"] == axis]
    return [
        (round(each["x0"] + 0.5, 3), round(each["x1"] - 0.5, 3))
        for each in shapes
        if each["line"].get("color") == colour
    ]


def texts(figure: dict[str, Any], axis: str = "x") -> list[str]:
    return [note["text"] for note in figure["layout"]["annotations"] if note["xref"] == axis]


def trace(figure: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in figure["data"] if each["name"] == name)


def trained(data: dict[str, Any], rows: list[dict[str, Any]], **more: Any) -> RunTables:
    return hybrid_run(data, {"steps": steps(10), "targets": rows, **more})


def test_each_part_has_a_box_over_the_snapshots_of_its_newest_batch() -> None:
    rows = [batch(0), batch(1, first=7), batch(0, 1, first=10, snapshots=2), batch(1, 1, first=12)]
    figure = drawn(trained(plan(), rows))
    assert outlines(figure) == [(7, 10), (12, 15)]
    assert "<b>part 1 now</b><br>4 snapshots<br>12 of 200 nodes" in texts(figure)
    assert figure["layout"]["meta"]["card"]["title"] == "What a step trains", "parts may be at different steps"


def test_rows_of_a_box_are_the_shares_of_its_nodes() -> None:
    (row,) = [batch(0, map=[2, 0, *[1] * 10, *[0] * 48])]
    shares = [share for (share,) in trace(drawn(trained(plan(), [row])), "part 0")["z"]]
    assert shares[:3] == [0.5, None, 0.25], "four candidates in each sixtieth of 240"


def test_a_part_of_few_nodes_fills_its_field() -> None:
    data = plan(candidates=[240, 7], sizes=[[4, 1, 12]])
    figure = drawn(trained(data, [batch(0), batch(0, 1, targets=1, map=[1, *[0] * 59])]))
    y = trace(figure, "part 1")["y"]
    assert len(trace(figure, "part 1")["z"]) == 7 and y[-1] - y[0] == 60


def test_grey_is_the_visits_per_node_in_the_newest_hundred_batches() -> None:
    rows = [
        batch(step, first=FIRST + 10 * (step == 149), snapshots=1, targets=240, map=[4] * 60) for step in range(150)
    ]
    visits = trace(drawn(hybrid_run(plan(), {"steps": steps(150), "targets": rows})), "visits")
    first_part = visits["z"][0]
    assert (first_part[0], first_part[10]) == (99.0, 1.0) and first_part[1] == 0.0
    assert len(first_part) == SNAPSHOTS and visits["x"][0] == FIRST - 0.5


def test_batches_without_counts_are_spread_over_all_nodes() -> None:
    visits = trace(drawn(trained(plan(), [batch(0, first=FIRST, snapshots=1, targets=24, map=None)])), "visits")
    assert {row[0] for row in visits["z"][:20]} == {0.1}


def test_a_batch_with_counts_is_shown_until_a_newer_one_has_them() -> None:
    rows = [batch(0, first=7), batch(1, first=9, map=None)]
    assert outlines(drawn(trained(plan(), rows)))[0] == (7, 10)


def test_a_new_size_leaves_the_picture_filled() -> None:
    """A rank's own steps may be fewer than those of rank 0, whose step the new plan has."""
    rows = [batch(5), batch(2, 1, first=12)]
    larger = planned(plan(shares=[(0.5, 0.1)]), step=6)
    tables = hybrid_run(plan(), {"steps": steps(6), "targets": rows}, events=[larger])
    figure = drawn(tables)
    assert outlines(figure) == [(5, 8), (12, 15)]
    assert all(trace(figure, "visits")["z"][row][column] for row, column in ((0, 2), (21, 9)))
    assert PICTURE.caption(tables, NOW) == "Each part trains 20–24 of 200–240 nodes in 10 of 20 snapshots."


def test_a_batch_that_the_step_built_is_hatched() -> None:
    rows = [batch(0, source="new"), batch(0, 1, source="reservoir")]
    figure = drawn(trained(controlled_plan(), rows))
    hatched = [each for each in figure["data"] if each["name"] == "built in the step"]
    assert [each["fillpattern"]["shape"] for each in hatched] == ["/"] and max(hatched[0]["y"]) == 60
    assert ["built in the step", BLUE, "hatch"] in figure["layout"]["meta"]["card"]["keys"]
    without = drawn(trained(plan(), rows))
    assert "built in the step" not in json.dumps(without), "there is no reservoir"


def test_all_nodes_of_the_snapshots_stand_in_for_a_batch() -> None:
    row = batch(0, source="snapshot", targets=240, map=[4] * 60)
    assert "240 of 240 nodes<br>in place of a batch" in " ".join(texts(drawn(trained(controlled_plan(), [row]))))


def test_sizes_have_their_values_and_how_often_they_were_chosen() -> None:
    made = [decision(number, number % 2) for number in range(60)] + [decision(60, MIDDLE)]
    figure = drawn(hybrid_run(controlled_plan(), {"steps": steps(310), "targets": [batch(0)], "decisions": made}))
    notes = texts(figure, "x2")
    assert notes[0] == "<b>0</b><br>24×" and "<b>0.0600</b><br>1×" in notes and len(notes) == len(GRID)
    assert outlines(figure, axis="x2") == [(1.02, 0.98)], "the size in the middle of the grid is the one in use"
    assert figure["layout"]["xaxis2"]["ticktext"] == ["10%", "20%", "30%"]
    assert not figure["layout"]["meta"]["clickable"], "the controller chooses"


def test_a_controller_without_values_colours_sizes_by_its_choices() -> None:
    made = [decision(number, 0, policy="random", values=[None] * 9) for number in range(3)]
    data = controlled_plan(batch_policy="random")
    figure = drawn(hybrid_run(data, {"steps": steps(20), "targets": [batch(0)], "decisions": made}))
    assert texts(figure, "x2")[0] == "3×" and trace(figure, "sizes")["z"][0] == [3.0, 0.0, 0.0]


def test_more_than_sixteen_sizes_are_a_list_of_the_best_with_the_one_in_use() -> None:
    shares = [(round(0.05 * a, 2), round(0.01 * b, 2)) for a in range(1, 7) for b in range(1, 5)]
    made = [decision(0, 0, values=[float(place) for place in range(24)])]
    tables = {"steps": steps(20), "targets": [batch(0)], "decisions": made}
    figure = drawn(hybrid_run(controlled_plan(shares=shares), tables))
    names = figure["layout"]["yaxis2"]["ticktext"]
    assert len(names) == 8 and names[-1] == "30% × 4% " and names[0] == "5% × 1% "
    assert outlines(figure, axis="x2") == [(0.02, -0.02)]


def test_without_a_controller_a_click_requests_a_size() -> None:
    figure = drawn(trained(plan(shares=[(1.0, 0.05)]), [batch(0, snapshots=20, first=FIRST)]))
    assert figure["layout"]["meta"]["clickable"]
    assert figure["layout"]["xaxis2"]["ticktext"] == ["10%", "20%", "30%", "100%"]
    assert trace(figure, "sizes")["customdata"][2][1] == {"batch_snapshots": 0.2, "batch_nodes": 0.1}
    assert trace(figure, "sizes")["hoverinfo"] == "none", "plotly fires no clicks on what it skips"
    assert [note for note in texts(figure, "x2") if note] == ["<b>now</b>"]


def test_whole_numbers_stand_after_shares() -> None:
    figure = drawn(trained(plan(shares=[(3, 12)]), [batch(0)]))
    assert figure["layout"]["xaxis2"]["ticktext"][-1] == "3" and figure["layout"]["yaxis2"]["ticktext"][-1] == "12"


def test_before_the_first_batch_boxes_have_the_planned_size() -> None:
    tables = hybrid_run(controlled_plan())
    figure = drawn(tables)
    assert [last - first + 1 for first, last in outlines(figure)] == [4, 4]
    assert "visits" not in [each["name"] for each in figure["data"]]
    assert PICTURE.caption(tables, NOW) == "Each part will train 10–12 of 200–240 nodes in 4 of 20 snapshots."


def test_before_a_run_boxes_follow_from_the_settings() -> None:
    tables = hybrid_run(None)
    figure = drawn(tables)
    assert len(outlines(figure)) == 2 and not figure["layout"]["xaxis"]["showticklabels"]
    assert "20% of the snapshots<br>5% of its nodes" in " ".join(texts(figure))
    assert PICTURE.caption(tables, NOW).startswith("With these settings, a batch takes 5% of a part's nodes in 20%")
    proposed, fixed = ChartOptions(preview={"batch_snapshots": 0.5}), hybrid_run(None, batch_policy="none")
    assert outlines(drawn(fixed, proposed))[0] == (25, 74)
    assert PICTURE.caption(tables, proposed).endswith("in 30% of the snapshots."), "the controller's nearest size"


def test_a_proposed_size_is_outlined_in_every_part() -> None:
    tables = trained(plan(), [batch(0), batch(0, 1, first=19)])
    proposed = ChartOptions(preview={"batch_snapshots": 0.5})
    figure = drawn(tables, proposed)
    assert outlines(figure, PURPLE) == [(5, 14), (13, 22)], "the box of part 1 stays in the field"
    assert texts(figure)[-1].endswith("Release to apply, Esc to cancel")
    assert PICTURE.caption(tables, proposed) == (
        "With 50% × 5%, each part would train 10–12 of 200–240 nodes in 10 of 20 snapshots."
    )
    too_many = ChartOptions(preview={"batch_snapshots": 50.0})
    assert outlines(drawn(tables, too_many), PURPLE) == [], "such a request is refused"
    other = ChartOptions(preview={"learning_rate": 0.1})
    assert drawn(tables, other) == drawn(tables)


def test_a_controller_would_use_the_nearest_of_its_sizes() -> None:
    proposed = ChartOptions(preview={"batch_nodes": 0.2})
    caption = PICTURE.caption(trained(controlled_plan(), [batch(0)]), proposed)
    assert caption.startswith("With 20% × 10%, each part would train 20–24 of")


def test_of_many_parts_the_busiest_and_the_idlest_are_drawn() -> None:
    data = plan(candidates=[240] * 64)
    rows = [batch(0, part, rank=0, edges=part) for part in range(64)]
    figure = drawn(hybrid_run(data, {"steps": steps(1, ranks=1), "targets": rows}, ranks=1, parts=64))
    assert figure["layout"]["yaxis"]["ticktext"] == [f"part {part} " for part in (63, 62, 61, 60, 3, 2, 1, 0)]
    assert len(outlines(figure)) == SHOWN_PARTS
    assert any(note["text"] == "56 more" for note in figure["layout"]["annotations"])


def test_of_many_snapshots_visits_are_binned() -> None:
    data = plan(snapshots=900, sizes=[[4, 10, 12]])
    rows = [batch(0, first=FIRST, snapshots=9, targets=240, map=[4] * 60)]
    visits = trace(drawn(trained(data, rows)), "visits")
    assert len(visits["z"][0]) == 200 and visits["z"][0][:3] == [1.0, 1.0, 0.0]
    assert sum(len(row) for row in visits["z"]) <= 24_000


def test_batches_of_other_data_are_left_out() -> None:
    tables = trained(plan(), [batch(0, first=1), batch(0, 5), batch(1, 1)])
    assert outlines(drawn(tables))[1] == (5, 8)
    assert PICTURE.caption(tables, NOW) == "Each part trains 10–12 of 200–240 nodes in 4 of 20 snapshots."


def test_the_caption_names_the_batch_and_the_size_that_the_controller_chose_for_it_or_since() -> None:
    tables = trained(controlled_plan(), [batch(0, action=8)], decisions=[decision(0, 8)])
    amounts = f"12 of {CANDIDATES[0]} nodes in 4 of 20 snapshots"
    assert PICTURE.caption(tables, NOW) == f"Part 0 trains {amounts}, as the controller chose: 30% × 10%."
    tables = trained(controlled_plan(), [batch(0)], decisions=[decision(0, 8)])
    assert PICTURE.caption(tables, NOW) == f"Part 0 trained {amounts}; the controller since chose 30% × 10%."


def test_the_caption_warns_of_a_fixed_size_with_few_batches() -> None:
    data = plan(reservoir=True, capacities=[[40, 3]])
    caption = PICTURE.caption(trained(data, [batch(0)]), NOW)
    assert caption == "Part 1 has only 3 distinct batches of this size, so training repeats them."


@pytest.mark.parametrize("system", ["dynahb", "dbov", "dbos", "bvr"])
def test_every_system_of_the_family_has_this_picture_alone(system: str) -> None:
    charts = charts_of(hybrid_run(None, system=system))
    assert [chart.name for chart in charts if chart.section == "picture"] == ["batch"]


def test_a_run_of_full_batches_has_another_picture() -> None:
    assert "batch" not in [chart.name for chart in charts_of(hybrid_run(None, system="pygt-dist"))]
