from dtdg_lab.visualization.studies.claims import HIGHEST, LOWEST, ClaimEffect, claims_chart

BETTER = ClaimEffect("Table 6: less error", "holds", 0.8, 0.5, 1.1, {"collegemsg": 0.3, "mathoverflow": 9.0})
WORSE = ClaimEffect("Table 4: sooner", "does not hold here", -5.0, None, None, {})


def test_each_verdict_has_its_colour_and_each_claim_its_row():
    figure, caption = claims_chart([BETTER, WORSE], "Effects")
    traces = {trace["name"]: trace for trace in figure["data"]}
    assert list(traces) == ["one comparison", "holds", "does not hold here"]
    assert traces["holds"]["y"] == ["Table 6: less error"]
    assert figure["layout"]["yaxis"]["categoryarray"] == ["Table 6: less error", "Table 4: sooner"]
    assert caption == "Of 2 measured effects, 1 holds, 1 does not hold here."


def test_an_effect_beyond_the_axis_is_at_its_edge_and_its_number_in_the_hover():
    figure, _ = claims_chart([BETTER, WORSE], "Effects")
    traces = {trace["name"]: trace for trace in figure["data"]}
    assert traces["does not hold here"]["x"] == [LOWEST]
    assert traces["does not hold here"]["customdata"] == [-5.0]
    assert max(traces["one comparison"]["x"]) == HIGHEST


def test_an_interval_is_drawn_from_end_to_end():
    figure, _ = claims_chart([BETTER], "Effects")
    bar = figure["data"][-1]["error_x"]
    assert (round(bar["arrayminus"][0], 6), round(bar["array"][0], 6)) == (0.3, 0.3)


def test_nothing_measured_says_so():
    assert claims_chart([], "Effects")[1] == "No claim has been measured yet."
