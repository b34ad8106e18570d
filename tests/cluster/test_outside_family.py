"""A family of systems from outside the package is added by one call, and everything reaches it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_a_family_from_outside_is_trained_steered_drawn_resumed_and_raced(tmp_path: Path) -> None:
    paths = [str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "outside_family.trial", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "DTDG_LAB_STATE": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )  # by itself: what is registered stays registered
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["cards"][-1] == "Striped" and found["pictures"] == ["stripes"]
    assert found["charts"] == ["loss", "step_time", "energy", "timeline", "energy_by_phase"]
    assert found["caption"] == "3 stripes of 4 snapshots, shifted by 2." and found["bars"] > 0
    assert "stripe_shift=9 is beyond stripe_width=4 less one." in found["refused"]
    assert found["resumed_to"] >= found["stopped_at"] + 20
    assert found["raced"] == {"striped": 4, "psg": 4}
    assert found["events"] == [0, 2]
    assert found["columns"][-3:] == ["stripe", "shift", "work_s"]
    assert found["report"] and "stripes of snapshots in random order" in found["described"]
