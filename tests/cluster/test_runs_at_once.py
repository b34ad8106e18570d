"""Two runs at once on engines of their own, and runs that a judge ends."""

from __future__ import annotations

import pytest

from dtdg_lab.cluster.one_run import run_config
from dtdg_lab.cluster.session import Session
from dtdg_lab.cluster.stopping_rule import Evaluated, Verdict
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ClusterError, ConfigError, ControlError
from tests.following import stop, until_step


def test_runs_on_engines_of_their_own_do_not_disturb_each_other(session: Session, config: RunConfig) -> None:
    alone = session.train(config.replace(ranks=1, epochs=6)).wait(60)
    first, second = session.halves()
    slow = until_step(session.train(config.replace(ranks=1, slow_rank=0, slow_ms=20.0), engines=first), 2)
    with pytest.raises(ControlError, match=r"is running on engines 0\. Stop it first"):
        session.train(config.replace(ranks=1), engines=first)
    with pytest.raises(ControlError, match="Stop it first"):
        session.train(config.replace(ranks=1))
    beside = session.train(config.replace(ranks=1, epochs=6), engines=second)
    assert {run.id for run in session.under_way} == {slow.id, beside.id}
    slow.set(learning_rate=0.005)  # each has requests of its own
    beside.wait(60)
    assert slow.status == "running"
    assert beside.summary["validation_loss"] == alone.summary["validation_loss"]
    stop(slow)
    assert slow.config.learning_rate == 0.005 and beside.config.learning_rate == config.learning_rate
    assert session.under_way == []
    resumed = session.resume(beside_stopped(session, config, second), epochs=3)
    resumed.wait(60)
    assert session._files.engines_of(resumed.path) == second


def beside_stopped(session: Session, config: RunConfig, engines: tuple[int, ...]):  # type: ignore[no-untyped-def]
    run = until_step(session.train(config.replace(ranks=1), engines=engines), 3)
    run.stop()
    return run.wait(60)


@pytest.mark.parametrize("engines", [(0, 0), (0, 1), (-1,), ()])
def test_engines_are_one_for_each_rank(session: Session, config: RunConfig, engines: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="one distinct engine"):
        session.train(config.replace(ranks=2 if len(set(engines)) < len(engines) else 1), engines=engines)


def test_engines_that_are_not_there_are_named(session: Session, config: RunConfig) -> None:
    with pytest.raises(ClusterError, match="engines 5 are requested, but 2 of 2 are alive"):
        session.train(config.replace(ranks=1), engines=(5,))


def test_a_judge_finishes_and_stops_runs_on_engines(session: Session, config: RunConfig) -> None:
    def enough(seen: tuple[Evaluated, ...]) -> Verdict | None:
        return Verdict("finish", "two are enough") if len(seen) == 2 else None

    finished = run_config(config, session=session, judge=enough)
    assert finished.run.status == "finished" and finished.verdict == Verdict("finish", "two are enough")
    assert finished.run.summary["test_loss"] is not None and 40 < finished.run.summary["epochs"] < config.epochs
    stopped = run_config(config, session=session, judge=lambda seen: Verdict("stop", "at once"))
    assert stopped.run.status == "stopped" and stopped.run.summary["test_loss"] is None
