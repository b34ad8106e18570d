"""The picture of volumes over ranks, and the sentence that names where one passes the other."""

from __future__ import annotations

import json

import plotly.graph_objects as go
import pytest

from dtdg_lab.systems.snapshot_blocks.forecast_charts import crossing, volume_figure


def rows(snapshot, hypergraph, model="tmgcn", ranks=(4, 16, 64)):
    return [
        {"model": model, "ranks": count, "snapshot": ours, "hypergraph": theirs, "snapshot_as_paper": 2 * ours}
        for count, ours, theirs in zip(ranks, snapshot, hypergraph, strict=True)
    ]


PAPER_TMGCN = rows((5.2e9, 6.5e9, 6.8e9), (3.2e9, 6.8e9, 9.5e9))


def axis_words(drawn: go.Figure) -> list[str]:
    return [note.text for note in drawn.layout.annotations if note.name == "axis"]


def test_where_one_passes_the_other():
    said = crossing(PAPER_TMGCN)
    assert said.startswith("tmgcn: hypergraph partition sends less on 4 ranks, snapshot partition on 16;")
    assert said.endswith("near 13 ranks.")  # -2.0 at 4, +0.3 at 16: 4 * 4 ** (2.0 / 2.3)
    turned = crossing(rows((1, 4, 9), (2, 3, 4)))
    assert "snapshot partition sends less on 4 ranks, hypergraph partition on 16" in turned
    assert crossing(list(reversed(PAPER_TMGCN))) == said


def test_where_none_passes():
    below = crossing(rows((13.8e9, 17.3e9, 18.1e9), (0.4e9, 0.9e9, 1.2e9), "cdgcn"))
    assert below == (
        "cdgcn: hypergraph partition sends less on every number of ranks; hypergraph over snapshot is 0.029 on 4 and "
        "0.0663 on 64."
    )
    above = crossing(rows((1,), (3,), ranks=(2,)))
    assert above.endswith("snapshot partition sends less on every number of ranks; hypergraph over snapshot is 3 on 2.")
    assert "sends nothing between ranks but gradients" in crossing(rows((0, 0, 0), (1, 2, 3), "evolvegcn-o"))


def test_a_panel_for_each_model_with_units_and_a_legend():
    shown = PAPER_TMGCN + rows((0, 0, 0), (5e6, 7e6, 9e6), "evolvegcn-o")
    figure = volume_figure(shown)
    json.dumps(figure)
    drawn = go.Figure(figure)
    assert len(drawn.data) == 2 * 3
    assert list(drawn.data[0].y) == [5.2, 6.5, 6.8] and list(drawn.data[4].y) == [5, 7, 9]
    assert axis_words(drawn) == ["billion numbers sent in a step", "million numbers sent in a step"]
    assert drawn.layout.xaxis.title.text == "ranks" and list(drawn.layout.xaxis.ticktext) == ["4", "16", "64"]
    assert {trace.name for trace in drawn.data} == {"snapshot", "hypergraph", "snapshot, paper's rule"}
    texts = " ".join(note.text.replace("<br>", " ") for note in drawn.layout.annotations)
    assert "tmgcn" in texts and "Look at where the full lines meet" in texts
    assert "Look at the orange line" in texts
    apart = volume_figure(rows((4, 5, 6), (1, 2, 3)))["layout"]["annotations"]
    assert any("Look at the gap" in note["text"].replace("<br>", " ") for note in apart)
    assert drawn.layout.title.text.startswith("Numbers sent in one step")


def test_one_number_of_ranks_and_nothing_at_all():
    assert len(go.Figure(volume_figure(rows((5,), (3,), ranks=(2,)))).data) == 3
    empty = go.Figure(volume_figure([]))
    assert any(note.text == "nothing counted" for note in empty.layout.annotations)


@pytest.mark.parametrize(("most", "unit"), [(999, "numbers"), (5e3, "thousand numbers"), (2e6, "million numbers")])
def test_unit_fits_the_largest(most, unit):
    drawn = go.Figure(volume_figure(rows((0, 0, 0), (1, 2, most))))
    assert axis_words(drawn) == [f"{unit} sent in a step"]
