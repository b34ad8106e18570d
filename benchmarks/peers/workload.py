"""Fixed dynamic graphs, the same bits on every machine: popular targets, one edge in ten renewed at every snapshot.

S0 is so small that calls cost more than their work, W0 is for a quick look, and figures are quoted on W1 and W2; M1 has
many nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# nodes, labelled snapshots, edges of each snapshot
SIZES = {
    "S0": (600, 40, 3_000),
    "W0": (2_000, 10, 10_000),
    "W1": (20_000, 40, 100_000),
    "W2": (200_000, 20, 1_000_000),
    "M1": (1_000_000, 20, 250_000),
}
SEED, KEPT, ZIPF = 20261121, 0.9, 0.6  # shares the definition with the measurements of PEERS.md


@dataclass(frozen=True, slots=True)
class Workload:
    """T + 1 snapshots of N nodes; input of step t are edges and features at t, its label is taken at t + 1.

    Attributes:
        name: of ``SIZES``.
        edges: (T + 1, 2, E) sources and targets, each snapshot sorted by target, then source; no loop, no duplicate.
        features: (T + 1, N, 2) log(1 + in-degree) and log(1 + out-degree) over the largest of all, float32.
    """

    name: str
    edges: NDArray[np.int64]
    features: NDArray[np.float32]

    @property
    def snapshots(self) -> int:
        return len(self.edges) - 1

    @property
    def nodes(self) -> int:
        return self.features.shape[1]

    @property
    def targets(self) -> NDArray[np.float32]:
        """(T, N): the next snapshot's in-degree feature."""
        return self.features[1:, :, 0]

    def save(self, folder: Path) -> None:
        np.save(folder / f"{self.name}-edges.npy", self.edges)
        np.save(folder / f"{self.name}-features.npy", self.features)

    @classmethod
    def load(cls, name: str, folder: Path) -> Workload:
        return cls(name, np.load(folder / f"{name}-edges.npy"), np.load(folder / f"{name}-features.npy"))


def make(name: str) -> Workload:
    nodes, snapshots, edges = SIZES[name]
    draw = np.random.Generator(np.random.PCG64(SEED))
    share = np.cumsum((draw.permutation(nodes) + 10.0) ** -ZIPF)
    share /= share[-1]

    def candidates(count: int) -> NDArray[np.int64]:
        """Distinct pairs as target N + source, targets by popularity, sources evenly."""
        target = np.searchsorted(share, draw.random(count)).clip(max=nodes - 1)
        source = draw.integers(0, nodes, count)
        return np.unique((target * nodes + source)[target != source])

    keys = [np.sort(draw.permutation(candidates(int(edges * 1.02)))[:edges])]
    for _ in range(snapshots):
        stays = draw.permutation(keys[-1])[: round(KEPT * len(keys[-1]))]
        new = np.setdiff1d(candidates(int((edges - len(stays)) * 1.1)), stays)
        keys.append(np.sort(np.concatenate([stays, draw.permutation(new)[: edges - len(stays)]])))
    pairs = np.stack([np.stack([key % nodes, key // nodes]) for key in keys])
    degrees = [[np.bincount(pair[end], minlength=nodes) for pair in pairs] for end in (1, 0)]  # in, out
    features = np.log1p(np.stack(degrees, axis=-1), dtype=np.float64).astype(np.float32)
    return Workload(name, pairs, features / features.max())
