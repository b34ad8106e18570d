"""Neighbour sums and attention by backend: the measurements behind ``kernel="auto"``.

    python benchmarks/kernels.py [--quick] [--json FILE] [--keep] [--threads N]

Three backends for a sum over in-neighbours: torch's embedding_bag (single precision on the CPU), its CSR product, DGL.
Each case runs them in turn, so that other load affects all; ratios are the other's time over the first one's,
turn by turn (above 1: the first is faster). Times are one product forward; backward is the same product with the
transpose. Attention is forward and backward, by the lab's own operator and by DGL's.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from contenders import results

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.core.rng import generator
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.operators import Operators, OperatorSettings, SnapshotSource
from dtdg_lab.kernels.spmm import Adjacency, has_bag_kernel, import_dgl

WIDTHS = (2, 16, 32, 64, 128)
SIZES = {"small": (600, 3_000), "medium": (20_000, 100_000), "large": (200_000, 1_000_000)}
TURNS, QUICK_TURNS, WARM_UPS = 15, 7, 2
Way = Callable[[], object]


def random_snapshot(nodes: int, edges: int) -> Snapshot:
    """A random graph with popular targets."""
    draw = generator(0, "benchmark/edges", nodes, edges)
    targets = (nodes * draw.random(2 * edges) ** 3).astype(np.int64)
    pairs = np.unique(targets * nodes + draw.integers(0, nodes, 2 * edges))
    pairs = np.sort(draw.permutation(pairs)[:edges])
    indptr = np.searchsorted(pairs // nodes, np.arange(nodes + 1))
    return Snapshot(indptr.astype(np.int64), (pairs % nodes).astype(np.int32))


def product_ways(snapshot: Snapshot, width: int, *, weighted: bool, dtype: torch.dtype, dgl: bool) -> dict[str, Way]:
    """The sums, by name; the first is what ``auto`` takes in single precision."""
    weights = generator(0, "benchmark/weights").random(snapshot.num_edges, dtype=np.float32) if weighted else None
    x = torch.randn(snapshot.num_nodes, width, generator=torch.Generator().manual_seed(0)).to(dtype)
    adjacency = Adjacency(snapshot.indptr, snapshot.indices, weights, dtype=dtype)
    ways: dict[str, Way] = {}
    if has_bag_kernel("cpu", dtype):
        ways["bag"] = lambda: adjacency.product(x)
    ways["csr"] = lambda: adjacency.matrix @ x
    if dgl:
        other = Adjacency(snapshot.indptr, snapshot.indices, weights, backend="dgl", dtype=dtype)
        ways["dgl"] = lambda: other.product(x)
    return ways


def attention_ways(snapshot: Snapshot, width: int, heads: int, *, dgl: bool) -> dict[str, Way]:
    """Attention forward and backward, by backend."""
    draw, nodes = torch.Generator().manual_seed(0), snapshot.num_nodes
    given = [torch.randn(nodes, k, generator=draw).requires_grad_() for k in (width, heads, heads)]

    def way(backend: str) -> Way:
        settings = OperatorSettings(backend)
        operator = Operators(SnapshotSource(snapshot, range(nodes), settings), settings).attention()
        return lambda: operator.apply(*given).sum().backward()

    return {name: way(name) for name in ("torch", "dgl") if name == "torch" or dgl}


def compare(ways: dict[str, Way], turns: int) -> dict[str, Any]:
    """Median times, and the ratio of each turn to the first way."""
    for _ in range(WARM_UPS):
        for way in ways.values():
            way()
    rows: list[dict[str, float]] = []
    gc.disable()
    try:
        for _ in range(turns):
            rows.append({})
            for name, way in ways.items():
                began = time.perf_counter()
                way()
                rows[-1][name] = time.perf_counter() - began
    finally:
        gc.enable()
    first = next(iter(ways))
    ratios = {name: sorted(row[name] / row[first] for row in rows) for name in list(ways)[1:]}
    return {
        "seconds": {name: float(np.median([row[name] for row in rows])) for name in ways},
        "ratios": {name: (of[0], float(np.median(of)), of[-1]) for name, of in ratios.items()},
    }


def report(case: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    times = "  ".join(f"{name} {seconds * 1e3:8.3f} ms" for name, seconds in found["seconds"].items())
    ratios = "; ".join(
        f"{name} {low:.1f} {middle:.1f} {high:.1f}" for name, (low, middle, high) in found["ratios"].items()
    )
    what = " ".join(str(value) for value in case.values())
    print(f"{what:38} {times}   ratios min, median, max: {ratios}", flush=True)
    return {**case, **found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small and medium graphs, fewer turns: seconds")
    results.add_arguments(parser)
    parser.add_argument("--threads", type=int, default=1, help="threads of each product (default 1, as for one rank)")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    try:
        dgl = bool(import_dgl())
    except NotAvailableError as error:
        dgl = False
        print(f"without DGL: {error}")
    machine = results.machine("dgl", threads=given.threads)
    print(f"CPU; {machine}\ngraph, type, weights, width")
    turns, rows = QUICK_TURNS if given.quick else TURNS, []
    for size in ("small", "medium") if given.quick else tuple(SIZES):
        snapshot = random_snapshot(*SIZES[size])
        for dtype in (torch.float32, torch.float64):
            for weighted in (False, True):
                for width in WIDTHS if dtype == torch.float32 else (32,):
                    ways = product_ways(snapshot, width, weighted=weighted, dtype=dtype, dgl=dgl)
                    case = {"graph": size, "type": str(dtype)[6:], "sum": "weighted" if weighted else "plain",
                            "features": width}  # fmt: skip
                    rows.append(report(case, compare(ways, turns)))
        for heads in (1, 4):
            case = {"graph": size, "type": "float32", "sum": f"attention/{heads}", "features": 32}
            rows.append(report(case, compare(attention_ways(snapshot, 32, heads, dgl=dgl), turns)))
    results.write(given, machine, {"rows": rows})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
