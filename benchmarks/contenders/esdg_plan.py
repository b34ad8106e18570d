"""Graphs and sizes of benchmarks/esdg.py: what all of it measures, and what --quick does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from contenders.transfers import SMOOTHING
from dtdg_lab.config.run_config import RunConfig

MODELS = tuple(SMOOTHING)
HIDDEN, LAYERS, THETA = 6, 2, 0.1  # sections 6.1 and 6.4
PROTOCOL = "esdg-2021"  # trains on all snapshots but the last
DENSITY = 3  # edges a node of section 6.3


@dataclass(frozen=True, slots=True)
class Workload:
    """A graph: its data set and options.

    Attributes:
        name: what rows call it.
        dataset: of the catalogue.
        options: of the data set.
    """

    name: str
    dataset: str
    options: Mapping[str, Any] = field(default_factory=dict)


def generated(name: str, dataset: str, nodes: int, edges: int, snapshots: int, **options: Any) -> Workload:
    """A generated graph whose snapshots all have as many edges."""
    sizes = {"generated_nodes": nodes, "generated_edges": edges, "generated_snapshots": snapshots}
    return Workload(name, dataset, {**sizes, **options})


@dataclass(frozen=True, slots=True)
class Scaling:
    """Sizes of parts strong and weak.

    Attributes:
        dataset: of the catalogue.
        nodes: of the graph that one rank has, of weak scaling; strong scaling has twice as many.
        snapshots: T, trained.
    """

    dataset: str
    nodes: int
    snapshots: int


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    Attributes:
        models: of all parts.
        transfers: graphs of part transfers.
        workload: graph of parts blocks and volumes.
        overlapped: graph of part overlap: with rows enough to be sent piece by piece.
        linked: graphs of part links.
        ranks: measured; those of more than the cores by own time.
        epoch_ranks: of part transfers.
        turns: steps timed.
        repeats: of transfers without training.
        blocks: numbers of blocks.
        links_bytes_s: that a rank sends in a second over the slow networks of part overlap: over the first, exchanges
            take about as long as computing.
        counted: ranks whose volumes are computed.
        strong: sizes.
        weak: sizes.
        predicted: ranks that scaling is continued to.
        epochs: of part links.
        device: of part transfers.
    """

    models: tuple[str, ...]
    transfers: tuple[Workload, ...]
    workload: Workload
    overlapped: Workload
    linked: tuple[Workload, ...]
    ranks: tuple[int, ...]
    epoch_ranks: tuple[int, ...]
    turns: int
    repeats: int
    blocks: tuple[int, ...]
    links_bytes_s: tuple[float, ...]
    counted: tuple[int, ...]
    strong: Scaling
    weak: Scaling
    predicted: tuple[int, ...]
    epochs: int
    device: str = "cpu"


_ALL_RANKS = (1, 2, 4, 8, 16, 32, 64, 128)
_DENSE = generated("powerlaw", "powerlaw", 2_000, 100_000, 66)
FULL_PLAN = Plan(
    MODELS, (_DENSE, Workload("collegemsg", "collegemsg", {"cut": 66}), Workload("bitcoin-otc", "bitcoin-otc")),
    generated("transactions", "transactions", 4_000, 12_000, 66),
    generated("powerlaw", "powerlaw", 8_000, 80_000, 66),
    (Workload("bitcoin-otc", "bitcoin-otc"), Workload("collegemsg", "collegemsg"),
     generated("transactions", "transactions", 2_000, 6_000, 42)),
    (1, 2, 4), (1, 2), 7, 5, (1, 2, 4, 8, 16), (100e6, 50e6), (2, 4, 16, 64),
    Scaling("powerlaw", 512, 200), Scaling("uniform", 512, 256), _ALL_RANKS, 20,
)  # fmt: skip
QUICK_PLAN = Plan(
    MODELS[-1:], (generated("powerlaw", "powerlaw", 400, 8_000, 24),),
    generated("transactions", "transactions", 400, 1_200, 34),
    generated("powerlaw", "powerlaw", 3_000, 30_000, 34),
    (generated("transactions", "transactions", 200, 600, 18),),
    (1, 2), (1,), 3, 2, (1, 2, 4), (100e6, 50e6), (2, 4, 16),
    Scaling("powerlaw", 128, 32), Scaling("uniform", 128, 32), _ALL_RANKS, 5,
)  # fmt: skip


def config(workload: Workload, model: str, *, ranks: int, system: str = "esdg", **settings: Any) -> RunConfig:
    """A run as the paper has them: links, two layers of six numbers; the graph smoothed as the model asks."""
    data = {**workload.options, **SMOOTHING[model]}
    settings = {"overlap": False, **settings} if system == "esdg" else settings
    return RunConfig(
        dataset=workload.dataset, system=system, model=model, hidden=HIDDEN, layers=LAYERS, ranks=ranks, device="cpu",
        threads=1, protocol=PROTOCOL, **{**data, **settings},
    )  # fmt: skip
