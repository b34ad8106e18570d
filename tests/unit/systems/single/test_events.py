"""Events of training in one process."""

from __future__ import annotations

import pytest

from dtdg_lab.core.errors import DataError
from dtdg_lab.systems.single.events import OverlapProfile, SnapshotTimes


def test_an_event_without_times_is_refused() -> None:
    with pytest.raises(DataError, match="no times"):
        SnapshotTimes.read({"first": 0, "seconds": []})
    with pytest.raises(DataError, match="lacks times"):
        OverlapProfile.read({"chosen": 1, "sizes": [1, 2], "seconds": [], "shares": []})
