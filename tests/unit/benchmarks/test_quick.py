"""Rows of quick benchmarks are marked only where all that was measured lies beyond all that is stored."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
HERE = {"processor": "a processor", "cores": 2, "loop_ms": 1.0}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("quick")
    for name in ("quick", "result_files"):
        sys.modules.pop(name, None)


def spread(least: float, median: float, most: float, **unit: str) -> dict[str, Any]:
    return {"min": least, "median": median, "max": most, **unit}


@pytest.mark.parametrize(
    ("what", "stored", "now", "fell"),
    [
        ("ratio", spread(7.7, 9.0, 9.9), spread(5.0, 6.0, 7.0), True),
        ("ratio", spread(7.7, 9.0, 9.9), spread(5.0, 6.0, 7.8), False),  # the intervals meet
        ("ratio", spread(8.9, 9.0, 9.1), spread(8.0, 8.1, 8.2), False),  # 10 % are less than the 15 that count
        ("ratio", spread(5.0, 6.0, 7.0), spread(7.7, 9.0, 9.9), False),  # better
        ("epoch_s", spread(1.0, 1.1, 1.2, unit="s"), spread(1.3, 1.4, 1.5, unit="s"), True),
        ("epoch_s", spread(1.0, 1.1, 1.4, unit="s"), spread(1.3, 1.4, 1.5, unit="s"), False),
        ("epoch_s", spread(1.0, 1.0, 1.0, unit="s"), spread(1.3, 1.4, 1.5, unit="s"), False),  # measured once
        ("epoch_s", spread(1.0, 1.1, 1.2, unit="s"), {"median": 1.4, "unit": "s"}, False),
        ("held_bytes", {"median": 100, "unit": "bytes"}, {"median": 120, "unit": "bytes"}, True),
    ],
)
def test_a_mark_needs_intervals_that_are_apart(
    quick: Any, tmp_path: Path, what: str, stored: dict[str, Any], now: dict[str, Any], fell: bool
) -> None:
    of = {"commit": "abc", "date": "2026-11-28", "machine": HERE}
    of["rows"] = [{"case": {"graph": "W0"}, "measured": {what: stored}}]
    (tmp_path / "models.json").write_text(json.dumps({"rows": of}))
    rows = [{"case": {"graph": "W0"}, "measured": {what: now}}]
    (compared,) = quick.compare("models", "rows", rows, HERE, tmp_path)
    assert compared.fell == fell
    assert ("<-- FELL" in quick.table([compared])) == fell
