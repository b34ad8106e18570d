"""A plain port of FlareDTDG's steps, written from the paper alone: autograd, a loop over the snapshots of each window.

Sections 3.2, 3.3 and 3.5 (algorithm 1): chunks are shuffled once an epoch, and nodes renumbered so that those that
survive longest come first; decayed snapshots are prefixes of this numbering; states are inherited from the step before,
without history; the loss is that of the newest snapshot. The ladder of counts is that of SYSTEMS.md, section 4. Gates
are fused, and products are torch's for CSR. One process, no exchanges. Chunks are runs of nodes rather than METIS's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from math import ceil

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from contenders.case import HIDDEN, RATE, Case, Epoch
from contenders.workload import Workload

FULL, DECAYED, CHUNKS, ALPHA = 2, 6, 128, 0.1
Parameters = Mapping[str, Tensor]
Cell = Callable[[Parameters, Tensor, Tensor, list[Tensor]], list[Tensor]]  # A, x, states -> states, the output last


def load(workload: Workload) -> Workload:
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
    return workload


def prepare(case: Case, data: Workload, *, device: str = "cpu") -> Epoch:
    model = case.make_model().to(device)
    parameters = {name: nn.Parameter(p.detach().clone()) for name, p in model.named_parameters()}
    optimizer = torch.optim.Adam(list(parameters.values()), lr=RATE)
    cell, tensors = CELLS[case.model]
    draw, kept = np.random.default_rng(0), counts()

    def epoch() -> float:
        order, rows = shuffled(data.nodes, draw)
        graphs = Renumbered(data, order)
        features, targets = (torch.from_numpy(of[:, order]).to(device) for of in (data.features[:-1], data.targets))
        cut, losses = int(draw.integers(0, data.snapshots - 1)), []
        for segment in (range(cut, data.snapshots - 1), range(cut)):
            before: dict[int, list[Tensor]] = {}  # after each snapshot, of the step before
            for target in segment:
                window = range(max(segment.start, target - FULL - DECAYED + 1), target + 1)
                states, now = [features.new_zeros(0, HIDDEN)] * tensors, {}
                for t in window:
                    age = target - t
                    height = data.nodes if age < FULL else int(rows[kept[age - FULL]])
                    states = [grown(x, before.get(t - 1), of, height) for of, x in enumerate(states)]
                    states = cell(parameters, graphs.prefix(t, height).to(device), features[t, :height], states)
                    now[t] = [x.detach() for x in states]
                z = states[-1] @ parameters["readout_layer.weight"].T + parameters["readout_layer.bias"]
                loss = nn.functional.mse_loss(z.squeeze(-1), targets[target])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(float(loss.detach()))
                before = now
        return sum(losses) / len(losses)

    return epoch


def counts() -> list[int]:
    """Chunks of each decayed snapshot, newest first: a geometric ladder down to one, rounded up."""
    top = ceil(ALPHA * CHUNKS)
    return [ceil(top ** (1 - place / (DECAYED - 1)) - 1e-9) for place in range(DECAYED)]


def shuffled(nodes: int, draw: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The nodes by survival of their chunks, and how many the first c chunks have."""
    chunks = np.array_split(np.arange(nodes), CHUNKS)
    order = [chunks[place] for place in draw.permutation(CHUNKS)]
    return np.concatenate(order), np.concatenate([[0], np.cumsum([len(chunk) for chunk in order])])


def grown(now: Tensor, before: list[Tensor] | None, of: int, height: int) -> Tensor:
    """States of the first nodes, then inherited ones of those that enter the window now, or zeros."""
    inherited = before[of][len(now) : height] if before else now[:0]
    lacking = now.new_zeros(height - len(now) - len(inherited), HIDDEN)
    return torch.cat([now, inherited, lacking])


class Renumbered:
    """All snapshots in the numbering of an epoch, edges by target."""

    def __init__(self, data: Workload, order: NDArray[np.int64]) -> None:
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        self._edges = []
        for source, target in data.edges[:-1]:
            to = place[target]
            by_target = np.argsort(to, kind="stable")
            to, of = to[by_target], place[source][by_target]
            self._edges.append((np.searchsorted(to, np.arange(len(order) + 1)), to, of))

    def prefix(self, t: int, height: int) -> Tensor:
        """D^-1/2 (A + I) D^-1/2 of the first nodes and the edges among them."""
        starts, to, of = self._edges[t]
        to, of = to[: starts[height]], of[: starts[height]]
        inner = of < height
        to, of = to[inner], of[inner]
        loops = np.arange(height)
        degrees = np.bincount(to, minlength=height) + 1.0
        scale = degrees**-0.5
        rows, columns = np.concatenate([to, loops]), np.concatenate([of, loops])
        by_row = np.argsort(rows, kind="stable")
        values = torch.from_numpy((scale[rows] * scale[columns])[by_row]).float()
        indptr, columns = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64), columns[by_row]
        size = (height, height)
        return torch.sparse_csr_tensor(
            torch.from_numpy(indptr), torch.from_numpy(columns), values, size, check_invariants=False
        )


def _side_by_side(gates: Tensor) -> Tensor:
    return gates.transpose(0, 1).flatten(1)


def tgcn(p: Parameters, a: Tensor, x: Tensor, states: list[Tensor]) -> list[Tensor]:
    """Zhao et al. 2019, with a graph convolution for each gate."""
    (h,), own, gates = states, p["state_gates.0"], 2 * HIDDEN
    convolved = (a @ x) @ p["convolve.0.weight"].T + p["convolve.0.bias"]
    fed = [part @ w for part, w in zip(convolved.split(HIDDEN, 1), p["input_gates.0"], strict=True)]
    bias = p["gate_bias.0"]
    both = torch.sigmoid(torch.cat(fed[:2], dim=1) + h @ _side_by_side(own[:2]) + bias[:gates])
    update, reset = both.chunk(2, dim=1)
    return [update * h + (1 - update) * torch.tanh(fed[2] + (reset * h) @ own[2] + bias[gates:])]


def _lstm(p: Parameters, prefix: str, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    of_x, of_h = (_side_by_side(p[f"{prefix}{name}_gates"]) for name in ("input", "state"))
    i, f, g, o = (x @ of_x + h @ of_h + p[f"{prefix}gate_bias"]).chunk(4, dim=1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def mpnn_lstm(p: Parameters, a: Tensor, x: Tensor, states: list[Tensor]) -> list[Tensor]:
    """Panagopoulos et al. 2021: two convolutions, side by side into two stacked LSTMs; c1, h1, c2, h2."""
    c1, h1, c2, h2 = states
    first = torch.relu((a @ x) @ p["first.0"])
    second = torch.relu((a @ first) @ p["second.0"])
    h1, c1 = _lstm(p, "lower.0.", torch.cat([first, second], dim=1), h1, c1)
    h2, c2 = _lstm(p, "upper.0.", h1, h2, c2)
    return [c1, h1, c2, h2]


CELLS: Mapping[str, tuple[Cell, int]] = {"tgcn": (tgcn, 1), "mpnn-lstm": (mpnn_lstm, 4)}
