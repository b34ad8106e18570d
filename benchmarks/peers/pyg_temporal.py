"""PyTorch Geometric Temporal's T-GCN, driven as its examples do. It is optional: install it to compare.

    pip install --no-deps torch_geometric_temporal==0.56.2 torch_geometric==2.8.1 && pip install xxhash

It imports torch_sparse for cells that are not used here; where that package has no build for this torch, a stand-in of
a few lines serves.
"""

from __future__ import annotations

import importlib.util
import sys
import types
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from dtdg_lab.models.tgcn import TGCN
from peers.case import FEATURES, HIDDEN, Case, Epoch, adam
from peers.workload import Workload

Data = tuple[list[Tensor], Tensor, Tensor]


def is_installed() -> bool:
    return all(importlib.util.find_spec(name) for name in ("torch_geometric", "torch_geometric_temporal"))


def _library() -> Any:
    if "torch_sparse" not in sys.modules and importlib.util.find_spec("torch_sparse") is None:
        stand_in = types.ModuleType("torch_sparse")
        for name in ("SparseTensor", "fill_diag", "matmul", "mul", "sum"):
            setattr(stand_in, name, type(name, (), {}))
        sys.modules["torch_sparse"] = stand_in
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch_geometric_temporal.nn.recurrent as library
    return library


def load(workload: Workload) -> Data:
    _library()
    edges = [torch.from_numpy(pair) for pair in workload.edges[:-1]]
    return edges, torch.from_numpy(workload.features[:-1]), torch.from_numpy(workload.targets.copy())


def prepare(case: Case, data: Data, *, device: str = "cpu") -> Epoch:
    edges, features, targets = [pairs.to(device) for pairs in data[0]], data[1].to(device), data[2].to(device)
    cell = _library().TGCN(FEATURES, HIDDEN)
    readout = nn.Linear(HIDDEN, 1)
    copy_weights(case.make_model(), cell, readout)  # type: ignore[arg-type]
    cell, readout = cell.to(device), readout.to(device)

    def loss_with_backward() -> float:
        h, loss = None, features.new_zeros(())
        for edge_index, x, y in zip(edges, features, targets, strict=True):
            h = cell(x, edge_index, None, h)
            loss = loss + nn.functional.mse_loss(readout(h).squeeze(-1), y)
        loss = loss / len(edges)
        loss.backward()
        return float(loss.detach())

    return adam([*cell.parameters(), *readout.parameters()], loss_with_backward)


@torch.no_grad()
def copy_weights(model: TGCN, cell: Any, readout: nn.Linear) -> None:
    """Give PyG-Temporal's cell the lab's parameters: gates u, r, c are its z, r, h."""
    convolve = model.convolve[0]
    for gate, letter in enumerate("zrh"):
        rows = slice(gate * HIDDEN, (gate + 1) * HIDDEN)
        convolution, linear = getattr(cell, f"conv_{letter}"), getattr(cell, f"linear_{letter}")
        convolution.lin.weight.copy_(convolve.weight[rows])
        convolution.bias.copy_(convolve.bias[rows])
        linear.weight.copy_(torch.cat([model.input_gates[0][gate], model.state_gates[0][gate]]).T)
        linear.bias.copy_(model.gate_bias[0][rows])
    readout.load_state_dict(model.readout_layer.state_dict())
