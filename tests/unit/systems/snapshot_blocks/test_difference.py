"""The picture of what differences bring: what is drawn is what was counted, and says what to look for."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import pytest

from dtdg_lab.systems.snapshot_blocks.forecast_charts import difference_figure

PANELS = (
    "Bytes of all snapshots",
    "Time until all are usable",
    "How many times fewer bytes",
    "Snapshots that can be sent as a delta",
)


def _row(model: str, form: str, **more: Any) -> dict[str, Any]:
    row = {
        "model": model,
        "smoothing": "none",
        "form": form,
        "overlap": 0.9,
        "whole_bytes": 4 * 2**20,
        "difference_bytes": 2**20,
        "ratio": 4.0,
        "bound": 4.1,
        "reached": 4.0 / 4.1,
        "whole_s": 0.02,
        "difference_s": 0.01,
        "difference_copy_s": 0.004,
        "difference_unpack_s": 0.006,
        "time_ratio": 2.0,
        "worth_below": 3e8,
    }
    return row | more


ROWS = [_row(model, form) for model in ("cdgcn", "tmgcn") for form in ("csr32", "coo64")]
SHARES = [
    {
        "model": "cdgcn",
        "form": "csr32",
        "blocks": blocks,
        "ranks": ranks,
        "share": 1 - blocks * ranks / 32,
        "ratio": 2.0,
    }
    for blocks in (1, 4)
    for ranks in (1, 2, 4, 8)
]


def _words(figure: dict[str, Any]) -> str:
    return " ".join(note["text"].replace("<br>", " ") for note in figure["layout"]["annotations"])


def _traces(figure: dict[str, Any], panel: int) -> list[dict[str, Any]]:
    axis = "x" if panel == 0 else f"x{2 * panel + 1}"
    return [trace for trace in figure["data"] if trace["xaxis"] == axis]


def test_bars_are_what_was_counted() -> None:
    figure = difference_figure(ROWS, SHARES, title="Bringing a graph")
    go.Figure(figure)  # plotly takes every word of it
    assert figure["layout"]["title"]["text"] == "Bringing a graph"
    assert all(f"<b>{panel}</b>" in _words(figure) for panel in PANELS)
    names = ["CSR, whole", "CSR, difference", "pairs, whole", "pairs, difference"]
    size, seconds, ratio, share = (_traces(figure, panel) for panel in range(4))
    assert [trace["name"] for trace in size] == [trace["name"] for trace in seconds] == names
    assert [trace["y"] for trace in size] == [[4.0, 4.0], [1.0, 1.0]] * 2  # MiB
    assert [trace["text"] for trace in size] == ["", ["÷4", "÷4"]] * 2
    assert [trace["y"] for trace in seconds] == [[20.0, 20.0], [10.0, 10.0]] * 2  # ms
    assert [trace["y"] for trace in ratio] == [[4.0, 4.0], [4.1, 4.1]] * 2
    assert [trace["name"] for trace in share] == ["1 block", "4 blocks"]
    assert share[1]["x"] == [1, 2, 4, 8]
    assert share[1]["y"] == pytest.approx([87.5, 75.0, 50.0, 0.0])
    axes = [note["text"] for note in figure["layout"]["annotations"] if note.get("name") == "axis"]
    assert axes == ["bytes (MiB)", "time (ms)", "whole / difference (1)", "share of all snapshots"]


def test_words_say_what_was_found() -> None:
    words = _words(difference_figure(ROWS, SHARES, title="t"))
    assert "at most 4.00 times fewer bytes" in words
    assert "97.6% of it is reached" in words
    assert "faster for cdgcn (CSR int32, 2.00 times)" in words
    slower = [row | {"time_ratio": 0.5} for row in ROWS]
    words = _words(difference_figure(slower, SHARES, title="t"))
    assert "slower throughout" in words
    assert "60% is unpacking" in words
    assert "links slower than 0.3 GB/s" in words
    slower[0]["difference_s"] = 0.04
    assert _traces(difference_figure(slower, SHARES, title="t"), 1)[1]["text"] == ["×2", "÷2"]


def test_what_is_missing_is_said() -> None:
    untimed = [row | {"time_ratio": None, "whole_s": None} for row in ROWS]
    assert "no times were taken" in _words(difference_figure(untimed, SHARES, title="t"))
    empty = difference_figure([], [], title="t")
    go.Figure(empty)
    assert _words(empty).count("nothing was compared") == 2
    assert "no plans were given" in _words(empty)
