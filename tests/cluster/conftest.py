"""Sessions for tests, each with state, cache and runs of its own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtdg_lab.cluster.session import Session
from dtdg_lab.core.config import RunConfig


@pytest.fixture
def config() -> RunConfig:
    """A small steered run: long enough to be caught in the middle."""
    return RunConfig(
        system="psg", dataset="growing", ranks=2, epochs=400, learning_rate=0.01, hidden=8, checkpoint_every_s=0.2,
        generated_nodes=200, generated_edges=800, generated_snapshots=30, threads=1, evaluate_every=20,
    )  # fmt: skip


@pytest.fixture(scope="module")
def module_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of sessions for a module's tests."""
    return tmp_path_factory.mktemp("state")


@pytest.fixture(autouse=True)
def _state(module_state: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DTDG_LAB_STATE", str(module_state))
    with warnings.catch_warnings():
        # ipyparallel leaves its launchers' Popen objects to the garbage collector on purpose
        warnings.simplefilter("ignore", ResourceWarning)
        yield


@pytest.fixture(scope="module")
def session(module_state: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Two engines, shared by a module's tests."""
    import os

    os.environ["DTDG_LAB_STATE"] = str(module_state)
    os.environ["DTDG_LAB_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    made = Session(ranks=2, runs_dir=tmp_path_factory.mktemp("runs"), idle_s=60)
    yield made
    made.close()
