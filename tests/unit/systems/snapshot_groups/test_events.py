"""The event of a schedule: its sentence, and damage."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.systems.snapshot_groups.events import ScheduleFacts
from tests.schedule_records import schedule_data

TIMES = [0.1, 0.2, 0.2, 0.1, 0.4]
ASSIGNMENT = [[[0, 1], [2]], [[3], [4]]]


def test_sizes_claim_no_seconds() -> None:
    assert "per epoch" not in ScheduleFacts.text(schedule_data(TIMES, ASSIGNMENT, source="size"))


def test_processor_seconds_are_scaled_to_the_wall_clock() -> None:
    facts = ScheduleFacts.read(schedule_data(TIMES, ASSIGNMENT, timed_by="processor"))
    assert facts.scale(2 * facts.times_s) == pytest.approx(2)
    assert facts.scale(np.full(5, np.nan)) == 1
    assert ScheduleFacts.read(schedule_data(TIMES, ASSIGNMENT)).scale(2 * facts.times_s) == 1
