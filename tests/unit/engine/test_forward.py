"""Snapshots in blocks and nodes in pieces have the hidden rows of one snapshot after another."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dtdg_lab.config import catalogue
from dtdg_lab.engine.forward import BLOCK_NUMBERS, forward
from dtdg_lab.engine.views.device_sequence import DeviceSequence
from dtdg_lab.kernels.parallel_map import STEP_NUMBERS
from dtdg_lab.models.base import DynamicModel
from tests.factories import random_graph
from tests.gradients import double_model

NODES, HIDDEN = 19, 4


@torch.no_grad()
def _one_by_one(model: DynamicModel, sequence: DeviceSequence, snapshots: range) -> list[Tensor]:
    state, rows = model.initial_state(NODES), []
    for t in snapshots:
        view = sequence.view(t)
        h, state = model.snapshot(view, view.inputs, state)
        rows.append(h)
    return rows


@pytest.mark.parametrize("nodes", [7, NODES])  # of a piece; the first does not divide 19
@pytest.mark.parametrize("snapshots", [1, 4, 6])  # of a block; the second leaves a shorter one
@pytest.mark.parametrize("name", catalogue.names("models"))
def test_blocks_and_pieces_are_exact(name: str, snapshots: int, nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_graph(NODES, 8, share=0.15, seed=5)
    model = double_model(name, 2, outputs=1, seed=2)
    sequence = DeviceSequence(graph, device="cpu", dtype=torch.float64, kernel="torch")
    every = range(1, graph.num_snapshots)
    wanted = _one_by_one(model, sequence, every)
    monkeypatch.setitem(BLOCK_NUMBERS, "cpu", snapshots * NODES * HIDDEN)
    monkeypatch.setitem(STEP_NUMBERS, "cpu", nodes * HIDDEN)
    state = model.initial_state(NODES)
    rows = dict(forward(model, sequence.view, every, state, num_nodes=NODES))
    assert list(rows) == list(every)
    for mine, theirs in zip(rows.values(), wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-14)
        assert not mine.requires_grad
