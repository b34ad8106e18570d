"""Events of decayed windows: the shape of a window with what it predicts, and the chunks of the parts."""

from __future__ import annotations

from typing import Any

import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import DataError
from dtdg_lab.systems.decayed_windows.events import Shape, TrapezoidFacts
from tests.window_tables import CHUNKS, NODES, trapezoid_data

DATA = trapezoid_data(RunConfig(system="flaredtdg"))
LADDER = (1, 2, 3, 5, 8, 13)


def test_rows_and_bytes_of_a_shape_by_hand() -> None:
    facts, chunks = TrapezoidFacts.read(DATA), sum(LADDER) + 2 * CHUNKS
    assert facts.counts() == (*LADDER, CHUNKS, CHUNKS)
    assert facts.rows() == 5 * chunks and facts.full_rows == 8 * NODES
    assert facts.kept_share() == chunks / (8 * CHUNKS)
    assert facts.peak_bytes() == 1_000_000 + 1000.0 * 3 * chunks, "of the larger rank's rows"
    text = facts.changed({"full_snapshots": 3, "alpha": 0.5, "decay": "text"})
    assert text.counts() == (62, 72, 83, 96, 111, CHUNKS, CHUNKS, CHUNKS), "each floor(0.8706 times the newer)"


def test_more_full_snapshots_than_the_window_has_are_all_of_it() -> None:
    facts = TrapezoidFacts.read({**DATA, "window": 2})
    assert facts.counts() == facts.changed({"full_snapshots": 9}).counts() == (CHUNKS, CHUNKS)
    assert facts.kept_share() == 1.0


def test_other_settings_give_another_window() -> None:
    facts = TrapezoidFacts.read(DATA)
    changed = facts.changed({"alpha": 0.5, "window": 4, "learning_rate": 0.1})
    assert (changed.window, changed.shape) == (4, Shape(2, 0.5, "ladder"))
    assert facts.changed({"slow_rank": 1}).counts() == facts.counts()


def test_bytes_are_unknown_before_they_are_probed() -> None:
    assert TrapezoidFacts.read({**DATA, "base_bytes": None, "row_bytes": None}).peak_bytes() is None


@pytest.mark.parametrize(
    "wrong", [{"row_counts": [0, 640]}, {"nodes": 5}, {"window": 0}, {"decay": "other"}, {"full_snapshots": 0}], ids=str
)
def test_a_shape_that_does_not_fit_its_rows_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="another version"):
        TrapezoidFacts.read({**DATA, **wrong})
