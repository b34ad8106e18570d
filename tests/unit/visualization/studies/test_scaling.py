"""Steps over ranks as a figure, and the sentences on them."""

from __future__ import annotations

import json

import plotly.graph_objects as go

from dtdg_lab.visualization.studies.scaling import scaling_caption, scaling_figure


def row(ranks, source, compute, communicate, transfer, speedup, fitted=False):
    parts = {"compute_s": compute, "communicate_s": communicate, "transfer_s": transfer}
    known = {"model": "tmgcn", "ranks": ranks, "source": source, "fitted": fitted, "nodes": 100, "edges": 300}
    return {**known, **parts, "step_s": sum(filter(None, parts.values())), "speedup": speedup}


def error(part, value, fitted=False, ranks=2):
    known = {"name": "100 nodes", "ranks": ranks, "fitted": fitted, "part": part}
    return {**known, "measured_s": 0.1, "predicted_s": 0.1 * (1 + value), "error": value}


ROWS = [
    row(1, "predicted", 0.08, 0.0, 0.02, 1.0),
    row(1, "measured", 0.09, 0.0, 0.02, 1.0),
    row(2, "predicted", 0.04, 0.01, 0.01, 1.67),
    row(2, "own time", 0.05, None, 0.01, None),
    row(128, "predicted", 0.001, 0.008, 0.001, 10.0),
]
ERRORS = [error("compute", 0.1), error("communicate", -0.3), error("sum", 0.2), error("sum", -0.05, fitted=True)]


def test_words_name_the_most_ranks_and_the_error():
    said = scaling_caption(ROWS, ERRORS, weak=False)
    assert said == (
        "tmgcn, where the graph stays: 10 times the edges a second on 128 ranks, where 80% of the time is "
        "communicate. Predictions of 1 held-out step were off by 20% (median) and 20% (most); by part, median: "
        "compute 10%, communicate 30%."
    )
    assert "the graph grows" in scaling_caption(ROWS, ERRORS, weak=True)
    fitted = scaling_caption(ROWS, [each for each in ERRORS if each["fitted"]], weak=False)
    assert "1 fitted step" in fitted and "none was held out" in fitted
    assert scaling_caption(ROWS, [], weak=False).endswith("No measured step says how far predictions are off.")
    assert scaling_caption([], [], weak=False) == "Nothing was predicted."


def test_three_panels_with_titles_units_and_the_paper():
    figure = scaling_figure(ROWS, ERRORS, weak=False, paper=30.0, title="tmgcn")
    json.dumps(figure)
    drawn = go.Figure(figure)
    texts = " ".join(note.text.replace("<br>", " ") for note in drawn.layout.annotations)
    for described in (
        "Time of a step by its parts",
        "Speed-up over one rank",
        "Predicted against measured",
        "Look for which colour stops shrinking",
        "The star is the paper's, 30",
    ):
        assert described in texts, described
    named = {trace.name: trace for trace in drawn.data}
    assert list(named["communicate"].y) == [0, 10, 8]
    assert list(named["communicate"].x) == ["1", "2", "128"]
    assert list(named["measured, no exchanges"].y) == [60]
    assert list(named["predicted"].y) == [1, 1.67, 10] and list(named["ideal"].y) == [1, 2, 128]
    assert list(named["paper, 128 GPUs"].y) == [30]
    assert list(named["measured"].y) in ([110], [1.0])
    held = {trace.marker.symbol: trace for trace in drawn.data if trace.name == "held out"}
    assert list(held["circle"].y) == [110] and list(held["diamond"].y) == [70]
    assert sum(trace.showlegend is not False for trace in held.values()) == 1
    assert drawn.layout.barmode == "stack" and "time (ms)" in texts
    assert drawn.layout.xaxis3.type == "log" and "predicted (ms)" in texts


def test_nothing_measured_or_predicted_says_so():
    texts = [note["text"] for note in scaling_figure([], [], weak=True)["layout"]["annotations"]]
    assert texts.count("nothing was predicted") == 2 and "nothing measured" in texts
    grown = scaling_figure(ROWS, [], weak=True, paper=125.0)["layout"]["annotations"]
    texts = " ".join(note["text"].replace("<br>", " ") for note in grown)
    assert "bars of equal height" in texts and "this model's" in texts
