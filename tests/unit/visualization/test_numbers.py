"""Numbers as people read them."""

from __future__ import annotations

import pytest

from dtdg_lab.visualization.numbers import seconds_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0697, "69.7 ms"),
        (0.9994, "999 ms"),
        (0.99999, "1.00 s"),
        (0.0009999, "1.00 ms"),
        (0.0005, "500 µs"),
        (3.2, "3.20 s"),
        (125, "2 min 5 s"),
        (None, "–"),
    ],
)
def test_a_time_that_rounds_to_the_next_unit_is_written_in_it(seconds: float | None, text: str) -> None:
    assert seconds_text(seconds) == text
