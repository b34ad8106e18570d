"""The picture of volumes over ranks, and the sentence that names where one passes the other."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dtdg_lab.systems.snapshot_blocks.forecast_charts import crossing, volume_figure
from tests.drawing import checked_figure


def rows(snapshot: Any, hypergraph: Any, model: str = "tmgcn", ranks: Any = (4, 16, 64)) -> list[dict[str, Any]]:
    return [
        {"model": model, "ranks": count, "snapshot": ours, "hypergraph": theirs, "snapshot_as_paper": 2 * ours}
        for count, ours, theirs in zip(ranks, snapshot, hypergraph, strict=True)
    ]


PAPER_TMGCN = rows((5.2e9, 6.5e9, 6.8e9), (3.2e9, 6.8e9, 9.5e9))


@pytest.mark.parametrize(
    ("counted", "words"),
    [
        (PAPER_TMGCN, "hypergraph partition sends less on 4 ranks, snapshot partition on 16; .* near 13 ranks"),
        (PAPER_TMGCN[::-1], "hypergraph partition sends less on 4 ranks, snapshot partition on 16; .* near 13 ranks"),
        (rows((1, 4, 9), (2, 3, 4)), "snapshot partition sends less on 4 ranks, hypergraph partition on 16"),
        (rows((13.8, 17.3), (0.4, 0.9), "cdgcn", (4, 64)), "hypergraph .* on every number .* 0.029 on 4 and 0.052 on"),
        (rows((1,), (3,), ranks=(2,)), "snapshot partition sends less on every number of ranks; .* is 3 on 2"),
        (rows((0, 0), (1, 2), "evolvegcn-o", (4, 64)), "sends nothing between ranks but gradients"),
    ],
)  # -2.0 at 4 ranks and +0.3 at 16: they meet at 4 * 4 ** (2.0 / 2.3)
def test_the_crossing_is_named(counted: list[dict[str, Any]], words: str) -> None:
    assert re.search(words, crossing(counted)), crossing(counted)


def test_a_panel_for_each_model_has_its_own_unit() -> None:
    figure = checked_figure(volume_figure(PAPER_TMGCN + rows((0, 0, 0), (5e6, 7e6, 9e6), "evolvegcn-o")))
    assert len(figure["data"]) == 2 * 3
    assert figure["data"][0]["y"] == [5.2, 6.5, 6.8] and figure["data"][4]["y"] == [5, 7, 9]
    assert {trace["name"] for trace in figure["data"]} == {"snapshot", "hypergraph", "snapshot, paper's rule"}
    heads = [note["text"] for note in figure["layout"]["annotations"] if note["text"].startswith("<b>")]
    assert ["billion numbers sent in a step" in head for head in heads] == [True, False]
    assert ["million numbers sent in a step" in head for head in heads] == [False, True]


def test_nothing_counted_is_said() -> None:
    assert any(note["text"] == "nothing counted" for note in checked_figure(volume_figure([]))["layout"]["annotations"])
