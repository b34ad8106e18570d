"""Stored graphs opened by several threads at a time, as generators of batches do."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path

import pytest

from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.graphs.storage import read


@pytest.fixture
def switching():
    """Threads change within whatever collects garbage, parsers of array headers included."""

    def change(phase: str, info: dict[str, int]) -> None:
        time.sleep(0)

    before = gc.get_threshold()
    gc.callbacks.append(change)
    gc.set_threshold(3)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(change)


@pytest.mark.slow
def test_threads_that_open_a_graph_do_not_disturb_each_other(tmp_path: Path, switching: None) -> None:
    folder, failures = tmp_path / "graph", []
    load_dataset("growing", generated_nodes=16, generated_edges=32, generated_snapshots=12).save(folder)

    def open_it() -> None:
        try:
            for _ in range(15):
                read(folder, mmap=True)
        except Exception as error:  # a thread has nobody to raise to
            failures.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
