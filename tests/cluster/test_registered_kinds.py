"""One registration of every kind, from modules outside the package, trains on one rank and on two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from outside_family.all_kinds import RUNS

from tests.children import TESTS, run_python

BY_CLOCK = ("dynahb", "striped")  # of two ranks: averaged by the clock; other stripes per step


def trial(folder: Path, ranks: int) -> dict[str, Any]:
    """Train in a process of its own, since registrations stay."""
    folder = folder / str(ranks)
    folder.mkdir()
    printed = run_python("-m", "outside_family.all_kinds_trial", "runs", str(ranks), folder=folder, paths=[TESTS])
    seen: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return seen


def test_every_kind_trains_on_one_rank_and_on_two_alike(tmp_path: Path) -> None:
    here, on_engines = trial(tmp_path, 1), trial(tmp_path, 2)
    alike = [name for name, settings in RUNS.items() if settings["system"] not in BY_CLOCK]
    assert len(alike) == 7 and set(here["losses"]) == set(on_engines["losses"]) == set(RUNS)
    for name in alike:
        assert on_engines["losses"][name] == pytest.approx(here["losses"][name], rel=1e-5), name
    assert here["studies"] == {axis: ["finished"] * 2 for axis in ("scheduler", "task", "model", "partitioner")}
    assert here["raced"] == ["round_robin", "latest"]
