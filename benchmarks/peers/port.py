"""Plain ports of the papers' functions: a loop over snapshots, COO products, one matrix product per gate.

This is how such models are usually written in torch. Parameters are the lab's, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from peers.case import HIDDEN, Case, Epoch, adam
from peers.workload import Workload

Parameters = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Snapshots:
    """T snapshots as sparse COO matrices (N, N), with features (T, N, F) and targets (T, N)."""

    convolutions: list[Tensor]
    walks_out: list[Tensor]
    walks_in: list[Tensor]
    features: Tensor
    targets: Tensor

    def to(self, device: str) -> Snapshots:
        """The same on a device."""
        graphs = ([graph.to(device) for graph in of] for of in (self.convolutions, self.walks_out, self.walks_in))
        return Snapshots(*graphs, self.features.to(device), self.targets.to(device))


def load(workload: Workload) -> Snapshots:
    """Ã = D^-1/2 (A + I) D^-1/2, D_out^-1 A^T and D_in^-1 A of every snapshot."""
    nodes, loops = workload.nodes, np.arange(workload.nodes)
    convolutions, out, into = [], [], []
    for source, target in workload.edges[:-1]:
        degree_in, degree_out = np.bincount(target, minlength=nodes), np.bincount(source, minlength=nodes)
        scale = (1.0 + degree_in) ** -0.5
        rows, columns = np.concatenate([target, loops]), np.concatenate([source, loops])
        convolutions.append(_coo(rows, columns, scale[rows] * scale[columns], nodes))
        out.append(_coo(source, target, 1.0 / degree_out[source], nodes))
        into.append(_coo(target, source, 1.0 / degree_in[target], nodes))
    features = torch.from_numpy(workload.features[:-1])
    return Snapshots(convolutions, out, into, features, torch.from_numpy(workload.targets.copy()))


def _coo(rows: np.ndarray, columns: np.ndarray, values: np.ndarray, nodes: int) -> Tensor:
    places = torch.from_numpy(np.stack([rows, columns]))
    values = torch.from_numpy(values).float()
    return torch.sparse_coo_tensor(places, values, (nodes, nodes), check_invariants=False).coalesce()


def prepare(case: Case, data: Snapshots, *, device: str = "cpu") -> Epoch:
    data, model = data.to(device), case.make_model().to(device)
    parameters = {name: nn.Parameter(p.detach().clone()) for name, p in model.named_parameters()}
    forward = PORTS[case.model]

    def loss_with_backward() -> float:
        loss = data.features.new_zeros(())
        for h, y in zip(forward(parameters, data), data.targets, strict=True):
            z = h @ parameters["readout_layer.weight"].T + parameters["readout_layer.bias"]
            loss = loss + nn.functional.mse_loss(z.squeeze(-1), y)
        loss = loss / len(data.targets)
        loss.backward()
        return float(loss.detach())

    return adam(list(parameters.values()), loss_with_backward)


def _gate(p: Parameters, prefix: str, gate: int, x: Tensor, h: Tensor) -> Tensor:
    """x W + h U + b of one gate."""
    bias = p[f"{prefix}gate_bias"][gate * HIDDEN : (gate + 1) * HIDDEN]
    return x @ p[f"{prefix}input_gates"][gate] + h @ p[f"{prefix}state_gates"][gate] + bias


def _lstm(p: Parameters, prefix: str, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    i, f, g, o = (_gate(p, prefix, gate, x, h) for gate in range(4))
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def tgcn(p: Parameters, data: Snapshots) -> list[Tensor]:
    """Zhao et al. 2019, with a graph convolution for each gate."""
    h = data.features.new_zeros(data.features.shape[1], HIDDEN)
    states = []

    def gate(number: int, a: Tensor, x: Tensor, h: Tensor) -> Tensor:
        own = slice(number * HIDDEN, (number + 1) * HIDDEN)
        convolved = a @ (x @ p["convolve.0.weight"][own].T) + p["convolve.0.bias"][own]
        return convolved @ p["input_gates.0"][number] + h @ p["state_gates.0"][number] + p["gate_bias.0"][own]

    for a, x in zip(data.convolutions, data.features, strict=True):
        update, reset = torch.sigmoid(gate(0, a, x, h)), torch.sigmoid(gate(1, a, x, h))
        h = update * h + (1 - update) * torch.tanh(gate(2, a, x, reset * h))
        states.append(h)
    return states


def evolvegcn_o(p: Parameters, data: Snapshots) -> list[Tensor]:
    """Pareja et al. 2020, layers one after another over the whole sequence, as IBM's code."""
    hs = list(data.features)
    layer = 0
    while f"first_weights.{layer}" in p:
        weights = p[f"first_weights.{layer}"]
        cell = torch.zeros_like(weights)
        own, into, bias = (p[f"{name}.{layer}"] for name in ("state_gates", "input_gates", "gate_bias"))
        biases = bias.view(4, *weights.shape)
        for t, a in enumerate(data.convolutions):
            i, f, o, g = (into[gate] @ weights + own[gate] @ weights + biases[gate] for gate in range(4))
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            weights = torch.sigmoid(o) * torch.tanh(cell)
            hs[t] = torch.relu(a @ (hs[t] @ weights))
        layer += 1
    return hs


def mpnn_lstm(p: Parameters, data: Snapshots) -> list[Tensor]:
    """Panagopoulos et al. 2021: two convolutions, side by side into two stacked LSTMs."""
    h1 = c1 = h2 = c2 = data.features.new_zeros(data.features.shape[1], HIDDEN)
    states = []
    for a, x in zip(data.convolutions, data.features, strict=True):
        first = torch.relu(a @ (x @ p["first.0"]))
        second = torch.relu(a @ (first @ p["second.0"]))
        h1, c1 = _lstm(p, "lower.0.", torch.cat([first, second], dim=1), h1, c1)
        h2, c2 = _lstm(p, "upper.0.", h1, h2, c2)
        states.append(h2)
    return states


def wdgcn(p: Parameters, data: Snapshots) -> list[Tensor]:
    """Manessi et al. 2020: a convolution, then an LSTM."""
    h = c = data.features.new_zeros(data.features.shape[1], HIDDEN)
    states = []
    for a, x in zip(data.convolutions, data.features, strict=True):
        h, c = _lstm(p, "lstm.0.", torch.relu(a @ (x @ p["convolve.0"])), h, c)
        states.append(h)
    return states


def cdgcn(p: Parameters, data: Snapshots) -> list[Tensor]:
    """Manessi et al. 2020, as ESDG has it: a convolution beside what it was fed, then an LSTM."""
    h = c = data.features.new_zeros(data.features.shape[1], HIDDEN)
    states = []
    for a, x in zip(data.convolutions, data.features, strict=True):
        pulled = a @ x
        h, c = _lstm(p, "lstm.0.", torch.relu(torch.cat([pulled, pulled @ p["convolve.0"]], dim=1)), h, c)
        states.append(h)
    return states


def dcrnn(p: Parameters, data: Snapshots, hops: int = 2) -> list[Tensor]:
    """Li et al. 2018: a GRU whose products are diffusions of [x ; h]."""
    features = data.features.shape[2]
    h = data.features.new_zeros(data.features.shape[1], HIDDEN)
    states = []

    def gate(number: int, terms: list[Tensor]) -> Tensor:
        own, bias = slice(number * HIDDEN, (number + 1) * HIDDEN), p["gate_bias.0"]
        of_x, of_h = p["input_gates.0"][number].split(features), p["state_gates.0"][number].split(HIDDEN)
        weights = torch.cat([part for pair in zip(of_x, of_h, strict=True) for part in pair])
        return torch.cat(terms, dim=1) @ weights + bias[own]

    def diffused(t: int, z: Tensor) -> list[Tensor]:
        terms = [z]
        for walk in (data.walks_out[t], data.walks_in[t]):
            walked = z
            for _ in range(hops):
                walked = walk @ walked
                terms.append(walked)
        return terms

    for t, x in enumerate(data.features):
        both = diffused(t, torch.cat([x, h], dim=1))
        update, reset = torch.sigmoid(gate(0, both)), torch.sigmoid(gate(1, both))
        candidate = torch.tanh(gate(2, diffused(t, torch.cat([x, reset * h], dim=1))))
        h = update * h + (1 - update) * candidate
        states.append(h)
    return states


PORTS: Mapping[str, Callable[[Parameters, Snapshots], list[Tensor]]] = {
    "tgcn": tgcn,
    "evolvegcn-o": evolvegcn_o,
    "mpnn-lstm": mpnn_lstm,
    "wdgcn": wdgcn,
    "cdgcn": cdgcn,
    "dcrnn": dcrnn,
}
