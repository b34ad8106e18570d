"""The event of hybrid batches: in words, by its sizes, and damaged."""

from __future__ import annotations

from typing import Any

import pytest

from dtdg_lab.core.errors import DataError
from dtdg_lab.runs.event_rows import event_rows
from dtdg_lab.systems.hybrid_batches.events import HybridFacts, amount_text
from tests.hybrid_tables import plan


def test_a_size_is_named_as_it_was_given() -> None:
    assert HybridFacts.read(plan(shares=[(3, 0.005)])).size.name == "3 × 0.5%"
    assert HybridFacts.read(plan(shares=[(1.0, 0.05)])).name(0) == "100% × 5%"
    assert HybridFacts.read(plan()).name(7) == "size 7"
    assert [amount_text(value) for value in (1 / 3, 0.125, 2)] == ["33.3%", "12.5%", "2"]


@pytest.mark.parametrize(
    "wrong", [{"choice": 1}, {"snapshots": 3}, {"candidates": [5, 4]}, {"sizes": [[0, 1, 1]]}, {"candidates": []}]
)
def test_facts_that_do_not_fit_each_other_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="do not fit"):
        HybridFacts.read({**plan(), **wrong})


def test_changes_that_ranks_receive_at_steps_of_their_own_are_said_with_them() -> None:
    data = {"version": 1, "changes": {"average_every_s": 1.0}, "when": "step", "own_steps": True}
    times = {"epoch": 0, "time_ns": 1_700_000_000_000_000_000, "attempt": 1}
    rows = [{"rank": rank, "step": 12 + rank, "kind": "settings", "data": data, **times} for rank in (0, 1)]
    assert [row[1] for row in event_rows(rows)] == ["rank 0 at 12, rank 1 at 13"]
    waited = {"wait_s": 1.5, "bytes_sent": 9, "bytes_received": 9}
    gathered = {"rank": 1, "step": 20, "kind": "gathered", "data": waited, **times}
    assert "waited 1.5 s for the other ranks" in event_rows([gathered])[0][4]
