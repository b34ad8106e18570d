"""Measurements of FlareDTDG's experiments: both ways of making decayed snapshots, and the phases of a training."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.systems.decayed_windows.shrinking import SurvivalOrder
from dtdg_lab.systems.decayed_windows.window import Window

FILE = Path(__file__).resolve().parents[3] / "reproduce" / "flaredtdg" / "measures.py"
SMALL = {
    "system": "flaredtdg",
    "model": "tgcn",
    "hidden": 8,
    "layers": 1,
    "dataset": "powerlaw",
    "generated_nodes": 120,
    "generated_edges": 500,
    "generated_snapshots": 41,
    "ranks": 1,
    "parts": 1,
    "threads": 1,
    "device": "cpu",
}


@pytest.fixture(scope="module")
def measures() -> ModuleType:
    specification = importlib.util.spec_from_file_location("flaredtdg_measures", FILE)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("is_induced", [False, True])
def test_three_nodes_of_a_ring_keep_two_edges(measures, is_induced):
    ring = Snapshot(np.arange(7), np.roll(np.arange(6, dtype=np.int32), 1))
    order = SurvivalOrder(np.array([1, 2, 3, 5, 0, 4]), np.zeros(6, np.int32), np.array([0, 3, 6]))
    windows = [Window(1, range(0, 2), 1, (1,))]
    assert measures.make_windows([ring, ring], order, windows, is_induced=is_induced) == 2


def test_induced_snapshots_have_the_losses_of_prefixes(measures):
    prefixes, induced = (
        measures.shrink({**SMALL, "epochs": 2, "edges": edges}, seed=0) for edges in ("prefixes", "induced")
    )
    assert induced["last_loss"] == pytest.approx(prefixes["last_loss"], rel=1e-5)
    assert min(prefixes["peak_bytes"], induced["peak_bytes"], prefixes["epoch_s"], induced["shrink_s"]) > 0


def test_shares_of_a_training_are_of_its_whole_time(measures):
    shares = measures.break_down({**SMALL, "epochs": 3, "patience": 1}, seed=0)
    parts = [value for name, value in shares.items() if name.endswith("_share")]
    assert 0.8 < sum(parts) <= 1 + 1e-9 and min(parts) >= 0
    assert 2 <= shares["epochs"] <= 3 and shares["total_s"] > 0
