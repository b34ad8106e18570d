"""The picture of what differences bring: bars are what was counted, and words name what was found."""

from __future__ import annotations

from typing import Any

import pytest

from dtdg_lab.systems.snapshot_blocks.forecast_charts import difference_figure
from tests.drawing import checked_figure

COUNTED = {"smoothing": "none", "overlap": 0.9, "whole_bytes": 4 * 2**20, "difference_bytes": 2**20, "ratio": 4.0}
COUNTED |= {"bound": 4.1, "reached": 4.0 / 4.1, "worth_below": 3e8}
TIMED = {"whole_s": 0.02, "difference_s": 0.01, "difference_copy_s": 0.004, "difference_unpack_s": 0.006}
ROWS = [
    {"model": model, "form": form, **COUNTED, **TIMED, "time_ratio": 2.0}
    for model in ("cdgcn", "tmgcn")
    for form in ("csr32", "coo64")
]
SHARES = [
    {"model": "cdgcn", "form": "csr32", "blocks": blocks, "ranks": ranks, "share": 1 - blocks * ranks / 32, "ratio": 2}
    for blocks in (1, 4)
    for ranks in (1, 2, 4, 8)
]


def drawn(rows: list[dict[str, Any]], shares: list[dict[str, Any]]) -> tuple[list[list[dict[str, Any]]], str]:
    """Return the traces of the four panels, and all words."""
    figure = checked_figure(difference_figure(rows, shares, title="Bringing a graph"))
    panels = [[trace for trace in figure["data"] if trace["xaxis"] == axis] for axis in ("x", "x2", "x3", "x4")]
    return panels, " ".join(note["text"].replace("<br>", " ") for note in figure["layout"]["annotations"])


def test_bars_are_what_was_counted() -> None:
    (size, seconds, ratio, share), _ = drawn(ROWS, SHARES)
    assert [trace["name"] for trace in size] == ["CSR, whole", "CSR, difference", "pairs, whole", "pairs, difference"]
    assert [trace["y"] for trace in size] == [[4.0, 4.0], [1.0, 1.0]] * 2, "in MiB"
    assert [trace["y"] for trace in seconds] == [[20.0, 20.0], [10.0, 10.0]] * 2, "in ms"
    assert [trace["y"] for trace in ratio] == [[4.0, 4.0], [4.1, 4.1]] * 2
    assert [trace["name"] for trace in share] == ["1 block", "4 blocks"]
    assert share[1]["x"] == [1, 2, 4, 8] and share[1]["y"] == pytest.approx([87.5, 75.0, 50.0, 0.0])


@pytest.mark.parametrize(
    ("rows", "shares", "words"),
    [
        (ROWS, SHARES, ("at most 4.00 times fewer bytes", "97.6% of it", "faster for cdgcn (CSR int32, 2.00 times)")),
        ([row | {"time_ratio": 0.5} for row in ROWS], SHARES, ("slower throughout", "60% is unpacking", "0.3 GB/s")),
        ([row | {"time_ratio": None, "whole_s": None} for row in ROWS], SHARES, ("no times were taken",)),
        ([], [], ("nothing was compared", "no plans were given")),
    ],
)
def test_words_say_what_was_found(
    rows: list[dict[str, Any]], shares: list[dict[str, Any]], words: tuple[str, ...]
) -> None:
    _, text = drawn(rows, shares)
    assert [part for part in words if part not in text] == []
