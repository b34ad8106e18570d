"""Runs that were steered, and decided by clocks and races, repeat bit for bit from their records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dtdg_lab.cluster.event_history import EventHistory
from dtdg_lab.cluster.local import train
from dtdg_lab.cluster.replay import replay, verify_replay
from dtdg_lab.core.errors import ConfigError, ControlError, NotFiniteError, RunStoreError
from dtdg_lab.runs.directory import RunDirectory
from dtdg_lab.runs.record_writer import RecordWriter
from dtdg_lab.runs.stored_run import StoredRun, open_run
from dtdg_lab.systems.snapshot_groups.group_scheduling import GroupScheduling
from dtdg_lab.training.replay import changes_key
from tests.steered_here import events, losses, scores, small, steered
from tests.stored_runs import START_NS, write_steps

HYBRID = {"epoch_batches": 8, "partitioner": "round_robin", "batch_nodes": 0.2, "generators": "threads"}
SIZES = {"snapshot_sizes": "0.2 0.4", "node_sizes": "0.2 1", "batch_policy": "dqn", "decide_every": 2}


@pytest.fixture(scope="module")
def psg(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    """A run steered in every way: at steps, between epochs, into another system, in a pause, to an end."""
    script: dict[int, Any] = {
        2: {"set": {"learning_rate": 0.1}, "by": "sweep.py"},
        4: ({"pause": True}, {"set": {"learning_rate": 0.05}}, {"keep": True}, {"pause": False}),
        7: {"set": {"system": "dygnex-l", "schedule_gap": 1.0, "epochs": 9}},
        12: {"set": {"group_window": 3}},
        14: {"stop": True},
    }
    return steered(small("psg"), tmp_path_factory.mktemp("runs"), script)


def check_repeats(run: StoredRun, again: StoredRun) -> None:
    """By their records, and by what the replay says of itself."""
    found = verify_replay(again)
    assert found and found.parameters and found.steps == len(losses(run)) > 0, found.caption
    assert losses(again) == losses(run) and scores(again) == scores(run)
    assert again.environment["repeats"]["bit_for_bit"] and again.status == run.status
    for kind in ("settings", "refused"):
        described = [[(step, data["changes"]) for step, data in events(of, kind)] for of in (run, again)]
        assert described[0] == described[1]


def test_a_steered_run_repeats(psg: StoredRun, tmp_path: Path) -> None:
    assert len(events(psg, "settings")) == 4 and psg.status == "stopped"
    asked = [(data["version"], data["received_at"]) for _, data in events(psg, "control_received")]
    assert asked == [*enumerate(["step", "step", *["pause"] * 3, "step", "step", "step"], start=1)]
    again = replay(psg, runs_dir=tmp_path)
    check_repeats(psg, again)
    asked, repeated = ([data for _, data in events(run, "control_received")] for run in (psg, again))
    assert [{**data, "by": None} for data in repeated] == [{**data, "by": None} for data in asked]
    assert (asked[0]["by"], asked[0]["old"]) == ("sweep.py", {"learning_rate": 0.02})
    assert [data["by"] for data in repeated[:2]] == ["replay of sweep.py", "replay"]
    requests = [run.requests().drop(columns=["time", "who"]).to_dict("records") for run in (psg, again)]
    assert requests[0] == requests[1] and set(again.requests().outcome) == {"applied"}
    assert [kept.name for kept in again.directory.checkpoints] == [kept.name for kept in psg.directory.checkpoints]
    ((_, described),) = events(again, "replays")
    assert described["run"] == psg.id and str(Path.home()) not in json.dumps(again.environment["replays"])
    twice = replay(again)
    check_repeats(again, twice)
    assert events(twice, "control_received") == events(again, "control_received")


def test_a_schedule_of_measured_times_is_taken_from_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small("dygnex-g", profile_epochs=2, epochs=5, group_times="profile")
    observe, rng = GroupScheduling.observe, np.random.default_rng(0)

    def by_chance(self: GroupScheduling, rows: Any, exchange_s: float = 0.0) -> None:
        observe(self, [(row[0], 0, 1, 0.0) for row in rows], exchange_s)
        for row in rows:
            self._times_of_epoch_s[row[0]] += rng.uniform(0.01, 1.0)

    monkeypatch.setattr(GroupScheduling, "observe", by_chance)
    script = {9: {"set": {"scheduler": "dygnex_ilp", "schedule_gap": 1.0}}, 15: {"set": {"learning_rate": 0.1}}}
    run = steered(config, tmp_path, script)
    assert losses(steered(config, tmp_path, script)) != losses(run), "times by chance make other schedules"
    again = replay(run)
    check_repeats(run, again)
    schedules = [[data["assignment"] for _, data in events(of, "schedule")] for of in (run, again)]
    assert schedules[0] == schedules[1] and len(schedules[0]) == 3


def test_what_an_batch_policy_decided_by_times_is_decided_again(tmp_path: Path) -> None:
    config = small("dynahb", **HYBRID, **SIZES, exchange="gradients", reservoir=True, slow_rank=0, slow_ms=4.0)
    run = steered(config, tmp_path, {10: {"set": {"batch_snapshots": 0.3}}})
    again = replay(run)
    check_repeats(run, again)
    decided = [of.table("decisions").to_json() for of in (run, again)]
    assert decided[0] == decided[1] and len(run.table("decisions")) >= 5
    drawn = [
        [tuple(row) for row in of.table("targets")[["step", "part", "action", "index", "source"]].to_numpy()]
        for of in (run, again)
    ]
    assert drawn[0] == drawn[1] and "reservoir" in {row[-1] for row in drawn[0]}


@pytest.mark.slow
def test_a_run_whose_models_are_averaged_repeats(tmp_path: Path) -> None:
    config = small("dynahb", **HYBRID, **SIZES, average_every_s=0.005, slow_rank=0, slow_ms=4.0)
    script = {
        3: {"set": {"average_every_s": 0.002}},
        6: {"set": {"partitioner": "hash"}},
        11: ({"pause": True}, {"set": {"learning_rate": 0.3}}, {"pause": False}),
        17: {"set": {"exchange": "gradients"}},
        20: {"stop": True},
    }
    run = steered(config, tmp_path, script)
    assert run.status == "stopped" and len(events(run, "settings")) >= 3
    again = replay(run)
    check_repeats(run, again)
    columns = ["number", "joined_step", "applied_step", "weight", "version", "choice"]
    rounds = [of.table("rounds")[columns].to_dict("records") for of in (run, again)]
    assert rounds[0] == rounds[1] and rounds[0]


@pytest.mark.parametrize(
    ("config", "script"),
    [
        (
            small("dbov", **HYBRID, test_model="best"),
            {3: {"set": {"batch_snapshots": 0.4}}, 5: {"set": {"batch_nodes": 99.0}}},
        ),
        (
            small("flaredtdg", tune=True, tune_every=2, generated_snapshots=28, window=4),
            {4: {"set": {"alpha": 0.3}}, 8: {"set": {"window": 3, "full_snapshots": 1}}},
        ),
        (
            small("greendygnn", epochs=2, test_model="best"),
            {3: {"set": {"cache_window": 2}}, 8: {"set": {"cache_policy": "clairvoyant"}}},
        ),
        pytest.param(
            small("esdg", epochs=5, blocks=0),
            {1: {"set": {"blocks": 3}}, 3: {"set": {"blocks": 999}}},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["dbov", "flaredtdg", "greendygnn", "esdg"],
)
def test_every_kind_of_system_repeats(config: Any, script: Any, tmp_path: Path) -> None:
    run = steered(config, tmp_path, script)
    assert len(events(run, "settings")) + len(events(run, "refused")) >= 2
    check_repeats(run, replay(run))


def test_changes_after_the_last_step_repeat(tmp_path: Path) -> None:
    """What is asked for while a run evaluates its last epoch is heard once no step is left."""
    last = 5
    run = steered(small("psg", epochs=1), tmp_path, {last: {"set": {"epochs": 2}}})
    assert events(run, "control_received")[0][1]["received_at"] == "end" and run.summary["steps"] == 2 * last
    check_repeats(run, replay(run))


def test_a_run_that_failed_repeats_as_far_as_it_went(tmp_path: Path) -> None:
    with pytest.raises(NotFiniteError):
        steered(small("psg", optimizer="sgd"), tmp_path, {3: {"set": {"learning_rate": 100.0}}})
    run = open_run(next(tmp_path.iterdir()))
    again = replay(run)
    assert again.status == "stopped" and losses(again) == losses(run)
    assert (
        verify_replay(again)
        and verify_replay(again).parameters is None
        and "not compared" in verify_replay(again).caption
    )


def test_steps_that_a_resumed_attempt_repeats_are_those_of_the_later_one(tmp_path: Path) -> None:
    run = RunDirectory.create(small("psg"), root=tmp_path)
    with RecordWriter(run.record_file(0), 0, 1) as writer:
        write_steps(writer, 0, 5)
    with RecordWriter(run.record_file(0), 0, 2) as writer:
        writer.row("events", (3, 0, START_NS, "resumed", {}))
        write_steps(writer, 3, 6)
    rows = EventHistory(run).rows("steps")
    assert [(row["attempt"], row["step"]) for row in rows] == [(1, 0), (1, 1), (1, 2), (2, 3), (2, 4), (2, 5)]


def test_requests_that_the_ranks_never_received_are_not_refused_again(tmp_path: Path) -> None:
    run = RunDirectory.create(small("psg"), root=tmp_path)
    for version in (None, 1):
        refused = {"version": version, "changes": {"group_window": 999 + (version or 0)}, "reason": "too many"}
        with RecordWriter(run.record_file(0), 0, 1) as writer:
            writer.row("events", (2, 0, START_NS, "refused", refused))
            write_steps(writer, 0, 1)
    refused = EventHistory(run).replay(0).refused
    assert refused == {(2, changes_key({"group_window": 1000})): ["too many"]}


# what it finds


def _tampered(run: StoredRun, kind: str, change: Any) -> None:
    """Change the rows of a table in a run's records."""
    path = run.directory.record_file(0)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["table"] == kind:
            rows = [dict(zip(line["columns"], row, strict=True)) for row in line["rows"]]
            line["rows"] = [list(row.values()) for row in map(change, rows) if row is not None]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_first_step_that_differs_is_found(psg: StoredRun, tmp_path: Path) -> None:
    again = replay(psg, runs_dir=tmp_path)
    whole = again.directory.record_file(0).read_text()

    def nudged(row: dict[str, Any]) -> dict[str, Any]:
        late = row["step"] in (7, 9)
        return {**row, "loss": np.nextafter(row["loss"], 1.0)} if late else row

    _tampered(again, "steps", nudged)
    found = verify_replay(again)
    assert not found and found.first_difference == 7 and found.parameters and "from step 7 on" in found.caption
    again.directory.record_file(0).write_text(whole)
    assert verify_replay(again)
    _tampered(again, "events", lambda row: {**row, "data": {"parameters": "0"}} if row["kind"] == "ended" else row)
    found = verify_replay(again)
    assert not found and found.first_difference is None and "last parameters" in found.caption


def test_what_cannot_be_repeated_is_refused_in_words(psg: StoredRun, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a replay"):
        verify_replay(psg)
    run = train(small("psg", epochs=1), runs_dir=tmp_path, progress=False)
    before = sorted(tmp_path.iterdir())
    run.directory.write_status("running")
    with pytest.raises(ControlError, match="is running"):
        replay(run)
    run.directory.write_status("finished")
    config = run.directory.config()
    run.directory.config_file.write_text(config.replace(ranks=2).to_json())
    with pytest.raises(ConfigError, match="had ranks=2"):
        replay(open_run(run.path))
    run.directory.record_file(0).write_text("")
    with pytest.raises(RunStoreError, match="completed no step"):
        replay(open_run(run.path))
    assert sorted(tmp_path.iterdir()) == before
