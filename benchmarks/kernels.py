"""DGL's copy_u_sum against torch's CSR product: the measurement behind ``kernel="auto"``.

    python benchmarks/kernels.py [--quick] [--json FILE] [--threads N]

Each case runs both products in turn, so that what else the machine does hits both; the ratio is torch's time over
DGL's, pair by pair (above 1: DGL is faster). Times are one product, forward, or forward and backward.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.core.streams import generator
from dtdg_lab.kernels.adjacency import Adjacency
from dtdg_lab.kernels.backend import import_dgl

WIDTHS = (2, 16, 32, 64)
SIZES = {"small": (600, 3_000), "medium": (2_000, 20_000), "large": (25_000, 250_000)}
PAIRS, QUICK_PAIRS, WARM_UPS = 30, 10, 3
PASSES = ("forward", "forward+backward")


def random_edges(nodes: int, edges: int) -> tuple[np.ndarray, np.ndarray]:
    """In-neighbours of a random graph with popular sources: indptr (N + 1,) and indices (E,)."""
    draw = generator(0, "benchmark/edges", nodes, edges)
    sources = (nodes * draw.random(2 * edges) ** 3).astype(np.int64)
    pairs = np.unique(draw.integers(0, nodes, 2 * edges) * nodes + sources)
    pairs = np.sort(draw.permutation(pairs)[:edges])
    indptr = np.searchsorted(pairs // nodes, np.arange(nodes + 1))
    return indptr.astype(np.int64), (pairs % nodes).astype(np.int32)


def timed_s(adjacency: Adjacency, x: torch.Tensor, backward: bool) -> float:
    """Seconds of one product."""
    x = x.detach().requires_grad_(backward)
    began = time.perf_counter()
    y = adjacency.multiply(x)
    if backward:
        y.backward(torch.ones_like(y))
    return time.perf_counter() - began


def compare(adjacencies: dict[str, Adjacency], width: int, backward: bool, pairs: int) -> dict[str, Any]:
    """Times of both products, and the ratio of each pair."""
    nodes = adjacencies["torch"].shape[1]
    x = torch.randn(nodes, width, generator=torch.Generator().manual_seed(0))
    apart = (adjacencies["dgl"].multiply(x) - adjacencies["torch"].multiply(x)).abs().max().item()
    for _ in range(WARM_UPS):
        for adjacency in adjacencies.values():
            timed_s(adjacency, x, backward)
    gc.disable()
    try:
        rows = [{name: timed_s(a, x, backward) for name, a in adjacencies.items()} for _ in range(pairs)]
    finally:
        gc.enable()
    ratios = sorted(row["torch"] / row["dgl"] for row in rows)
    medians = {f"{name}_s": float(np.median([row[name] for row in rows])) for name in adjacencies}
    spread = {"ratio_min": ratios[0], "ratio_median": float(np.median(ratios)), "ratio_max": ratios[-1]}
    return {**medians, **spread, "pairs": pairs, "largest_difference": apart}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small and medium graphs, fewer pairs: seconds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows and the machine there")
    parser.add_argument("--threads", type=int, default=1, help="threads of each product (default 1, as for one rank)")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    try:
        version = import_dgl().__version__
    except NotAvailableError as error:
        print(f"nothing to compare: {error}")
        return 0
    sizes = ("small", "medium") if given.quick else tuple(SIZES)
    machine = {"processor": platform.machine(), "threads": given.threads, "torch": torch.__version__, "dgl": version}
    print(f"unweighted neighbour sum, float32, CPU; {machine}")
    print(f"{'graph':8} {'N':>7} {'E':>8} {'F':>4} {'pass':17} {'dgl':>9} {'torch':>9}   torch/dgl min, median, max")
    rows = []
    for size in sizes:
        nodes, edges = SIZES[size]
        indptr, indices = random_edges(nodes, edges)
        adjacencies = {name: Adjacency(indptr, indices, None, backend=name) for name in ("dgl", "torch")}
        for width in WIDTHS:
            for step in PASSES:
                found = compare(adjacencies, width, step == PASSES[1], QUICK_PAIRS if given.quick else PAIRS)
                case = {"graph": size, "nodes": nodes, "edges": len(indices), "features": width, "pass": step}
                rows.append({**case, **found})
                print(
                    f"{size:8} {nodes:7} {len(indices):8} {width:4} {step:17} {found['dgl_s'] * 1e3:6.3f} ms "
                    f"{found['torch_s'] * 1e3:6.3f} ms   {found['ratio_min']:.2f} {found['ratio_median']:.2f} "
                    f"{found['ratio_max']:.2f}"
                )
    if given.json:
        given.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
