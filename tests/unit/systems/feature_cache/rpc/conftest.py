"""Feature servers and clients for tests of the RPC."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dtdg_lab.network.patterns import LinkState
from dtdg_lab.systems.feature_cache.rpc.client import FeatureClient
from dtdg_lab.systems.feature_cache.rpc.server import FeatureServer
from tests.feature_servers import KEYS, PARTS, ROWS, TOKEN, F


@pytest.fixture(scope="module")
def shared_server() -> Iterator[FeatureServer]:
    with FeatureServer(ROWS, KEYS, TOKEN) as server:
        yield server


@pytest.fixture
def server(shared_server: FeatureServer) -> FeatureServer:
    shared_server.set_links(LinkState.clean(PARTS))
    return shared_server


@pytest.fixture
def client(server: FeatureServer) -> Iterator[FeatureClient]:
    with FeatureClient(0, server.addresses, TOKEN, F, 30.0) as client:
        yield client


@pytest.fixture
def own() -> Iterator[FeatureServer]:
    """A server that may be killed."""
    with FeatureServer(ROWS, KEYS, TOKEN, timeout_s=5.0) as server:
        yield server
