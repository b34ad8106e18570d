"""Two engines: checkpoints kept while they train, forks on as many ranks, and steered sessions that repeat."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace as replaced
from typing import Any

import pytest

from dtdg_lab.cluster.fork import fork
from dtdg_lab.cluster.replay import replay, verify_replay
from dtdg_lab.cluster.run import Run
from dtdg_lab.cluster.session import Session
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, ControlError
from dtdg_lab.engine.exchange.overlap import TRIED
from dtdg_lab.records.events import Event, OverlapChosen
from dtdg_lab.runs.stored_run import StoredRun, open_run
from tests.following import stop, until, until_step

SLOW = {"slow_rank": 0, "slow_ms": 15.0}  # so that requests come where they should


@pytest.fixture
def small(config: RunConfig) -> RunConfig:
    """Some seconds of training."""
    return config.replace(epochs=10, generated_nodes=60, generated_edges=240, checkpoint_every_s=0.0, **SLOW)


def losses(run: StoredRun | Run) -> dict[tuple[int, int], Any]:
    """(rank, step) -> what must repeat."""
    table = open_run(run.path).table("steps")
    table = table.astype(object).where(table.notna(), None)  # a rank without a group has no loss
    return {(row.rank, row.step): (row.loss, row.global_loss, row.epoch) for row in table.itertuples()}


def check_repeats(run: Run, session: Session) -> StoredRun:
    again = replay(run.path, session=session)
    found = verify_replay(again)
    assert found and found.parameters, found.caption
    assert losses(again) == losses(run) and found.steps == len(losses(run))
    assert {rank for rank, _ in losses(again)} == {0, 1}
    return again


def test_two_ranks_are_forked_resumed_and_repeated(session: Session, small: RunConfig) -> None:
    run = until_step(session.train(small.replace(slow_ms=60.0)), 2)
    run.set(learning_rate=0.05)
    until_step(run, 5)
    run.pause()
    run.set(group_window=3)
    run.save_checkpoint()
    until(lambda: len(open_run(run.path).directory.checkpoints) > 1, what="a checkpoint kept in the pause")
    run.unpause()
    until_step(run, run.live.progress.step + 4)
    stop(run)
    (kept,) = [kept for kept in open_run(run.path).directory.checkpoints if kept.name != "last"]
    assert kept.waiting == {"group_window": 3} and kept.iteration
    with pytest.raises(ConfigError, match="ranks=2, but this is a single process"):
        fork(run, at=kept.name)
    branch = fork(run, at=kept.name, session=session, slow_ms=0.0)
    assert isinstance(branch, Run) and branch.wait().status == "finished"
    common = {key: of for key, of in losses(run).items() if key[1] >= kept.step}
    assert len(common) >= 8 and losses(branch).items() >= common.items()
    resumed = until_step(run.resume(learning_rate=0.2, epochs=11), max(step for _, step in common) + 3)
    resumed.set(system="blad", slow_ms=0.0)
    resumed.wait()
    again = check_repeats(resumed, session)
    assert again.status == "finished" and again.config == open_run(run.path).config
    with pytest.raises(ControlError, match="Replay that run again"):  # and what it is stays
        next(of for of in session.runs if of.path == again.path).resume()
    assert again.status == "finished"


@pytest.mark.slow
def test_a_replay_takes_no_requests_but_a_stop(session: Session, small: RunConfig) -> None:
    run = session.train(small.replace(slow_ms=60.0, epochs=4))
    run.wait()
    made = len(session.runs)
    with ThreadPoolExecutor(1) as pool:
        replayed = pool.submit(replay, run.path, session=session)
        until(lambda: len(session.runs) > made or replayed.done(), what="a replay")
        again = session.runs[-1]
        until_step(again, 2)
        with pytest.raises(ControlError, match=r"accepts no requests of its own: run.stop\(\) ends it"):
            again.set(learning_rate=0.1)
        again.stop()
        stopped = replayed.result(30)
    assert stopped.status == "stopped" and len(losses(stopped)) < len(losses(run))
    assert not verify_replay(stopped)


def test_ranks_at_their_own_pace_repeat(session: Session, small: RunConfig) -> None:
    sizes = {"snapshot_sizes": "0.2 0.4", "node_sizes": "0.2 1", "decide_every": 3, "generators": "threads"}
    config = small.replace(system="dynahb", epochs=10_000, epoch_batches=12, average_every_s=0.02, **sizes)
    run = until_step(session.train(config), 5)
    until(lambda: "reservoir" in set(open_run(run.path).table("targets").source), what="a batch from a reservoir")
    run.set(learning_rate=0.01)
    until_step(run, 16)
    run.set(partitioner="round_robin")
    until_step(run, 28)
    run.pause()
    run.set(average_every_s=0.01)
    run.unpause()
    until_step(run, 38)
    stop(run)
    stored = open_run(run.path)
    assert len(stored.table("rounds")) > 4
    check_repeats(run, session)


def overlap_events(run: StoredRun | Run) -> list[tuple[int, OverlapChosen]]:
    """(step, choice) of a run."""
    table = open_run(run.path).table("events")
    chosen = table[table["kind"] == OverlapChosen.kind]
    return [(row.step, OverlapChosen.read(row.data)) for row in chosen.itertuples()]


def compact(event: Event) -> str:
    """As it stands in the records."""
    return json.dumps(event.write(), separators=(",", ":"))


def test_a_choice_of_overlap_is_repeated_not_measured(session: Session, small: RunConfig) -> None:
    """Whatever was chosen: the recorded event decides, on both ranks, from the step on at which it was recorded."""
    config = small.replace(system="esdg", blocks=2, overlap="auto", slow_ms=0.0, generated_nodes=5000)
    config = config.replace(epochs=len(TRIED) + 2)
    run = session.train(config)
    assert run.wait().status == "finished"
    ((step, measured),) = overlap_events(run)
    assert step == len(TRIED)
    path = open_run(run.path).directory.record_file(0)
    recorded, exchanges = path.read_text(), []
    for on in (True, False):
        forced = replaced(measured, on=on, off_s=2.0, on_s=1.0)
        path.write_text(recorded.replace(compact(measured), compact(forced)))
        assert compact(forced) in path.read_text()
        again = check_repeats(run, session)
        assert overlap_events(again) == [(step, forced)]
        table = again.table("exchanges").groupby(["rank", "step"])["exchanges"].sum()
        before, after = table[:, step - 1], table[:, step + 1]
        assert (after > before).all() if on else (after == before).all()
        exchanges.append(after.tolist())
    assert all(pieces > whole for pieces, whole in zip(*exchanges, strict=True))
