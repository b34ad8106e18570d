"""Heat maps over K and alpha: cells by hand, seeds, what is to come, the tuner's path and the sentences."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import pytest

import dtdg_lab as lab
from dtdg_lab.systems.decayed_windows.decay_map import DecayMap, decay_map_figure, decay_map_panels, row_of
from dtdg_lab.systems.decayed_windows.study import MEANINGS, DecayStudy
from dtdg_lab.visualization.palette import TEXT_COLOUR

K, ALPHAS = (1, 2, 3), (0.1, 0.5)


def row(k: int, alpha: float, seed: int = 0, **more: Any) -> dict[str, Any]:
    """Memory doubles with K and grows by a half with alpha; the loss is least at K 2, alpha 0.5."""
    loss = 0.2 + 0.1 * abs(k - 2) + 0.01 * (alpha < 0.5) + 0.002 * seed
    peak = 1024.0 * 2**k * (1.5 if alpha > 0.1 else 1.0)
    return {
        "full_snapshots": k,
        "alpha": alpha,
        "seed": seed,
        "mse": loss,
        "peak_bytes": peak,
        "epoch_s": 0.5 * k,
    } | more


def whole(seeds: int = 1, **more: Any) -> DecayMap:
    rows = [row(k, alpha, seed) for k in K for alpha in ALPHAS for seed in range(seeds)]
    return DecayMap(rows, K, ALPHAS, seeds, **more)


def check(figure: dict[str, Any]) -> None:
    go.Figure(figure)  # refuses any attribute plotly does not know
    json.dumps(figure, allow_nan=False)
    assert figure["layout"]["title"]["text"]


def numbers(figure: dict[str, Any]) -> dict[tuple[int, int], str]:
    """Return the texts of cells; the title of the y axis is no cell."""
    notes = figure["layout"]["annotations"]
    return {(note["x"], note["y"]): note["text"] for note in notes if note.get("name") != "axis"}


def test_cells_by_hand() -> None:
    panels = decay_map_panels(whole())
    assert list(panels) == ["mse", "peak_bytes", "epoch_s"]
    for figure, words in panels.values():
        check(figure)
        assert words
    mse, memory, time = (figure for figure, _ in panels.values())
    assert mse["data"][0]["z"][1] == pytest.approx([0.3, 0.2, 0.3]), "alpha 0.5 is the upper row"
    assert memory["data"][0]["z"] == [[2.0, 4.0, 8.0], [3.0, 6.0, 12.0]], "in KiB"
    assert numbers(memory)[2, 1] == "12.0 KiB" and numbers(time)[0, 0] == "500 ms"
    assert mse["layout"]["xaxis"]["ticktext"] == ["1", "2", "3"]
    assert mse["layout"]["yaxis"]["ticktext"] == ["0.1", "0.5"]


def test_the_best_cell_is_outlined_and_named() -> None:
    figure, words = decay_map_panels(whole())["mse"]
    (shape,) = figure["layout"]["shapes"]
    assert (shape["x0"] + shape["x1"]) / 2 == 1 and (shape["y0"] + shape["y1"]) / 2 == 1
    assert words == "The lowest loss is 0.200 at K 2, alpha 0.5."


def test_seeds_give_a_mean_its_spread_and_cells_that_cannot_be_told_apart() -> None:
    figure, words = decay_map_panels(whole(3))["mse"]
    assert numbers(figure)[1, 1] == "0.202<br>± 0.002"
    assert words == "The lowest loss is 0.202 at K 2, alpha 0.5; no other cells are within its spread."
    near = DecayMap([*whole(3).rows, *(row(2, 0.9, seed, mse=0.203) for seed in range(3))], K, (*ALPHAS, 0.9), 3)
    assert "; 1 other cell is within its spread." in decay_map_panels(near)["mse"][1]
    assert "±" not in numbers(decay_map_panels(whole(3))["peak_bytes"][0])[1, 1], "memory is told as its mean"


def test_the_lowest_loss_is_compared_with_persistence() -> None:
    words = decay_map_panels(whole(baselines={"persistence": 0.4, "mean": 0.5}))["mse"][1]
    assert words == "The lowest loss is 0.200, 50% below persistence, at K 2, alpha 0.5."


def test_cells_to_come_are_empty_and_half_done_ones_say_so() -> None:
    shown = DecayMap([row(1, 0.1, 0), row(1, 0.1, 1), row(2, 0.1, 0)], K, ALPHAS, 2)
    figure, _ = decay_map_panels(shown)["mse"]
    check(figure)
    z = figure["data"][0]["z"]
    assert z[1] == [None, None, None] and z[0][2] is None and z[0][0] is not None
    assert numbers(figure)[1, 0].endswith("<br>1 of 2") and set(numbers(figure)) == {(0, 0), (1, 0)}
    assert decay_map_figure(shown)["layout"]["title"]["text"].endswith("2 of 6 cells")
    assert "cells" not in decay_map_figure(whole())["layout"]["title"]["text"]


def test_the_least_value_does_not_look_like_a_cell_to_come() -> None:
    trace = decay_map_panels(whole())["mse"][0]["data"][0]
    assert trace["zmin"] < min(min(each) for each in trace["z"])


@pytest.mark.parametrize("rows", [[], [row(1, 0.1)], [row(1, 0.1, mse=None, peak_bytes=None)], [row(1, 0.1, mse=0.0)]])
@pytest.mark.parametrize("axes", [((), ()), (K, ALPHAS)])
@pytest.mark.parametrize("path", [(), ((2, 0.1),), ((2, 0.1), (4, 0.7))])
def test_every_state_of_a_study_has_valid_pictures(rows: list[dict[str, Any]], axes: Any, path: Any) -> None:
    shown = DecayMap(rows, *axes, path=path)
    check(decay_map_figure(shown))
    for figure, words in decay_map_panels(shown).values():
        check(figure)
        assert words


def test_the_path_goes_from_a_circle_to_a_star_between_the_rows_it_has() -> None:
    figure, _ = decay_map_panels(whole(path=[(2, 0.1), (2, 0.3), (4, 0.3)]))["mse"]
    line, ends = figure["data"][1:]
    steps = [
        (two_x - one_x, two_y - one_y)
        for one_x, one_y, two_x, two_y in zip(line["x"], line["y"], line["x"][1:], line["y"][1:], strict=False)
    ]
    assert steps == [(0, pytest.approx(0.5)), (2, 0)], "alpha 0.3 lies half way from 0.1 to 0.5"
    assert ends["marker"]["symbol"] == ["circle", "star"] and ends["x"] == [line["x"][0], line["x"][-1]]
    assert figure["layout"]["xaxis"]["ticktext"] == ["1", "2", "3", "4"], "the map grows to where the path went"


def test_alphas_outside_the_map_stay_near_its_edge() -> None:
    assert [row_of(alpha, ALPHAS) for alpha in ALPHAS] == [0, 1]
    assert -0.5 < row_of(0.001, ALPHAS) < row_of(0.05, ALPHAS) < 0
    assert 1 < row_of(0.6, ALPHAS) < row_of(1.0, ALPHAS) < 1.5


def test_the_least_and_the_most_costly_cells_are_named() -> None:
    words = decay_map_panels(whole())["peak_bytes"][1]
    assert words == "A step needs 2.00 KiB at K 1, alpha 0.1, and 12.0 KiB at K 3, alpha 0.5."
    assert decay_map_panels(DecayMap([row(1, 0.1)]))["peak_bytes"][1] == "A step needs 2.00 KiB in every cell."


def test_a_large_map_has_a_legend_of_colours_instead_of_numbers() -> None:
    rows = [row(k, alpha / 10) for k in range(1, 9) for alpha in range(1, 11)]
    figure, _ = decay_map_panels(DecayMap(rows))["peak_bytes"]
    check(figure)
    assert not numbers(figure) and figure["data"][0]["colorbar"]["title"]["text"] == "KiB"


def test_numbers_on_dark_cells_are_white() -> None:
    figure, _ = decay_map_panels(whole())["peak_bytes"]
    colours = {(note["x"], note["y"]): note["font"]["color"] for note in figure["layout"]["annotations"]}
    assert colours[2, 1] == "white" and colours[0, 0] == TEXT_COLOUR


def test_a_study_is_plotted_as_it_is() -> None:
    rows = tuple(
        dict.fromkeys(MEANINGS)
        | {
            "full_snapshots": k,
            "alpha": 0.1,
            "seed": 0,
            "validation_loss": 0.1 * k,
            "peak_bytes": 2048.0 * k,
            "epoch_time_s": 0.5,
            "reason": "",
        }
        for k in (1, 2)
    )
    study = DecayStudy(rows, (1, 2), (0.1, 0.3), (0,), "regression", "tgcn on growing")
    drawn = lab.plot(study).to_json()
    assert "tgcn on growing \\u00b7 2 of 4 cells" in drawn or "tgcn on growing · 2 of 4 cells" in drawn
    assert "Validation mean squared error" in drawn and "The lowest loss is" in drawn
