"""Events of fetched features and of congestion."""

from __future__ import annotations

from typing import Any

import pytest

from dtdg_lab.core.errors import DataError
from dtdg_lab.systems.feature_cache.events import Congestion, FeatureFacts
from tests.feature_tables import congestion, features


@pytest.mark.parametrize("wrong", [{"parts": 0}, {"row_bytes": 0}, {"steps_per_epoch": 0}])
def test_impossible_facts_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="at least 1"):
        FeatureFacts.read(features(**wrong)["data"])


def test_congestion_is_of_owners_and_links() -> None:
    links = Congestion.read(congestion(0, {1: 20.0, 2: 5.0}, {2: 25.0})["data"])
    assert links.words == "one_slow: part 1 +20 ms, part 2 +5 ms at 25 Mbit/s"
    assert links.owner_delays_ms == (0.0, 20.0, 5.0, 0.0) and links.owner_mbit == (None, None, 25.0, None)
    assert links.slow_links == 6
    assert Congestion.read(congestion(0)["data"]).words == "one_slow: nothing is added to any link"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"pattern": "none", "delay_ms": [[0.0]]}, "'mbit'"),
        ({"pattern": "none", "delay_ms": [[0.0, 1.0]], "mbit": [[None]]}, "square"),
    ],
)
def test_damaged_congestion_is_refused(data: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        Congestion.read(data)
