"""One session of two engines for all tests, and a folder of sessions for tests that start their own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtdg_lab.cluster.session import Session
from dtdg_lab.config.run_config import RunConfig
from tests.following import stop


@pytest.fixture
def config() -> RunConfig:
    """A small steered run: long enough to be caught in the middle."""
    slowly = {"learning_rate": 0.01, "checkpoint_every_s": 0.2, "threads": 1, "evaluate_every": 20}
    sizes = {"generated_nodes": 200, "generated_edges": 800, "generated_snapshots": 30, "hidden": 8}
    return RunConfig(system="psg", dataset="growing", ranks=2, epochs=400, **slowly, **sizes)


@pytest.fixture(scope="module")
def module_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of sessions for a module's tests."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="session")
def shared_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the shared session."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture(autouse=True)
def _state(
    request: pytest.FixtureRequest, shared_state: Path, module_state: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    shared = "session" in request.fixturenames
    monkeypatch.setenv("DTDG_LAB_STATE", str(shared_state if shared else module_state))
    with warnings.catch_warnings():
        # ipyparallel leaves its launchers' Popen objects to the garbage collector on purpose
        warnings.simplefilter("ignore", ResourceWarning)
        yield


@pytest.fixture(scope="session")
def two_engines(shared_state: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session that is started once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DTDG_LAB_STATE", str(shared_state))
        patch.setenv("DTDG_LAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        made = Session(ranks=2, runs_dir=tmp_path_factory.mktemp("runs"), idle_s=600)
    yield made
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DTDG_LAB_STATE", str(shared_state))
        made.close()


@pytest.fixture
def session(two_engines: Session) -> Iterator[Session]:
    """Two engines that make no run, and make none when the test is over."""
    yield two_engines
    left = two_engines.under_way
    for run in left:
        stop(run)
    if not two_engines.ready:
        two_engines.repair()
    assert not left, f"the test has left {left} under way"
