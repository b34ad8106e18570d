"""All controllers of a cluster killed: training continues, the session says so, and a repair starts a new cluster."""

from __future__ import annotations

import time

import pytest

from dtdg_lab.cluster.session import Session
from dtdg_lab.cluster.session_files import left_after
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ClusterError, ControlError
from dtdg_lab.dashboard.app import Dashboard
from tests.dashboards import buttons, head, look, notice
from tests.following import goes_on, stop, until, until_step


def kill_controllers(session: Session) -> None:
    """Kill them, and wait until they are gone."""
    found = [p for p in session._files.processes() if any("controller" in word for word in p.cmdline())]
    assert found
    for process in found:
        process.kill()
    assert not left_after(found, 5.0)


def test_all_controllers_killed_are_noticed_and_repaired(session: Session, config: RunConfig) -> None:
    run = until_step(session.train(config.replace(epochs=100_000)), 5)
    name, runs = session.name, [each.path for each in session.runs]
    kill_controllers(session)
    until(lambda: bool(session.problem), timeout_s=10, what="the session notices")
    assert "controller" in session.problem and "repair()" in session.problem and not session.ready
    goes_on(run, 5)
    with pytest.raises(ControlError, match="is running"):
        session.repair()
    dashboard = Dashboard(session)
    try:
        look(dashboard)
        assert "controller" in notice(dashboard) and "run" not in buttons(dashboard)
        stop(run)
        look(dashboard)
        assert not buttons(dashboard)["run"] and ["Restart engines", "repair"] in head(dashboard)["menu"]
    finally:
        dashboard.close()
    for attempt in (lambda: session.train(config), lambda: run.resume(), lambda: Session.attach(session._files.id)):
        began_s = time.monotonic()
        with pytest.raises(ClusterError, match=f"the controller of session '{session.name}' is gone"):
            attempt()
        assert time.monotonic() - began_s < 10
    session.repair()
    assert session.ready and session.problem == ""
    assert session.name == name and [each.path for each in session.runs] == runs
    again = until_step(run.resume(), run.live.progress.step + 3)
    stop(again)
    assert again.status == "stopped"


@pytest.mark.slow
def test_a_run_that_starts_as_the_controllers_die_fails_with_the_reason(
    session: Session, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(type(session), "problem", "")  # they die just after the check
        kill_controllers(session)
        run = session.train(config)
    took_s = until(lambda: run.status == "failed", timeout_s=15, what="the failure is marked")
    assert took_s < 10 and "controller" in run.reason
    session.repair()
    assert session.ready
