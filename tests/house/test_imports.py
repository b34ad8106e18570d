"""Importing the package, its command line and what child processes need is light and starts nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

HEAVY = ("torch", "dgl", "panel", "plotly", "pandas", "pyarrow", "ipyparallel", "zmq")

LIGHT = ("dtdg_lab", "dtdg_lab.config.run_config", "dtdg_lab.cli", "dtdg_lab.visualization.graphs.statistics")


def _fresh(code: str) -> Any:
    """What a fresh interpreter prints last, read as JSON."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_importing_is_light_and_starts_nothing() -> None:
    code = f"""
import json, sys, threading
heavy = {{}}
for name in {LIGHT!r}:
    __import__(name)
    heavy[name] = sorted(set({HEAVY!r}) & set(sys.modules))
import psutil
print(json.dumps([heavy, threading.active_count(), len(psutil.Process().children())]))"""
    assert _fresh(code) == [{name: [] for name in LIGHT}, 1, 0]
