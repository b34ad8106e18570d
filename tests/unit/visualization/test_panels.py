"""Grids of panels."""

from __future__ import annotations

from dtdg_lab.visualization.layout import frame
from dtdg_lab.visualization.panels import grid


def test_a_wide_panel_has_a_row_to_itself() -> None:
    panels = [
        ({"data": [{"type": "bar", "x": [1], "y": [1]}], "layout": frame(str(i), "x", "y")}, "") for i in range(5)
    ]
    layout = grid(panels, title="", wide={1})["layout"]
    domains = [layout[f"xaxis{number}"]["domain"] for number in ("", "3", "5", "7", "9")]
    assert [round(end - start, 2) for start, end in domains] == [0.44, 1.0, 0.44, 0.44, 0.44]
    tops = [round(layout[f"yaxis{number}"]["domain"][1], 2) for number in ("", "3", "5", "7", "9")]
    assert tops[0] > tops[1] > tops[2] == tops[3] > tops[4]
