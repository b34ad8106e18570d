"""The event of a schedule: its sentence, and damage."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.systems.snapshot_groups.events import ScheduleFacts
from tests.schedule_records import schedule_data

TIMES = [0.1, 0.2, 0.2, 0.1, 0.4]
ASSIGNMENT = [[[0, 1], [2]], [[3], [4]]]


def test_the_sentence_has_the_numbers_of_the_schedule() -> None:
    data = schedule_data(TIMES, ASSIGNMENT, notes="Sampled", solve_s=0.25, psg_makespan_s=0.8, targets=3)
    assert ScheduleFacts.text(data) == (
        "fold, 5 groups on 2 ranks in 2 iterations: 700 ms per epoch, 40% above the bound, 12% less than round robin. "
        "Solved in 250 ms from measured times; DyGNeX-G tried 3 of 5 targets in each iteration. Sampled."
    )


def test_sizes_claim_no_seconds() -> None:
    assert "per epoch" not in ScheduleFacts.text(schedule_data(TIMES, ASSIGNMENT, source="size"))


def test_processor_seconds_are_scaled_to_the_wall_clock() -> None:
    facts = ScheduleFacts.read(schedule_data(TIMES, ASSIGNMENT, timed_by="processor"))
    assert facts.scale(2 * facts.times_s) == pytest.approx(2)
    assert facts.scale(np.full(5, np.nan)) == 1
    assert ScheduleFacts.read(schedule_data(TIMES, ASSIGNMENT)).scale(2 * facts.times_s) == 1
