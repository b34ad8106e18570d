"""The progress bar of a run."""

from __future__ import annotations

import io
import threading
import time
from pathlib import Path
from types import SimpleNamespace

from dtdg_lab.runs.progress import show_progress
from dtdg_lab.runs.stored_run import open_run
from tests.stored_runs import finished_run


def test_the_bar_follows_a_run_to_its_end(tmp_path: Path) -> None:
    stored = open_run(finished_run(tmp_path).path)
    handle = SimpleNamespace(status="running", reason="", live=stored.live, lock=threading.Lock())

    def end() -> None:
        time.sleep(0.1)
        handle.reason, handle.status = "stopped by hand", "stopped"

    ending = threading.Thread(target=end)
    ending.start()
    screen = io.StringIO()
    assert show_progress(handle, every_s=0.02, file=screen, mininterval=0) == "stopped"
    ending.join()
    assert "running" in screen.getvalue()
    last = screen.getvalue().split("\r")[-1]
    assert "3/3" in last
    assert "stopped: stopped by hand" in last
    assert "step=15" in last
    assert "loss=0.1667" in last
    assert "imbalance=1.20" in last
