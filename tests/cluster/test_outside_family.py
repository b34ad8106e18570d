"""A family of systems from outside the package is added by one call, and everything reaches it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.children import TESTS, run_python


def test_a_family_from_outside_is_trained_steered_drawn_resumed_and_raced(tmp_path: Path) -> None:
    printed = run_python("-m", "outside_family.trial", tmp_path, folder=tmp_path, paths=[TESTS])
    found = json.loads(printed.splitlines()[-1])
    assert found["cards"][-1] == "Striped" and found["pictures"] == ["stripes"]
    assert found["charts"] == ["loss", "step_time", "energy", "timeline", "energy_by_phase"]
    assert found["caption"] == "3 stripes of 4 snapshots, shifted by 2." and found["bars"] > 0
    assert "stripe_shift=9 is beyond stripe_width=4 less one." in found["refused"]
    assert found["resumed_to"] >= found["stopped_at"] + 20
    assert found["raced"] == {"striped": 4, "psg": 4}
    assert found["events"] == [0, 2]
    assert found["columns"][-3:] == ["stripe", "shift", "work_s"]
    assert found["report"] and "stripes of snapshots in random order" in found["described"]
