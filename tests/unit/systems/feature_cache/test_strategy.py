"""Runs that fetch features train the same bits under every policy, and survive changes and failures."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import dtdg_lab as lab
from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import ConfigError, DataError, LabError, RunFailedError, RunStoreError, UnsupportedError
from dtdg_lab.engine.capabilities import StepOutcome
from dtdg_lab.kernels.device_memory import DeviceMemory
from dtdg_lab.network.patterns import make_pattern
from dtdg_lab.network.traces import load_trace
from dtdg_lab.systems.feature_cache import FAMILY
from dtdg_lab.systems.feature_cache.pipeline import cache
from dtdg_lab.systems.feature_cache.pipeline.observations import StepTime
from dtdg_lab.systems.feature_cache.strategy import RemoteFeatureStrategy
from dtdg_lab.testing.training import RecordingRecorder, Trained
from dtdg_lab.visualization.runs.curves import FETCHED, SENT, bytes_at
from tests.remote_training import (
    CHANGES,
    EPOCHS,
    LONG,
    PARTS,
    STEPS,
    Served,
    Struck,
    asked_keys,
    changing_graph,
    column,
    described,
    left,
    policy_file,
    remote_config,
    servers_left,
    sockets,
    soon,
    static_config,
    static_graph,
    train_remote,
)
from tests.tables import run_tables
from tests.thinning import thinned


def test_a_step_starts_as_long_as_the_pipeline_of_any_part_does() -> None:
    told: list[StepTime] = []

    def part(settled_from: int) -> SimpleNamespace:
        return SimpleNamespace(
            pipeline=SimpleNamespace(is_starting=lambda step: step < settled_from, stepped=told.append)
        )

    for settled in ((1, 3), (3, 1)):
        told.clear()
        rank: Any = SimpleNamespace(parts=[part(step) for step in settled])  # they share its processors
        for step in range(5):
            RemoteFeatureStrategy.on_step_end(rank, StepOutcome(step, 0.1, 0.0, (), {}))
        assert [time.starts for time in told[::2]] == [True, True, True, False, False] and told[::2] == told[1::2]


def test_recorded_links_can_be_replayed(tmp_path) -> None:
    config = lab.RunConfig(
        system="bgl",
        dataset="growing",
        model="tgcn",
        parts=2,
        epochs=3,
        batch_size=300,
        generated_nodes=120,
        generated_edges=400,
        generated_snapshots=12,
        congestion="one_slow",
        congestion_from=1,
        congestion_ms=1.0,
        congestion_cycle=2,
        device="cpu",
        evaluate_every=100,
    )
    run = lab.train(config, runs_dir=tmp_path, progress=False)
    file = lab.congestion.save_trace(run, tmp_path / "links.jsonl")
    pattern = make_pattern(
        "one_slow", parts=2, seed=config.seed, delay_ms=1.0, mbit=0.0, first_epoch=1, cycle=2, epochs=3
    )
    trace = load_trace(file, 2)
    for epoch in range(3):
        assert trace.at(epoch, 0.0) == pattern.at(epoch, 0.0)
    plain = lab.train(
        lab.RunConfig(
            system="single",
            dataset="growing",
            epochs=1,
            **{name: config[name] for name in ("generated_nodes", "generated_edges", "generated_snapshots", "device")},
        ),
        runs_dir=tmp_path,
        progress=False,
    )
    with pytest.raises(DataError, match="has no link records"):
        lab.congestion.save_trace(plain, tmp_path / "none.jsonl")


POLICIES = catalogue.names("features")
CONGESTED = {
    "congestion": "two_asymmetric",
    "congestion_from": 0,
    "congestion_ms": 4.0,
    "congestion_mbit": 20.0,
    "links": "1>0 delay=3 rate=10",
}
HEAD = 2 * 32  # bytes of the heads of a request and its reply


def kept(policies: list[str], *names: str) -> list[Any]:
    """Policies of which those named run in `make test`."""
    return thinned(policies, map(policies.index, names))


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Whatever a test does to a run, no server and no thread outlives it."""
    before = sockets()
    yield
    assert left() == []
    assert soon(lambda: sockets() <= before), "connections are left"


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The run that all others must equal."""
    return train_remote(remote_config("on_demand"), tmp_path_factory.mktemp("quiet"))


def _same(one: Trained, other: Trained) -> None:
    assert one.losses == other.losses
    assert all(torch.equal(tensor, other.parameters[name]) for name, tensor in one.parameters.items())


# the policies kept are those that no other test of `make test` compares with the quiet run
@pytest.mark.slow
@pytest.mark.parametrize("policy", kept(sorted({*POLICIES} - {"on_demand"}), "prefetch", "threshold", "double_dqn"))
def test_every_policy_trains_the_same_bits(policy: str, quiet: Trained, tmp_path: Path) -> None:
    learned = {"policy_file": policy_file(tmp_path, policy)} if policy.startswith("double_dqn") else {}
    done = train_remote(remote_config(policy, **learned), tmp_path)
    assert len(done.losses) == EPOCHS * STEPS and len({*done.losses}) == len(done.losses)
    _same(done, quiet)
    assert set(column(done, "windows", "policy")) == (set() if policy == "prefetch" else {policy})
    assert (len(done.recorder.tables["cache_decisions"]) > 0) == (policy not in POLICIES[:4])


@pytest.mark.parametrize(
    "policy", thinned(kept(["on_demand", "epoch_hot", "fixed", "planner"], "epoch_hot", "planner"), [3])
)
def test_congestion_changes_no_bit(policy: str, quiet: Trained, tmp_path: Path) -> None:
    done = train_remote(remote_config(policy, **CONGESTED), tmp_path)
    _same(done, quiet)
    ((step, event),) = described(done, "congestion")
    assert step == 0 and event["pattern"] == "two_asymmetric" and event["by"] == "emulated"
    delays = np.array(event["delay_ms"])
    assert sorted(set(delays.ravel())) == [0.0, 2.0, 3.0, 4.0, 7.0] or delays.max() >= 4.0
    slow = [
        row["rtt_s"]
        for row in done.recorder.tables["fetches"]
        if (row["part"], row["owner"]) == (0, 1) and row["purpose"] in ("miss", "bulk")
    ]
    assert min(slow) >= 0.003, "no reply comes before its link has passed it"


@pytest.mark.parametrize("policy", thinned(["fixed", "epoch_hot", "threshold"]))
def test_static_features_train_the_same_bits_under_every_policy(policy: str, tmp_path: Path) -> None:
    one, other = (train_remote(static_config(of), tmp_path, graph=static_graph()) for of in ("on_demand", policy))
    _same(one, other)
    assert sum(map(sum, column(other, "resolved", "hits"))) > 0
    (_, features), *_ = described(other, "features")
    assert features["rows"] == 80 and features["parts"] == PARTS and 0 < features["remote_share"] < 1


def test_on_demand_every_step_asks_every_owner_for_all_of_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served(monkeypatch)
    done = train_remote(remote_config("on_demand"), tmp_path)
    row_bytes = 4 * changing_graph().num_features
    fetches = {(row["part"], row["step"], row["owner"]): row for row in done.recorder.tables["fetches"]}
    wanted = {
        (*at, owner): len(keys)
        for at, of in asked_keys().items()
        for owner, keys in enumerate(of)
        if len(keys) and owner != at[0]
    }
    assert {at: row["rows"] for at, row in fetches.items()} == wanted
    assert len(fetches) == len(done.recorder.tables["fetches"]), "one RPC for each owner"
    assert all(row["bytes"] == HEAD + row["rows"] * (8 + row_bytes) for row in fetches.values())
    for row in done.recorder.tables["resolved"]:
        own = [fetches[at] for at in fetches if at[:2] == (row["part"], row["step"])]
        assert (row["window"], sum(row["hits"])) == (-1, 0) and row["remote"] == sum(of["rows"] for of in own)
        assert (row["rpcs"], row["bytes"]) == (len(own), sum(of["bytes"] for of in own))
        assert row["misses"][row["part"]] == 0 and row["wait_s"] >= row["resolve_s"]
    assert served.by_servers and dict(served.by_servers) == dict(served.noted(done.recorder))
    received = {step: sum(row["bytes"] for row in fetches.values() if row["step"] == step) for step in range(12)}
    assert dict(enumerate(column(done, "steps", "bytes_received"))) == received


@pytest.mark.slow
def test_probes_are_counted_apart_from_what_training_fetches(tmp_path: Path) -> None:
    """The planner times a few fetches before it plans: they are recorded, and in no sum but their own."""
    done = train_remote(remote_config("planner"), tmp_path)
    probes, own = (
        [row for row in done.recorder.tables["fetches"] if (row["purpose"] == "probe") == is_probe]
        for is_probe in (True, False)
    )
    assert probes and own
    assert sum(column(done, "steps", "bytes_received")) == sum(row["bytes"] for row in own)
    frames = {name: pd.DataFrame(done.recorder.tables[name]) for name in FAMILY.summary_tables}
    facts = FAMILY.summary(frames, frames)
    assert facts["rpcs"] == len(own) and facts["feature_bytes"] == sum(row["bytes"] for row in own)
    assert facts["probe_bytes"] == sum(row["bytes"] for row in probes) > 0
    fetched = run_tables(
        {"ranks": 1}, {"steps": [{"bytes_sent": 0}], "fetches": [*probes, *own]}, rollups=[SENT, FETCHED]
    )
    spent = bytes_at(fetched, [10.0], [10**6])
    assert spent is not None and float(spent[0]) == sum(row["bytes"] for row in own)


def test_live_settings_change_at_the_next_step_and_keep_losses(tmp_path: Path) -> None:
    script = {step: {"set": changes} for step, changes in CHANGES.items()}
    quiet = train_remote(remote_config("fixed", **LONG), tmp_path)
    done = train_remote(remote_config("fixed", **LONG), tmp_path, script=script)
    _same(done, quiet)
    assert [(step, data["when"], data["changes"]) for step, data in described(done, "settings")] == [
        (step + 1, "step", changes) for step, changes in CHANGES.items()
    ]
    congestion = dict(described(done, "congestion"))
    assert {2, 6, 11, 13, 23} <= set(congestion) and not {4, 8, 15, 25} & set(congestion)
    assert congestion[2]["delay_ms"][1][0] == 2.0 and congestion[2]["mbit"][1][0] is None
    assert congestion[6]["mbit"][1][0] == pytest.approx(50.0) and congestion[6]["delay_ms"][2] == [1.0, 1.0, 0.0, 1.0]
    assert np.max(congestion[11]["delay_ms"]) >= 3.0 and congestion[11]["pattern"] == "two_symmetric"
    assert np.nanmin(np.array(congestion[13]["mbit"], float)) == pytest.approx(30.0)
    assert np.max(congestion[23]["delay_ms"]) == 0.0
    on_demand = {row["step"] for row in done.recorder.tables["resolved"] if row["window"] < 0}
    assert 28 in on_demand and not on_demand & {0, 1}
    policies = [row["policy"] for row in done.recorder.tables["windows"] if row["part"] == 0]
    in_order = [policy for at, policy in enumerate(policies) if at == 0 or policies[at - 1] != policy]
    assert in_order[0] == "fixed" and in_order[-1] == "fixed" and set(in_order) >= {"threshold", "epoch_hot"}
    assert 2 in column(done, "windows", "biased", policy="fixed")


REFUSED: dict[int, tuple[dict[str, Any], str]] = {
    1: ({"links": "9>0 delay=5"}, "9"),
    5: ({"links": "nonsense"}, "nonsense"),
    6: ({"cache_policy": "double_dqn"}, "is a policy for 3 parts, but this run has 4"),
    7: ({"cache_policy": "fixed"}, "exceeds memory"),
    8: ({"congestion": "recorded"}, "congestion_file"),
}


def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten megabytes are available."""
    monkeypatch.setattr(cache, "device_memory", lambda device: DeviceMemory(device, 10**8, 10_000_000))


def test_invalid_live_settings_are_rejected_and_the_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _little_memory(monkeypatch)
    config = remote_config("on_demand", cache_rows=1_000_000, policy_file=policy_file(tmp_path, parts=3))
    quiet = train_remote(config, tmp_path)
    done = train_remote(config, tmp_path, script={step: {"set": changes} for step, (changes, _) in REFUSED.items()})
    _same(done, quiet)
    refused = [data for _, data in described(done, "refused")]
    assert [data["changes"] for data in refused] == [changes for changes, _ in REFUSED.values()]
    for data, (_, words) in zip(refused, REFUSED.values(), strict=True):
        assert any(word in data["reason"] for word in words.split("|")), data["reason"]
    assert described(done, "settings") == [] and done.config == quiet.config


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"links": "9>0 delay=5"}, ConfigError, "9"),
        ({"cache_policy": "double_dqn", "parts": 6}, ConfigError, "learned policy"),
        ({"policy_file": "nowhere.npz", "cache_policy": "double_dqn"}, ConfigError, "nowhere.npz does not exist"),
        ({"cache_rows": 1_000_000}, ConfigError, "cache_rows=1000000 exceeds memory"),
        ({"batch_length": 13}, ConfigError, "batch_length=13"),
        ({"fanouts": "3 0"}, ConfigError, "fanouts='3 0'"),
        ({"congestion": "recorded", "congestion_file": "nowhere.jsonl"}, LabError, "nowhere.jsonl"),
        ({"congestion": "schedule", "congestion_table": "1:15 7:20"}, ConfigError, "7"),
        ({"task": "link"}, UnsupportedError, "needs all nodes at once"),
        ({"model": "dcrnn"}, UnsupportedError, "dcrnn|neighbourhood"),
        ({"model": "evolvegcn-h"}, UnsupportedError, "evolvegcn-h|weights_from_data"),
    ],
)
def test_invalid_configs_are_rejected_with_a_reason(
    settings: dict[str, Any], error: type[LabError], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _little_memory(monkeypatch)
    with pytest.raises(error, match=words):
        train_remote(remote_config(**{"policy": "fixed", **settings}), tmp_path)


def test_a_single_part_is_rejected() -> None:
    with pytest.raises(UnsupportedError, match="no remote features to fetch"):
        remote_config(parts=1)


@pytest.mark.parametrize(
    ("policy", "step"), thinned([("fixed", 1), ("fixed", 5), ("fixed", 6), ("fixed", 7), ("random", 4)], [4])
)
def test_a_resumed_run_equals_an_uninterrupted_one(policy: str, step: int, quiet: Trained, tmp_path: Path) -> None:
    config = remote_config(policy)
    first = train_remote(config, tmp_path, script={step - 1: {"stop": True}})
    assert (first.outcome.state, len(first.losses)) == ("stopped", step)
    rest = train_remote(config, tmp_path, resume=True)
    assert [*first.losses, *rest.losses] == quiet.losses
    assert all(torch.equal(of, quiet.parameters[name]) for name, of in rest.parameters.items())
    assert min(column(rest, "windows", "first")) == step


@pytest.mark.parametrize(
    ("policy", "sent", "words"),
    thinned(
        [
            (policy, *sent)
            for policy in ("on_demand", "fixed")
            for sent in (
                (signal.SIGKILL, r"part.* was ended by SIGKILL|part \d \(rank 0\) has exited"),
                (signal.SIGSTOP, r"part \d \(rank 0\) was silent for \d+\.\d s"),
            )
        ],
        keep=[1, 2],
    ),
)
def test_a_run_whose_server_fails_ends_and_can_be_resumed(
    policy: str, sent: signal.Signals, words: str, quiet: Trained, tmp_path: Path
) -> None:
    config, recorder = remote_config(policy, fetch_timeout_s=2.0), Struck(sent, 4)
    with pytest.raises(RunFailedError, match=words):
        train_remote(config, tmp_path, recorder=recorder)
    assert time.monotonic() - recorder.struck_s < 6.0, "two seconds, and what closing takes"
    assert left() == [] and len(recorder.tables["steps"]) >= 4
    rest = train_remote(remote_config(policy), tmp_path, resume=True)
    assert rest.losses == quiet.losses[-len(rest.losses) :] and rest.outcome.state == "finished"
    assert all(torch.equal(of, quiet.parameters[name]) for name, of in rest.parameters.items())


class _Full(RecordingRecorder):
    """A recorder whose disk is full after some steps."""

    def check(self) -> None:
        if len(self.tables["steps"]) >= 4:
            raise RunStoreError("the disk is full")


@pytest.mark.slow
@pytest.mark.parametrize("policy", kept(["on_demand", "fixed", "random"], "fixed"))
def test_a_failed_run_leaves_no_server(policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunStoreError, match="disk is full"):
        train_remote(remote_config(policy), tmp_path, recorder=_Full())
    monkeypatch.setattr(RemoteFeatureStrategy, "_train", _fails)
    with pytest.raises(ZeroDivisionError):
        train_remote(remote_config(policy), tmp_path)
    assert servers_left() == []


def _fails(*given: Any) -> None:
    raise ZeroDivisionError


@pytest.mark.slow
def test_a_failed_resume_leaves_no_server(tmp_path: Path) -> None:
    train_remote(remote_config("fixed"), tmp_path, script={2: {"stop": True}})
    stored = torch.load(tmp_path / "last.pt", weights_only=False)
    name = max(stored["model"], key=lambda of: stored["model"][of].numel())
    stored["model"][name] = stored["model"][name][:1].clone()
    torch.save(stored, tmp_path / "last.pt")
    with pytest.raises(RunStoreError, match="does not fit"):
        train_remote(remote_config("fixed"), tmp_path, resume=True)
