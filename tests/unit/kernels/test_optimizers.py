"""Optimisers: those of torch, without the import of its compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.testing.training import Trained, train_in_memory
from tests.factories import small_config, small_graph

pytestmark = pytest.mark.usefixtures("one_thread")
# 39 labelled snapshots: 12 train, 3 validate, 24 test. Groups of 4 start at 9 of the 12: 5 steps an epoch on 2 parts.
STEPS = 5


def config_of(**changes: Any) -> RunConfig:
    return small_config(**{"parts": 2, "epochs": 2, **changes})


def train(path: Path, config: RunConfig | None = None, **how: Any) -> Trained:
    return train_in_memory(config or config_of(), small_graph(), path / "last.pt", **how)


def test_optimisers_are_torch_s_without_its_compiler() -> None:
    code = """
import sys, torch
from dtdg_lab.kernels.optimizers import OPTIMIZERS
found = {}
for own, kind in [(True, OPTIMIZERS), (False, {"adam": torch.optim.Adam, "sgd": torch.optim.SGD})]:
    for name in kind:
        weight = torch.nn.Parameter(torch.linspace(-1, 1, 9))
        optimizer = kind[name]([weight], lr=0.1)
        for step in range(5):
            optimizer.zero_grad()
            (weight * step).sin().sum().backward()
            optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
        found[own, name] = weight.detach()
    assert not own or "torch._dynamo" not in sys.modules, "its import takes a second"
for name in OPTIMIZERS:
    assert torch.equal(found[True, name], found[False, name])
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
