"""Kernels of their own, which tests kill: processes that begin a session and train."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dtdg_lab.config.run_config import RunConfig

KERNEL = """
import sys, time
from dtdg_lab.cluster.session import Session
from dtdg_lab.cluster.worker import RankTask
from dtdg_lab.config.run_config import RunConfig
if __name__ == "__main__":
    session = Session(ranks=2, name="killed", runs_dir=sys.argv[1], idle_s=float(sys.argv[2]))
    run = session.train(RunConfig.load(sys.argv[3]))
    while run.live.progress.step < 10:
        time.sleep(0.05)
    print("training", flush=True)
    time.sleep(600)
"""


def start_kernel(tmp_path: Path, config: RunConfig, idle_s: float) -> subprocess.Popen[str]:
    """Start a process with a session named "killed", and wait until its run trains."""
    script, settings = tmp_path / "kernel.py", tmp_path / "config.json"
    script.write_text(KERNEL)
    settings.write_text(config.to_json())
    command = [sys.executable, str(script), str(tmp_path / "runs"), str(idle_s), str(settings)]
    kernel = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert kernel.stdout is not None and kernel.stdout.readline() == "training\n"
    return kernel
