"""The end of a process whose exchanges do not abort."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from dtdg_lab.cluster import beacon
from dtdg_lab.cluster.beacon import Beacon


def hang() -> None:
    threading.Event().wait()


def fail() -> None:
    raise RuntimeError("NCCL has another error")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("abort", [hang, fail])
def test_an_abort_that_hangs_or_raises_does_not_keep_the_process(
    abort: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exits: queue.Queue[int] = queue.Queue()
    monkeypatch.setattr(os, "_exit", exits.put)
    monkeypatch.setattr(beacon, "Heartbeat", lambda *given, **settings: mock.Mock(silent_rank=None))
    for name in ("LOOK_S", "ABORT_S", "STEP_S"):
        monkeypatch.setattr(beacon, name, 0.02)
    watcher = Beacon(
        tmp_path,
        attempt=1,
        rank=0,
        size=2,
        store=None,
        silent_s=60.0,
        on_death=lambda dead, reason: None,
        failed=lambda: True,
        busy_file=None,
    )
    watcher.abort = abort
    watcher.start()
    assert exits.get(timeout=10.0) == 70
    watcher.close()
