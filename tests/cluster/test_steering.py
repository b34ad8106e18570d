"""Auditable steering on two engines: who asked for which change, what was refused, and functions as controllers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dtdg_lab.cluster.replay import replay
from dtdg_lab.cluster.session import Session
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, UnknownNameError
from dtdg_lab.runs.stored_run import open_run
from dtdg_lab.visualization.changes.log import ENDED_FIRST
from tests.following import pause, stop, until, until_step

PAGE = (Path(__file__).parents[2] / "docs" / "steering.md").read_text(encoding="utf-8")


@pytest.fixture
def small(config: RunConfig) -> RunConfig:
    """A run that lasts until it is stopped."""
    return config.replace(generated_nodes=60, generated_edges=240, slow_rank=0, slow_ms=5.0)


def log(requests: pd.DataFrame) -> list[tuple[Any, ...]]:
    return [(number, row.who, row.setting, row.new, row.outcome) for number, row in requests.iterrows()]


def test_a_log_names_who_asked_what_and_the_outcome(session: Session, small: RunConfig) -> None:
    run = until_step(session.train(small), 2)
    run.set(learning_rate=0.05, by="sweep.py")
    assert log(run.requests())[0][:4] == (1, "sweep.py", "learning_rate", 0.05), "the log has it at once"
    pause(run)
    for changes, words in (({"learning_rate": -1.0}, "learning_rate"), ({"hidden": 4}, "cannot change during a run")):
        with pytest.raises(ConfigError, match=words):
            run.set(**changes, by="sweep.py")
    until(lambda: len(run.requests()) == 3, what="refusals recorded while the run is paused")
    run.unpause()
    until_step(run, run.live.progress.step + 2)
    pause(run)
    run.set(group_window=3, by="sweep.py")
    stop(run)
    with pytest.raises(ConfigError, match="by="):
        run.set(learning_rate=0.1, by="")
    requests = run.requests()
    assert log(requests)[:3] == [
        (1, "sweep.py", "learning_rate", 0.05, "applied"),
        (2, "sweep.py", "learning_rate", -1.0, "refused"),
        (3, "sweep.py", "hidden", 4, "refused"),
    ]
    assert requests.old.tolist()[:3] == [0.01, 0.05, 8] and "cannot change during a run" in requests.reason[3]
    assert (requests.setting[4], requests.outcome[4]) == ("group_window", "not applied")
    assert requests.reason[4] == ENDED_FIRST
    pd.testing.assert_frame_equal(open_run(run.path).requests(), requests)
    again = replay(run.path, session=session).requests()
    assert log(again)[0] == (1, "replay of sweep.py", "learning_rate", 0.05, "applied")
    assert "refused" not in set(again.outcome)


def test_the_controller_of_the_docs_steers_a_run(session: Session, small: RunConfig) -> None:
    (code,) = re.findall(r"^# Steering.*?```python\n(.*?)```", PAGE, re.M | re.S)
    code = code.replace("run.wait()", "steered(run)").replace("session.train(config)", "session.train(small)")

    def steered(run: Any) -> None:
        until(lambda: (run.requests().outcome == "applied").sum() >= 2, what="changes of the controller")
        stop(run)

    names: dict[str, Any] = {"session": session, "small": small.replace(evaluate_every=1), "steered": steered}
    names |= {"lab": __import__("dtdg_lab")}
    exec(compile(code, "docs/steering.md", "exec"), names)
    requests = names["run"].requests()
    assert set(requests.who) == {"follow_loss.py"} and set(requests.setting) == {"learning_rate"}
    losses = names["losses"]
    assert set(requests.new) <= {0.02 * min(1, loss / losses[0]) for loss in losses}


def test_an_error_of_a_controller_is_shown_and_ends_only_the_controller(
    session: Session, small: RunConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    def divide(rows: pd.DataFrame) -> dict[str, Any]:
        return {"learning_rate": 1 / 0}

    run = session.train(small)
    with pytest.raises(UnknownNameError, match="evaluations"):
        run.control(divide, table="evaluation")
    controller = run.control(divide, table="steps")
    with pytest.raises(ZeroDivisionError):
        controller.wait(60)
    assert "ZeroDivisionError" in capsys.readouterr().err and "failed: division by zero" in repr(controller)
    refused = run.control(lambda rows: {"learning_rate": -1.0}, table="steps", by="too_much")
    with pytest.raises(ConfigError, match="learning_rate"):
        refused.wait(60)
    until_step(run, run.live.progress.step + 3)
    assert run.status == "running"
    until(lambda: len(run.requests()) == 1, what="the refusal in the log")
    assert log(run.requests()) == [(1, "too_much", "learning_rate", -1.0, "refused")]
    seen: list[int] = []
    watching = run.control(lambda rows: seen.extend(rows.step), table="steps")
    until_step(run, run.live.progress.step + 3)
    stop(run)
    watching.wait(60)
    assert set(seen) == set(range(run.summary["steps"])) and watching.error is None
