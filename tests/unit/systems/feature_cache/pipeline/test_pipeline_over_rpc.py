"""The pipeline over feature servers: same rows, and failures name the owner."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from dtdg_lab.core.errors import RunFailedError
from dtdg_lab.network.links import LinkState
from dtdg_lab.systems.feature_cache.pipeline.feature_path import FeaturePath
from dtdg_lab.systems.feature_cache.pipeline.feature_pipeline import FeaturePipeline
from dtdg_lab.systems.feature_cache.rpc.client import FeatureClient
from dtdg_lab.systems.feature_cache.rpc.server import FeatureServer
from tests.feature_world import World
from tests.thinning import thinned

TOKEN, PART, STEPS = bytes(range(16)), 0, 24


class Path:
    """A pipeline of part 0, whose other parts are served by processes of their own."""

    def __init__(self) -> None:
        self.world = World(parts=3, snapshots=2, features=7)
        self.servers = [self._server(part) for part in (1, 2)]
        self.addresses = {part: address for server in self.servers for part, address in server.addresses.items()}

    def _server(self, part: int) -> FeatureServer:
        return FeatureServer({part: self.world.own(part).rows}, {part: self.world.space.of_part(part)}, TOKEN)

    def set_links(self, links: LinkState) -> None:
        for server in self.servers:
            server.set_links(links)

    def pipeline(self, path: FeaturePath, timeout_s: float = 5.0) -> FeaturePipeline:
        return FeaturePipeline(
            self.world.own(PART),
            sample=self.world.sample,
            path=path,
            epoch_steps=10,
            stop=STEPS,
            fetcher=lambda: FeatureClient(PART, self.addresses, TOKEN, 7, timeout_s),
        )


def _served() -> Iterator[Path]:
    path = Path()
    yield path
    for server in path.servers:
        server.close()


served = pytest.fixture(_served, scope="module")
ended = pytest.fixture(_served)  # for those that end a server


@pytest.mark.parametrize("policy", thinned(["on_demand", "prefetch", "epoch_hot", "fixed"], [3]))
def test_rows_are_those_of_indexing_and_counts_those_of_the_servers(served: Path, policy: str) -> None:
    before = [server.served().get((owner, PART), (0, 0)) for owner, server in zip((1, 2), served.servers, strict=True)]
    pipeline = served.pipeline(FeaturePath.of_policy(policy, window=3, capacity=20))
    pipeline.start(0)
    for step in range(STEPS):
        resolved = pipeline.next(step)
        assert resolved.rows.tobytes() == served.world.rows[served.world.batch(step).keys].tobytes()
    pipeline.close()
    fetches = pipeline.take_rows()["fetches"]
    for owner, server, counted in zip((1, 2), served.servers, before, strict=True):
        noted = [row for row in fetches if row[1] == owner]
        rpcs, nbytes = np.subtract(server.served()[owner, PART], counted)
        assert rpcs == len(noted) > 0
        assert nbytes == sum(row[4] for row in noted)


def test_a_slow_link_shows_in_the_fetches_of_its_owner_alone(served: Path) -> None:
    delays = np.zeros((3, 3))
    delays[2] = 0.03
    served.set_links(LinkState(delays, np.full((3, 3), np.inf)))
    pipeline = served.pipeline(FeaturePath.of_policy("prefetch"))
    pipeline.start(0)
    for step in range(8):
        pipeline.next(step)
    pipeline.close()
    served.set_links(LinkState.clean(3))
    fetches = pipeline.take_rows()["fetches"]
    near, far = (float(np.median([row[5] for row in fetches if row[1] == owner])) for owner in (1, 2))
    assert far > 0.03 > near


@pytest.mark.slow
@pytest.mark.parametrize("policy", thinned(["fixed", "on_demand"]))
def test_an_owner_that_is_killed_is_named_in_training(ended: Path, policy: str) -> None:
    pipeline = ended.pipeline(FeaturePath.of_policy(policy, window=2, capacity=5), timeout_s=2.0)
    pipeline.start(0)
    pipeline.next(0)
    os.kill(ended.servers[1].pid, signal.SIGKILL)
    began = time.perf_counter()
    with pytest.raises(RunFailedError, match="feature server of part 2"):
        for step in range(1, STEPS):
            pipeline.next(step)
    assert time.perf_counter() - began < 4.0
    pipeline.close()


def test_the_end_wakes_threads_whose_owner_stands_still(ended: Path) -> None:
    os.kill(ended.servers[1].pid, signal.SIGSTOP)
    try:
        pipeline = ended.pipeline(FeaturePath.of_policy("fixed", window=2, capacity=5), timeout_s=60.0)
        pipeline.start(0)
        time.sleep(0.2)
        began = time.perf_counter()
        pipeline.close()
        assert time.perf_counter() - began < 3.0
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("features-")]
    finally:
        os.kill(ended.servers[1].pid, signal.SIGCONT)
