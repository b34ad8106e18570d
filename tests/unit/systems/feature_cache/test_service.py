"""Fetched features where something is refused, in the way or short: said in time, and nothing stays behind."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import psutil
import pytest
import zmq

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ClusterError, ConfigError, NotAvailableError, RunFailedError, RunStoreError
from dtdg_lab.distributed.group import SoloGroup
from dtdg_lab.network import emulated_network as kernel_links
from dtdg_lab.network.emulated_network import EmulatedNetwork
from dtdg_lab.network.links import LinkState, parse_links
from dtdg_lab.systems.feature_cache import service
from dtdg_lab.systems.feature_cache.rpc.client import FeatureClient
from dtdg_lab.systems.feature_cache.service import FeatureService, host_towards
from dtdg_lab.systems.feature_cache.strategy import RemoteFeatureStrategy
from dtdg_lab.training import build as building
from dtdg_lab.training.live_settings import check_changes
from dtdg_lab.training.rebuilding import rebuild
from tests.remote_training import (
    EPOCHS,
    PARTS,
    STEPS,
    built_remote,
    changing_graph,
    described,
    left,
    remote_config,
    servers_left,
    train_remote,
)
from tests.thinning import thinned


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    assert left() == []


class Device:
    """A network device that takes one queue at a time, in place of traffic control."""

    shaped: ClassVar[list[Device]] = []
    past: ClassVar[list[Any]] = []

    def __init__(self, *given: Any) -> None:
        pass

    def start(self) -> None:
        if self.shaped:
            raise NotAvailableError("somebody else shapes the device")
        self.shaped.append(self)
        self.past.append("start")

    def set_links(self, links: LinkState) -> None:
        assert self.shaped == [self]
        self.past.append(links)

    def close(self) -> None:
        if self in self.shaped:
            self.shaped.remove(self)
            self.past.append("close")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> type[Device]:
    monkeypatch.setattr(kernel_links, "NetemLinks", Device)
    Device.shaped.clear()
    Device.past.clear()
    return Device


# the kernel's links


def test_the_kernel_shapes_no_exchange_of_ranks() -> None:
    config = remote_config(system="adgnn-t", congestion_by="netem")
    with pytest.raises(ConfigError, match=r"system='adgnn-t'.*Set congestion_by='emulated'"):
        building.build(config, changing_graph(), SoloGroup())
    assert "congestion_by='emulated'" in EmulatedNetwork.validate_settings(config)
    assert not EmulatedNetwork.validate_settings(config.replace(congestion_by="emulated"))


def test_a_run_with_the_kernels_links_is_rebuilt_and_goes_on_where_that_fails(
    device: type[Device], tmp_path: Path
) -> None:
    script = {2: {"set": {"batch_length": 13}}, 8: {"set": {"queue_depth": 2}}}
    config = remote_config("fixed", congestion_by="netem", links="1 delay=1", epochs=3)
    done = train_remote(config, tmp_path, script=script)
    assert [data["changes"] for _, data in described(done, "settings")] == [{"queue_depth": 2}]
    ((_, refused),) = described(done, "refused")
    assert refused["changes"] == {"batch_length": 13} and "batch_length=13" in refused["reason"]
    slow = parse_links("1 delay=1", PARTS)
    assert device.past == 3 * ["start", slow, "close"], "again after the failure"
    assert [step for step, _ in described(done, "congestion")] == [0, 2 * STEPS], "told once by each that was built"


def test_a_device_that_is_not_given_back_refuses_the_change_and_nothing_is_built(
    device: type[Device], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def release(network: EmulatedNetwork) -> None:
        raise NotAvailableError("tc says no")

    monkeypatch.setattr(EmulatedNetwork, "release", release)
    config = remote_config("fixed", congestion_by="netem", links="1 delay=1")
    done = train_remote(config, tmp_path, script={2: {"set": {"cache_rows": 50}}})
    assert [data["reason"] for _, data in described(done, "refused")] == ["tc says no"]
    assert device.past.count("start") == 1 and len(done.losses) == EPOCHS * STEPS


@pytest.mark.parametrize(("row", "refused"), [([0, 9, 9, 9], False), ([0, 9, 0, 9], True)])
def test_a_trace_that_the_kernel_cannot_repeat_is_refused_before_it_runs(
    row: list[float], refused: bool, tmp_path: Path
) -> None:
    clean = [[0.0] * PARTS for _ in range(PARTS)]
    lines = [{"epoch": 1, "delay_ms": clean}, {"epoch": 900, "delay_ms": [row, *clean[1:]]}]
    (tmp_path / "trace.jsonl").write_text("\n".join(map(json.dumps, lines)))
    given = {"congestion": "recorded", "congestion_file": str(tmp_path / "trace.jsonl")}
    reason = EmulatedNetwork.validate_settings(remote_config("fixed", congestion_by="netem", **given))
    assert ("congestion_file=" in reason and "part 0's requesters" in reason) is refused
    assert not EmulatedNetwork.validate_settings(remote_config("fixed", **given)), "emulated links may differ"


def test_a_rank_alone_tells_of_no_congestion(tmp_path: Path) -> None:
    halo = remote_config(system="adgnn-t", links="1 delay=200")
    done = train_remote(halo, tmp_path, script={2: {"set": {"links": "2 delay=100"}}})
    assert described(done, "congestion") == [] and len(described(done, "settings")) == 1


# what does not answer, or cannot be opened


@pytest.mark.slow
def test_orders_to_a_server_that_stands_still_take_no_longer_than_fetches() -> None:
    with built_remote(remote_config("fixed", fetch_timeout_s=0.5)) as built:
        (server,) = servers_left()
        os.kill(server.pid, signal.SIGSTOP)
        began_s = time.monotonic()
        for parts in (PARTS, 120):  # 120: a longer order than a pipe holds
            with pytest.raises(RunFailedError, match=r"not replied for 0\.5 s.*fetch_timeout_s"):
                built.strategy.service.set_links(
                    LinkState(np.full((parts, parts), 1 / 3), np.full((parts, parts), 1e7))
                )
        assert 1.0 <= time.monotonic() - began_s < 3.0


def test_a_time_out_shorter_than_signs_of_life_are_apart_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"fetch_timeout_s=0\.05"):
        remote_config(fetch_timeout_s=0.05)


@pytest.fixture
def few_files() -> Iterator[int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = psutil.Process().num_fds() + 150
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_with_many_parts_may_open_as_many_files_as_they_take(few_files: int, tmp_path: Path) -> None:
    done = train_remote(remote_config("fixed", parts=8, batch_size=4, epochs=1), tmp_path)
    assert done.outcome.state == "finished"
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > few_files + 2 * 8 * 7 * 4


def test_too_few_files_are_said_with_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service.resource, "getrlimit", lambda of: (64, 70))
    with pytest.raises(
        NotAvailableError, match=r"4 of 4 parts.*need about \d+ open files.*the limit is 70\. Set fewer"
    ):
        building.build(remote_config("fixed"), changing_graph(), SoloGroup())


def test_a_connection_that_cannot_be_opened_is_said_and_the_others_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    with built_remote(remote_config("fixed")) as built:
        opened, make = [], zmq.Context.socket

        def socket(context: Any, *given: Any, **more: Any) -> Any:
            if len(opened) == 3:
                raise zmq.ZMQError(errno.EMFILE)
            opened.append(make(context, *given, **more))
            return opened[-1]

        monkeypatch.setattr(zmq.Context, "socket", socket)
        service = built.strategy.service
        with pytest.raises(NotAvailableError, match=r"part 0 cannot connect.*Too many open files.*ulimit -n"):
            FeatureClient(0, service.addresses, b"t" * 32, 7)
        assert len(opened) == 3 and all(each.closed for each in opened)


def test_a_machine_that_is_not_known_is_said() -> None:
    with pytest.raises(ClusterError, match=r"cannot reach nowhere\.invalid.*IPv4"):
        host_towards(SimpleNamespace(store=SimpleNamespace(host="nowhere.invalid")))


# settings that do not go together


def test_a_part_that_does_not_exist_is_not_preferred() -> None:
    with pytest.raises(ConfigError, match=r"cache_bias=4 is out of range: parts=4 allows 0 to 3, or -1"):
        remote_config(cache_bias=PARTS)
    config = remote_config(cache_bias=PARTS - 1)
    with pytest.raises(ConfigError, match="cache_bias=3 is out of range: parts=2"):
        config.replace(parts=2)
    assert RunConfig.from_json(config.to_json()) == config
    with pytest.raises(ConfigError, match="cache_bias=9 is out of range: parts=4"):
        check_changes(config, {"cache_bias": 9})


# what fails late


@pytest.mark.parametrize(
    ("where", "what"),
    thinned(
        [
            (FeatureService, "connect"),
            (building, "_evaluators"),
            (RemoteFeatureStrategy, "apply_settings"),
            (RemoteFeatureStrategy, "slowable_links"),
        ],
        keep=2,
    ),
)
def test_nothing_is_left_of_what_fails_once_features_are_served(
    where: Any, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def fails(*given: Any, **more: Any) -> None:
        found.extend(servers_left())
        raise RuntimeError("out of memory")

    monkeypatch.setattr(where, what, fails)
    with pytest.raises(RuntimeError, match="out of memory"):
        building.build(remote_config("fixed"), changing_graph(), SoloGroup())
    assert len(found) == 1 and servers_left() == []


def test_the_kernels_links_end_with_what_fails(device: type[Device], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any, **more: Any) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(building, "_evaluators", fails)
    with pytest.raises(RuntimeError, match="out of memory"):
        building.build(remote_config("fixed", congestion_by="netem"), changing_graph(), SoloGroup())
    assert device.past == ["start", "close"]


def test_what_cannot_take_the_parameters_is_closed() -> None:
    def restore(*given: Any) -> None:
        assert len(servers_left()) == 2
        raise RunStoreError("does not fit")

    config, memory = remote_config("fixed"), SimpleNamespace(plan={}, restore=restore)
    with built_remote(config) as before:
        made = rebuild(
            config,
            {"cache_rows": 50},
            memory,
            changing_graph(),
            SoloGroup(),
            device="cpu",
            previous=before,
        )
        assert made == (None, "does not fit")
        assert [server.pid for server in servers_left()] == list(before.strategy.service.children)
