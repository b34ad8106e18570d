"""Training with fetched features in memory: small runs, what their servers served, and what is left of them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.datasets.names import load_for
from dtdg_lab.datasets.user_data import from_static
from dtdg_lab.distributed.group import Group, SoloGroup
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.systems.feature_cache.policies.interface import state_size
from dtdg_lab.systems.feature_cache.policies.learned import StoredPolicy, save_policy
from dtdg_lab.systems.feature_cache.service import FeatureService
from dtdg_lab.systems.feature_cache.strategy import RemoteFeatureStrategy, RemotePart
from dtdg_lab.testing.training import RecordingRecorder, Trained, train_in_memory
from dtdg_lab.training.build import RunComponents, build

PARTS, STEPS, EPOCHS = 4, 6, 2  # steps of an epoch
SYSTEMS = {
    "on_demand": "dgl-default",
    "prefetch": "bgl",
    "epoch_hot": "rapidgnn",
    "fixed": "fixed-window",
    "threshold": "threshold-window",
    "double_dqn": "greendygnn",
    "clairvoyant": "clairvoyant",
}
SMALL = {
    "dataset": "growing",
    "generated_nodes": 60,
    "generated_edges": 240,
    "generated_snapshots": 20,
    "hidden": 6,
    "device": "cpu",
    "dtype": "float64",
    "optimizer": "sgd",
    "learning_rate": 0.05,
    "epochs": EPOCHS,
    "evaluate_every": 100,
    "parts": PARTS,
    "ranks": 1,
    "partitioner": "hash",
    "model": "tgcn",
    "layers": 2,
    "batch_size": 8,
    "batch_length": 3,
    "fanouts": "3 3",
    "cache_rows": 60,
    "cache_window": 4,
}
STATIC = {"model": "graphsage", "task": "classification", "batch_size": 4, "batch_length": 1, "cache_rows": 20}
FETCHED = ("batch_size", "batch_length", "fanouts", "cache_rows", "cache_window")
GENERATED = ("dataset", "generated_nodes", "generated_edges", "generated_snapshots")
CHANGES: dict[int, dict[str, Any]] = {
    1: {"links": "1>0 delay=2"},
    3: {"cache_policy": "prefetch"},
    5: {"links": "1>0 delay=2 rate=50; 2 delay=1"},
    7: {"cache_policy": "threshold", "cache_window": 2},
    10: {"congestion": "two_symmetric", "congestion_ms": 3.0},
    12: {"congestion_ms": 1.0, "congestion_mbit": 30.0},
    14: {"cache_policy": "fixed", "cache_bias": 2},
    16: {"cache_window": 3},
    18: {"cache_policy": "epoch_hot", "links": ""},
    20: {"cache_policy": "planner"},
    22: {"cache_policy": "on_demand", "congestion": "none"},
    28: {"cache_policy": "random"},
    31: {"cache_policy": "clairvoyant"},
    34: {"cache_policy": "fixed", "cache_bias": -1},
}
# with time for caches to be built: batches that are ready at a change, at most queue_depth, are still of the old way
LONG = {"epochs": 7, "congestion_from": 0, "slow_rank": 0, "slow_ms": 8.0}
Pair = tuple[int, int]  # owner, requester


def remote_config(policy: str = "fixed", **settings: Any) -> RunConfig:
    """Of a cache policy: as the system that is named for it, or as one that is not."""
    system = settings.pop("system", SYSTEMS.get(policy, "fixed-window"))
    small = (
        SMALL
        if isinstance(settings.get("dataset", ""), str)
        else {name: value for name, value in SMALL.items() if name not in GENERATED}
    )
    if "features" in catalogue.system(system).parts:
        return RunConfig(system=system, **{**small, "cache_policy": policy, **settings})
    return RunConfig(system=system, **{**{name: small[name] for name in small if name not in FETCHED}, **settings})


def policy_file(folder: Path, policy: str = "double_dqn", parts: int = PARTS) -> str:
    """A learned policy that has learned nothing, in a file: what it decides is of no matter here."""
    hidden, inputs, actions = 8, state_size(parts), 8 * parts
    count = (inputs + 1) * hidden + (hidden + 1) * actions
    parameters = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    facts = {"name": policy, "parts": parts, "seed": 0, "episodes": 0, "double": True, "hidden": (hidden,)}
    path = folder / f"{policy}_{parts}.npz"
    save_policy(path, StoredPolicy(**facts, remembers=False, constants=(), training="", parameters=parameters))
    return str(path)


def static_config(policy: str, **settings: Any) -> RunConfig:
    """On :func:`static_graph`."""
    return remote_config(policy, dataset=static_graph(), **{**STATIC, **settings})


@cache
def changing_graph() -> DynamicGraph:
    """Features are degrees, which change."""
    return load_for(RunConfig(system="pygt-dist", **{name: SMALL[name] for name in GENERATED}))


@cache
def static_graph() -> DynamicGraph:
    """80 nodes in three classes whose features and edges stay, directed at random."""
    draw = np.random.default_rng(4)
    ends = draw.integers(0, 80, (2, 500))
    ends[0, :80] = np.arange(80)  # so that each is there
    return from_static(*ends, features=draw.random((80, 5), dtype=np.float32), labels=draw.integers(0, 3, 80))


def train_remote(config: RunConfig, folder: Path, *, graph: DynamicGraph | None = None, **more: Any) -> Trained:
    """Train one rank to its end."""
    return train_in_memory(config, graph or changing_graph(), folder / "last.pt", **more)


@contextmanager
def built_remote(
    config: RunConfig, group: Group | None = None, graph: DynamicGraph | None = None
) -> Iterator[RunComponents]:
    """What a config becomes, for a while."""
    built = build(config, graph or changing_graph(), SoloGroup() if group is None else group)
    try:
        yield built
    finally:
        built.close()


@cache
def asked_keys() -> dict[tuple[int, int], list[NDArray[np.int64]]]:
    """(part, step) -> keys that a small run's batch reads of each owner, sampled again."""
    with built_remote(remote_config("on_demand")) as built:
        assert isinstance(built.strategy, RemoteFeatureStrategy)
        space, found = built.strategy.service.space, {}
        for part in built.strategy.parts:
            for step in range(EPOCHS * STEPS):
                keys = part.sampler.sample(step).keys
                owners = space.owners(keys)
                found[part.number, step] = [keys[owners == owner] for owner in range(PARTS)]
        return found


# what was served


class Served:
    """What servers had served when they were closed, and what their clients noted, with what was fetched too early."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_servers: dict[Pair, Pair] = defaultdict(lambda: (0, 0))
        self.left_over: list[tuple[Any, ...]] = []  # rows of ``fetches`` after the last step, without step and epoch
        close_service, close_part = FeatureService.close, RemotePart.close

        def closed(service: FeatureService) -> None:
            with suppress(Exception):  # closed already
                for pair, counts in service._server.served().items():
                    self.by_servers[pair] = tuple(map(sum, zip(self.by_servers[pair], counts, strict=True)))
            close_service(service)

        def part_closed(part: RemotePart) -> None:
            close_part(part)
            self.left_over += part.rows()["fetches"]

        monkeypatch.setattr(FeatureService, "close", closed)
        monkeypatch.setattr(RemotePart, "close", part_closed)

    def noted(self, recorder: RecordingRecorder) -> dict[Pair, Pair]:
        """(owner, requester) -> RPCs and bytes that were recorded, or would have been in a further step."""
        found: dict[Pair, Pair] = defaultdict(lambda: (0, 0))
        rows = [(row["part"], row["owner"], row["bytes"]) for row in recorder.tables["fetches"]]
        rows += [(row[0], row[1], row[4]) for row in self.left_over]
        for part, owner, nbytes in rows:
            rpcs, passed = found[owner, part]
            found[owner, part] = rpcs + 1, passed + nbytes
        return found


# what happens to servers


class Struck(RecordingRecorder):
    """A recorder that sends a signal to the server of features of this process after some steps.

    Args:
        sent: the signal; None for a rank that has to wait for another one's.
        after: steps.
        meet: what ranks meet by once the signal has done its work.
    """

    def __init__(self, sent: signal.Signals | None, after: int, meet: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._sent, self._after, self._meet, self.struck_s = sent, after, meet, 0.0

    def check(self) -> None:
        """Strike once."""
        if self.struck_s or len(self.tables["steps"]) < self._after:
            return
        self.struck_s = time.monotonic()
        for server in servers_left() if self._sent is not None else ():
            os.kill(server.pid, self._sent)
            assert soon(lambda server=server: server.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED))
        self._meet()


def servers_left() -> list[psutil.Process]:
    """Processes that serve features for this one and live."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a zombie is one of these
            if "feature_cache.rpc.server_process" in " ".join(child.cmdline()):
                found.append(child)
    return found


def left() -> list[str]:
    """Servers and threads of fetched features that live on, and sockets of this process by their addresses."""
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("features-")]
    return [*threads, *(f"server {child.pid}" for child in servers_left())]


def sockets() -> int:
    """Sockets of this process."""
    return len(psutil.Process().net_connections("inet"))


def soon(condition: Any, timeout_s: float = 3.0) -> bool:
    """Whether something holds within a while: what closes a connection is not waited for by who asks for it."""
    until = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return bool(condition())


# reading records


def column(done: Trained, table: str, name: str, **where: Any) -> list[Any]:
    """Values of the rows that are as asked."""
    rows = done.recorder.tables[table]
    return [row[name] for row in rows if all(row[of] == value for of, value in where.items())]


def described(done: Trained, kind: str) -> list[tuple[int, dict[str, Any]]]:
    """Events of a kind, with their steps."""
    return [(row["step"], row["data"]) for row in done.recorder.events(kind)]
