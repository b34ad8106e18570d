from dtdg_lab.visualization.studies.ranks import ranks_chart


def test_systems_within_the_critical_difference_have_another_colour():
    figure, caption = ranks_chart({"esdg": 1.5, "psg": 2.0, "dynahb": 4.0}, 1.0, "Which system")
    names = {trace["name"]: trace["y"] for trace in figure["data"]}
    assert names == {"indistinguishable from the best": ["esdg", "psg"], "worse": ["dynahb"]}
    assert figure["data"][0]["error_x"]["array"] == [0.5, 0.5]
    assert caption == "esdg has the best mean rank; 1 of 2 others are indistinguishable."


def test_nothing_measured_says_so():
    assert ranks_chart({}, 0.0, "Which system")[1] == "Not all problems have been measured yet."
