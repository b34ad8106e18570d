"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pandas  # noqa: F401  plotly fails on a module that another thread is importing
import pytest
from hypothesis import settings

pytest_plugins = ["tests.budget", "tests.thinning"]

ROOT = Path(__file__).resolve().parent.parent
# The same examples in every run, found ones are kept as @example; `make test-full` draws more, and others
settings.register_profile("test", deadline=None, max_examples=15, derandomize=True)
settings.register_profile("full", deadline=None, max_examples=100)
settings.load_profile("test")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real temporal graphs beside the project, or a skip that says so."""
    folder = ROOT.parent / "shared" / "data" / "real"
    if not (folder / "index.json").is_file():
        pytest.skip("no ../shared/data/real beside the project: real data sets are not on this machine")
    return folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests share one cache of their own and never touch the user's."""
    cache = tmp_path_factory.getbasetemp() / "cache"
    cache.mkdir(exist_ok=True)
    monkeypatch.setenv("DTDG_LAB_CACHE", str(cache))


@pytest.fixture(scope="module", autouse=True)
def _quick_collections() -> None:
    """Leave what earlier modules have imported out of garbage collections, which take half a second with it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Two threads that share a loaded core wait for each other at every small product."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
    torch.set_num_threads(threads)
