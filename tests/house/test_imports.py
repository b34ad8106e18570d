"""Importing is light and starts nothing, and the packages the dashboard uses work where torch cannot be imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[2] / "dtdg_lab"
NAMESPACES = ("congestion", "control", "estimate", "inspect", "races")
NO_TORCH = (
    "advisor",
    "cards",
    "cluster",
    "core",
    "dashboard",
    "datasets",
    "energy",
    "export",
    "graphs",
    "lessons",
    "partition",
    "runs",
    "studies",
    "visualization",
    "widgets",
)
# files of the families of systems that build what trains; all others work without torch
TORCH_FILES = (
    "backprop",
    "chunks",
    "part_batches",
    "redistribution",
    "sampled",
    "shared_edges",
    "snapshot_times",
    "strategy",
)
HEAVY = ("torch", "dgl", "panel", "plotly", "pandas", "pyarrow", "ipyparallel", "zmq")

LIGHT = ("dtdg_lab", "dtdg_lab.config.run_config", "dtdg_lab.__main__", "dtdg_lab.visualization.graph")

# An import hook rather than sys.modules[name] = None, so that importlib.util.find_spec refuses too.
BLOCK = """
import json, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "dgl"):
            raise ModuleNotFoundError(f"{name} is blocked in this test", name=name)
sys.meta_path.insert(0, Refuse())
"""


def _fresh(code: str) -> Any:
    """What a fresh interpreter prints last, read as JSON."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def _modules(packages: tuple[str, ...]) -> list[str]:
    files = sorted(file for package in packages for file in (PACKAGE / package).rglob("*.py"))
    files += sorted(file for file in (PACKAGE / "systems").rglob("*.py") if file.stem not in TORCH_FILES)
    names = [".".join(("dtdg_lab", *file.relative_to(PACKAGE).with_suffix("").parts)) for file in files]
    return [name.removesuffix(".__init__") for name in names]


def test_every_package_without_torch_exists() -> None:
    assert [package for package in NO_TORCH if not (PACKAGE / package / "__init__.py").is_file()] == []
    assert {*TORCH_FILES} <= {file.stem for file in (PACKAGE / "systems").glob("*/*.py")}


def test_modules_the_dashboard_uses_import_without_torch_and_dgl() -> None:
    modules = _modules(NO_TORCH)
    alone = [f"dtdg_lab.{name}" for name in (*NAMESPACES, "__main__", "environment", "rl")]
    names = ["dtdg_lab", *modules, *alone]
    code = f"{BLOCK}\nimport importlib\nfor name in {names!r}: importlib.import_module(name)\n"
    assert _fresh(code + "print(json.dumps(sorted({'torch', 'dgl'} & set(sys.modules))))") == []


def test_configs_and_data_are_made_without_torch_and_dgl() -> None:
    code = f"""{BLOCK}
try:
    import torch
except ModuleNotFoundError as error:
    blocked = error.name
import dtdg_lab as lab
from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS
config = lab.RunConfig(system="psg", dataset="growing", model="evolvegcn-o", ranks=2, group_window=8)
assert lab.RunConfig.from_json(config.to_json()) == config
for name in catalogue.names("systems"):
    assert lab.describe(name)
    assert lab.RunConfig(system=name).flat
graph = lab.datasets.load("growing", generated_nodes=40, generated_edges=200, generated_snapshots=6)
print(json.dumps([blocked, config["group_window"], config.replace(learning_rate=0.5).learning_rate, len(OPTIONS) > 20,
                  graph.num_nodes, graph.num_snapshots > 0]))"""
    assert _fresh(code) == ["torch", 8, 0.5, True, 40, True]


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
