"""What studies look like: maps that fill in, lines with spreads, the course of a search, parallel coordinates."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from dtdg_lab.visualization.studies.search import (
    MOST_LINES,
    MapNames,
    StudyCell,
    Way,
    study_course,
    study_line,
    study_map,
    study_parallel,
)

NAMES = MapNames("s: validation_loss", "K", "alpha", "validation_loss")


def cells() -> list[StudyCell]:
    return [
        StudyCell(1, 0.1, (1.0, 3.0, 2.0), 3, run_texts=("seed 0: 1", "seed 1: 3", "seed 2: 2"), key="a"),
        StudyCell(2, 0.1, (0.5, 0.7, 0.6), 3, key="b"),
        StudyCell(1, 0.6, (4.0,), 3, {"failed": 2}, key="c"),
        StudyCell(2, 0.6, (), 3, {"pruned": 3}, ("seed 0: pruned",), key="d"),
        StudyCell(10, 0.1, (), 3),
        StudyCell(10, 0.6, (), 3, {"running": 1}, key="e"),
    ]


def test_a_map_has_medians_grey_cells_marks_and_keys_for_clicks() -> None:
    figure, words = study_map(cells(), NAMES)
    go.Figure(figure)
    heat = figure["data"][0]
    assert figure["layout"]["xaxis"]["ticktext"] == ["1", "2", "10"], "numbers are in order of size"
    assert heat["z"] == [[2.0, 0.6, None], [4.0, None, None]]
    assert [[cell[1] for cell in row] for row in heat["customdata"]] == [["a", "b", ""], ["c", "d", "e"]]
    assert "median 2, 1 to 3" in heat["customdata"][0][0][0] and "seed 1: 3" in heat["customdata"][0][0][0]
    assert figure["layout"]["plot_bgcolor"] != "white" and figure["layout"]["meta"]["clickable"]
    marks = {trace["name"]: trace for trace in figure["data"][1:]}
    assert list(marks) == ["failed", "ended early", "under way"]
    assert (marks["ended early"]["x"], marks["ended early"]["y"]) == ([1], [1]), "alone in its cell, in its middle"
    assert marks["failed"]["x"][0] > 0 and marks["failed"]["customdata"][0][1] == "c"
    [best] = figure["layout"]["shapes"]
    assert (best["x0"], best["y0"]) == (0.52, -0.48)
    assert [note["text"] for note in figure["layout"]["annotations"]] == ["2", "0.6", "4<br>1 of 3"]
    assert "0.6 at K 2, alpha 0.1, the median of 3 runs; the runs of no other cells overlap" in words
    assert "3 of 6 cells are not done (grey)." in words


def test_the_most_can_be_the_best_and_few_runs_are_no_best() -> None:
    named = MapNames("s", "K", "alpha", "hit_rate", least_is_best=False, pooled=("seed",))
    figure, words = study_map(cells(), named)
    assert figure["layout"]["shapes"][0]["x0"] == -0.48 and words.startswith("Highest hit_rate (outlined): 2 at K 1")
    assert "median over seed too" in words


@pytest.mark.parametrize("given", [[], [StudyCell("a", "b")]])
def test_an_empty_map_is_drawn_and_says_so(given: list[StudyCell]) -> None:
    figure, words = study_map(given, NAMES)
    go.Figure(figure)
    assert "no run" in words.lower() or "Nothing" in words


def test_a_wide_map_has_a_legend_of_colours_instead_of_numbers() -> None:
    figure, _ = study_map([StudyCell(n, 0, (float(n),)) for n in range(30)], NAMES)
    assert figure["data"][0]["showscale"] and not figure["layout"]["annotations"]


def test_a_line_has_medians_and_spreads_and_marks_what_has_none() -> None:
    given = [StudyCell(x, "", values, key=str(x)) for x, values in ((1e-4, (3.0, 5.0)), (1e-2, (1.0, 1.2, 1.4)))]
    figure, words = study_line([*given, StudyCell(1e-1, "", (), 3, {"failed": 3}, ("seed 0: failed",), "f")], NAMES)
    go.Figure(figure)
    line, failed, best = figure["data"]
    assert (line["x"], line["y"]) == ([1e-4, 1e-2], [4.0, 1.2]) and figure["layout"]["xaxis"]["type"] == "log"
    assert line["error_y"]["array"] == pytest.approx([1.0, 0.2]) == line["error_y"]["arrayminus"]
    assert failed["name"] == "failed" and failed["x"] == [1e-1] and best["x"] == [1e-2]
    assert words == (
        "Lowest median: 1.2 at K 0.01. Whiskers reach from the least to the most seed; those of no other values "
        "overlap with its."
    )
    named, _ = study_line([StudyCell(name, "", (1.0,)) for name in ("psg", "blad")], NAMES)
    assert named["layout"]["xaxis"]["ticktext"] == ["psg", "blad"] and named["data"][0]["mode"] == "markers"
    assert "no run" in study_line([], NAMES)[1].lower()


def test_the_course_of_a_search_keeps_the_best_so_far() -> None:
    given = [StudyCell(n, "", (value,), key=str(n)) for n, value in enumerate((3.0, 1.0, 2.0, 0.5, 0.9))]
    figure, words = study_course([*given[::-1], StudyCell(5, "", (), 1, {"pruned": 1})], NAMES)
    go.Figure(figure)
    assert figure["data"][1]["y"] == [3.0, 1.0, 1.0, 0.5, 0.5] and figure["data"][2]["name"] == "ended early"
    assert words == "Best so far 0.5, found by trial 3; 1 have ended since without a better one."
    assert "no run" in study_course([], NAMES)[1].lower()


def test_parallel_coordinates_draw_the_best_last_and_darkest() -> None:
    ways = [
        Way((system, rate), value, key=str(value))
        for system, rate, value in (("psg", 1e-4, 2.0), ("blad", 1e-1, 1.0), ("psg", 1e-2, 3.0))
    ]
    figure, words = study_parallel(ways, ("system", "learning_rate"), "validation_loss", title="s")
    go.Figure(figure)
    assert [trace["customdata"][0][1] for trace in figure["data"]] == ["3.0", "2.0", "1.0"]
    best = figure["data"][-1]
    assert best["line"]["color"] == "#08306B" and best["y"] == pytest.approx([1, 1, 0]), "psg 0, blad 1; log axis"
    assert figure["data"][0]["y"] == pytest.approx([0, 2 / 3, 1])
    assert "the best (thick) 1 at system blad, learning_rate 0.1" in words
    many = [Way((n / 1000,), float(n)) for n in range(MOST_LINES + 50)]
    figure, words = study_parallel(many, ("alpha",), "skill", title="s", least=False)
    assert len(figure["data"]) == MOST_LINES and "of 250 are drawn" in words
    assert "no run" in study_parallel([], ("alpha",), "skill", title="s")[1].lower()
