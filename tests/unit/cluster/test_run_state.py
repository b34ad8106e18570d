"""The state of a run as a handle follows it: settings, refusals and states, by status.json and events."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtdg_lab.cluster.run_state import RunState
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.records.events import Paused, Refused, Resumed, SettingsChanged
from dtdg_lab.runs.directory import RunDirectory

CONFIG = RunConfig(system="psg", dataset="growing", ranks=2)


@pytest.fixture
def state(tmp_path: Path) -> RunState:
    directory = RunDirectory.create(CONFIG, root=tmp_path)
    directory.write_status("running", attempt=1)
    return RunState(directory, CONFIG)


def change(state: RunState, version: int, **changes: float) -> None:
    state.note_event(SettingsChanged.kind, SettingsChanged(version, changes, "step").write())


def test_changes_apply_until_a_resume_undoes_them(state: RunState) -> None:
    change(state, 1, learning_rate=0.1)
    assert state.config.learning_rate == 0.1
    state.note_event(Resumed.kind, Resumed(settings={}, changes={}, iteration=0, data_checked=True).write())
    assert state.config == CONFIG


def test_a_refusal_is_the_reason_until_a_later_change_applies(state: RunState) -> None:
    state.note_event(Refused.kind, Refused(2, {"learning_rate": 5.0}, "it is too large").write())
    assert "learning_rate=5.0 was refused" in state.reason and "it is too large" in state.reason
    change(state, 1, learning_rate=0.1)
    assert state.reason
    change(state, 3, learning_rate=0.2)
    assert not state.reason


def test_events_decide_the_state_of_a_running_run_alone(state: RunState) -> None:
    state.note_event(Paused.kind, {})
    assert state.status == "paused"
    state.fail("lost")
    assert (state.status, state.reason, state.has_ended) == ("failed", "lost", True)
