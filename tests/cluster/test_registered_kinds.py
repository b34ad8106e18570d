"""One registration of every kind, from modules outside the package, trains on one rank and on two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from outside_family.all_kinds import RUNS

TESTS = Path(__file__).resolve().parents[1]
BY_CLOCK = ("dynahb", "striped")  # of two ranks: averaged by the clock; other stripes per step


def trial(folder: Path, ranks: int) -> dict[str, Any]:
    """Train in a process of its own, since registrations stay."""
    paths = [str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")]
    places = {"PYTHONPATH": os.pathsep.join(paths), "DTDG_LAB_STATE": str(folder / f"state{ranks}")}
    process = subprocess.run(
        [sys.executable, "-m", "outside_family.all_kinds_trial", str(folder / f"runs{ranks}"), str(ranks)],
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    seen: dict[str, Any] = json.loads(process.stdout.strip().splitlines()[-1])
    return seen


def test_every_kind_trains_on_one_rank_and_on_two_alike(tmp_path: Path) -> None:
    here, on_engines = trial(tmp_path, 1), trial(tmp_path, 2)
    alike = [name for name, settings in RUNS.items() if settings["system"] not in BY_CLOCK]
    assert len(alike) == 7 and set(here["losses"]) == set(on_engines["losses"]) == set(RUNS)
    for name in alike:
        assert on_engines["losses"][name] == pytest.approx(here["losses"][name], rel=1e-5), name
    assert here["studies"] == {axis: ["finished"] * 2 for axis in ("scheduler", "task", "model", "partitioner")}
    assert here["raced"] == ["round_robin", "latest"]
