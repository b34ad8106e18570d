"""Optimisers: those of torch, without the import of its compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.kernels.optimizers import OPTIMIZERS, make_optimizer
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


def trained(optimizer: torch.optim.Optimizer, steps: int) -> list[torch.Tensor]:
    """Return the parameters of an optimizer after some steps."""
    parameters = optimizer.param_groups[0]["params"]
    for step in range(steps):
        for parameter in parameters:
            parameter.grad = (parameter.detach() * (step + 3)).sin()
        optimizer.step()
    return [parameter.detach().clone() for parameter in parameters]


def weights(dtype: torch.dtype) -> list[torch.nn.Parameter]:
    """Return parameters whose lengths are no multiples of a vector's."""
    draw = torch.Generator().manual_seed(3)
    return [torch.nn.Parameter(torch.randn(shape, generator=draw, dtype=dtype)) for shape in [(37, 9), (5,), (1, 1)]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updating_all_parameters_at_once_has_the_bits_of_one_by_one(name: str, dtype: torch.dtype) -> None:
    at_once = make_optimizer(name, weights(dtype), learning_rate=0.05)
    one_by_one = OPTIMIZERS[name](weights(dtype), lr=0.05, foreach=False)
    assert all(map(torch.equal, trained(at_once, 30), trained(one_by_one, 30)))


def test_a_gpu_updates_in_one_launch_and_states_carry_no_implementation() -> None:
    there = make_optimizer("adam", weights(torch.float32), learning_rate=0.05, device="cuda:1")
    here = make_optimizer("adam", weights(torch.float32), learning_rate=0.05)
    assert there.defaults["fused"] is True
    trained(here, 3)
    there.load_state_dict(here.state_dict())
    assert there.param_groups[0]["fused"] is True and not there.param_groups[0]["foreach"]
    here.load_state_dict(there.state_dict())
    assert here.param_groups[0]["foreach"] is True and not here.param_groups[0]["fused"]
    assert [len(here.state[parameter]) for parameter in here.param_groups[0]["params"]] == [3, 3, 3]
