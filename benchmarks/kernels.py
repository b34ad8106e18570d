"""Neighbour sums and attention by backend: the measurements behind ``kernel="auto"``.

    python benchmarks/kernels.py [PART ...] [--quick] [--json FILE] [--keep] [--threads N]

Three backends for a sum over in-neighbours: torch's embedding_bag (single precision on the CPU), its CSR product, DGL.
Each case runs them in turn, so that other load affects all; ratios are the other's time over the first one's,
turn by turn (above 1: the first is faster). Times are one product forward; backward is the same product with the
transpose. Attention is forward and backward, by the lab's own operator and by DGL's.

Part ``shared``: convolutions of 16 snapshots of mathoverflow, edge life 31, forward and backward, in processor seconds:
each with its own product, and in groups whose common edges are aggregated once (``system="pipad"``). Part ``epochs``:
an epoch of T-GCN with two layers on the same graph, by `single` and by `pipad` with groups of two.

Part ``recurrence``: a GRU through 8 snapshots, forward and backward, in processor seconds: by the lab's kernel, by
plain PyTorch, and by plain PyTorch under `torch.compile`, which needs a C++ compiler on the CPU. Each shape is compiled
first; how long that takes is printed.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import result_files
import torch

import dtdg_lab as lab
from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.core.rng import generator
from dtdg_lab.engine.views.device_sequence import DeviceSequence
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.kernels.operators import Operators, OperatorSettings, SnapshotSource
from dtdg_lab.kernels.recurrence import gru_sequence
from dtdg_lab.kernels.spmm import Adjacency, has_bag_kernel, import_dgl
from dtdg_lab.systems.single.strategy import OverlapSequence

WIDTHS = (2, 16, 32, 64, 128)
SIZES = {"small": (600, 3_000), "medium": (20_000, 100_000), "large": (200_000, 1_000_000)}
TURNS, QUICK_TURNS, WARM_UPS = 15, 7, 2
Way = Callable[[], object]
Gru = Callable[..., torch.Tensor]


def random_snapshot(nodes: int, edges: int) -> Snapshot:
    """A random graph with popular targets."""
    draw = generator(0, "benchmark/edges", nodes, edges)
    targets = (nodes * draw.random(2 * edges) ** 3).astype(np.int64)
    pairs = np.unique(targets * nodes + draw.integers(0, nodes, 2 * edges))
    pairs = np.sort(draw.permutation(pairs)[:edges])
    indptr = np.searchsorted(pairs // nodes, np.arange(nodes + 1))
    return Snapshot(indptr.astype(np.int64), (pairs % nodes).astype(np.int32))


def product_ways(
    snapshot: Snapshot, width: int, *, weighted: bool, dtype: torch.dtype, dgl: bool, device: str = "cpu"
) -> dict[str, Way]:
    """The sums, by name; the first is what ``auto`` takes in single precision."""
    weights = generator(0, "benchmark/weights").random(snapshot.num_edges, dtype=np.float32) if weighted else None
    x = torch.randn(snapshot.num_nodes, width, generator=torch.Generator().manual_seed(0)).to(device, dtype)
    adjacency = Adjacency(snapshot.indptr, snapshot.indices, weights, dtype=dtype, device=device)
    ways: dict[str, Way] = {}
    if has_bag_kernel(device, dtype):
        ways["bag"] = lambda: adjacency.product(x)
    ways["csr"] = lambda: adjacency.matrix @ x
    if dgl:
        other = Adjacency(snapshot.indptr, snapshot.indices, weights, backend="dgl", dtype=dtype, device=device)
        ways["dgl"] = lambda: other.product(x)
    return ways


def attention_ways(snapshot: Snapshot, width: int, heads: int, *, dgl: bool, device: str = "cpu") -> dict[str, Way]:
    """Attention forward and backward, by backend."""
    draw, nodes = torch.Generator().manual_seed(0), snapshot.num_nodes
    given = [torch.randn(nodes, k, generator=draw).to(device).requires_grad_() for k in (width, heads, heads)]

    def way(backend: str) -> Way:
        settings = OperatorSettings(backend, device=device)
        operator = Operators(SnapshotSource(snapshot, range(nodes), settings), settings).attention()
        return lambda: operator.apply(*given).sum().backward()

    return {name: way(name) for name in ("torch", "dgl") if name == "torch" or dgl}


OVERLAPPING: dict[str, Any] = {"edge_life": 31}
SHARED_WIDTHS, GROUPS, SNAPSHOTS = (4, 8, 16, 32, 64), (2, 4, 8), 16


def shared_ways(graph: lab.DynamicGraph, width: int, *, device: str = "cpu") -> dict[str, Way]:
    """Convolutions of the last snapshots, forward and backward: each by itself, and in groups."""
    some = range(graph.num_snapshots - SNAPSHOTS, graph.num_snapshots)
    own = DeviceSequence(graph, device=device, dtype=torch.float32, kernel="auto")
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(SNAPSHOTS, graph.num_nodes, width, generator=draw).to(device)

    def way(sequence: DeviceSequence) -> Way:
        views, done, pairs = sequence.stacks(some), 0, []
        for view in views:
            pairs.append((view, x[done : done + len(view.snapshots)].flatten(0, 1).requires_grad_()))
            done += len(view.snapshots)

        def pull() -> None:
            found = [(view.pull(rows, "gcn"), rows) for view, rows in pairs]
            for y, rows in found:
                torch.autograd.grad(y, rows, y.detach())

        return pull

    return {"own": way(own)} | {f"groups of {size}": way(OverlapSequence(own, size)) for size in GROUPS}


def shared_rows(turns: int, device: str) -> list[dict[str, Any]]:
    """The spatial part by width: processor seconds, on a GPU seconds."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    graph, rows = lab.datasets.load("mathoverflow", **OVERLAPPING), []
    for width in SHARED_WIDTHS:
        case = {"graph": "mathoverflow", "type": "float32", "sum": f"{SNAPSHOTS} snapshots", "features": width}
        rows.append(report(case, compare(shared_ways(graph, width, device=device), turns, device, clock)))
    return rows


def epoch_rows(device: str) -> list[dict[str, Any]]:
    """Seconds of training epochs after the first, both systems in turn."""
    rows = []
    for hidden in (8, 32):
        found: dict[str, list[float]] = {"single": [], "pipad": []}
        for _ in range(2):
            for system, more in (("single", {}), ("pipad", {"shared_snapshots": 2})):
                config = lab.RunConfig(
                    system=system,
                    dataset="mathoverflow",
                    model="tgcn",
                    layers=2,
                    hidden=hidden,
                    epochs=3,
                    protocol="leaky",
                    device=device,
                    evaluate_every=3,
                    threads=torch.get_num_threads(),
                    **OVERLAPPING,
                    **more,
                )
                with tempfile.TemporaryDirectory() as folder:
                    run = lab.train(config, runs_dir=folder, progress=False)
                    found[system] += list(run.table("steps")["compute_s"])[1:]
        row = {"graph": "mathoverflow", "model": "tgcn", "features": hidden, **{f"{k}_s": v for k, v in found.items()}}
        print(row["features"], {name: float(np.median(of)) for name, of in found.items()}, flush=True)
        rows.append(row)
    return rows


def compare(
    ways: dict[str, Way], turns: int, device: str, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Any]:
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
                result_files.finish(device)
                began = clock()
                way()
                result_files.finish(device)
                rows[-1][name] = clock() - began
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


def backend_rows(turns: int, device: str, *, quick: bool, dgl: bool) -> list[dict[str, Any]]:
    """Sums and attention by backend."""
    rows = []
    for size in ("small", "medium") if quick else tuple(SIZES):
        snapshot = random_snapshot(*SIZES[size])
        for dtype in (torch.float32, torch.float64):
            for weighted in (False, True):
                for width in WIDTHS if dtype == torch.float32 else (32,):
                    ways = product_ways(snapshot, width, weighted=weighted, dtype=dtype, dgl=dgl, device=device)
                    case = {
                        "graph": size,
                        "type": str(dtype)[6:],
                        "sum": "weighted" if weighted else "plain",
                        "features": width,
                    }
                    rows.append(report(case, compare(ways, turns, device)))
        for heads in (1, 4):
            case = {"graph": size, "type": "float32", "sum": f"attention/{heads}", "features": 32}
            rows.append(
                report(case, compare(attention_ways(snapshot, 32, heads, dgl=dgl, device=device), turns, device))
            )
    return rows


GRU_SNAPSHOTS, GRU_SIZES = 8, ((32, 16), (256, 32), (2_000, 32))  # nodes, hidden


def plain_gru(
    x: torch.Tensor, h: torch.Tensor, weights: torch.Tensor, *, feed: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """The recurrence of `gru_sequence` without a kernel: (S, n, C) -> (S, n, H)."""
    states = []
    for inputs in (x @ feed + bias).unbind():
        update_in, reset_in, candidate_in = inputs.chunk(3, dim=1)
        update, reset = torch.sigmoid(update_in + h @ weights[0]), torch.sigmoid(reset_in + h @ weights[1])
        candidate = torch.tanh(candidate_in + (reset * h) @ weights[2])
        h = update * h + (1 - update) * candidate
        states.append(h)
    return torch.stack(states)


def recurrence_rows(turns: int, device: str, *, quick: bool) -> list[dict[str, Any]]:
    """A GRU forward and backward, by nodes and width: processor seconds, on a GPU seconds."""
    clock, rows = time.process_time if device == "cpu" else time.perf_counter, []
    for nodes, hidden in GRU_SIZES[:1] if quick else GRU_SIZES:
        shapes = ((GRU_SNAPSHOTS, nodes, hidden), (3, hidden, hidden), (hidden, 3 * hidden), (3 * hidden,))
        draw = torch.Generator().manual_seed(0)
        x, weights, feed, bias = (
            (torch.randn(shape, generator=draw) / hidden**0.5).to(device).requires_grad_() for shape in shapes
        )
        h = torch.zeros(nodes, hidden, device=device)

        def run(gru: Gru, given: Sequence[torch.Tensor] = (x, h, weights, feed, bias)) -> torch.Tensor:
            *inputs, feed, bias = given
            return gru(*inputs, feed=feed, bias=bias)

        def way(gru: Gru, run: Callable[[Gru], torch.Tensor] = run) -> Way:
            return lambda: run(gru).square().sum().backward()

        compiled = torch.compile(plain_gru, dynamic=False)
        began = time.perf_counter()
        way(compiled)()
        result_files.finish(device)
        print(
            f"compiled in {time.perf_counter() - began:.1f} s, same bits: "
            f"{torch.equal(run(compiled), run(gru_sequence))}"
        )
        ways = {"kernel": way(gru_sequence), "plain": way(plain_gru), "compiled": way(compiled)}
        case = {"graph": f"{nodes} nodes", "type": "float32", "sum": "GRU", "features": hidden}
        rows.append(report(case, compare(ways, turns, device, clock)))
    return rows


PARTS = ("rows", "shared", "epochs", "recurrence")


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all where none is named")
    parser.add_argument("--quick", action="store_true", help="small and medium graphs, fewer turns: seconds")
    result_files.add_arguments(parser)
    parser.add_argument("--threads", type=int, default=1, help="threads of each product (default 1, as for one rank)")
    chosen = parser.parse_args(given)
    if unknown := set(chosen.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; parts are {', '.join(PARTS)}")
    chosen.parts = result_files.parts_on(parser, chosen.device, chosen.parts, on_gpu=PARTS)
    return chosen


def main() -> int:
    given = arguments()
    torch.set_num_threads(given.threads)
    try:
        dgl = bool(import_dgl())
    except NotAvailableError as error:
        dgl = False
        print(f"without DGL: {error}")
    machine = result_files.machine("dgl", threads=given.threads)
    print(f"{result_files.device_name(given.device)}; {machine}\ngraph, type, weights, width")
    turns, parts = QUICK_TURNS if given.quick else TURNS, given.parts or PARTS
    found: dict[str, Any] = {}
    if "rows" in parts:
        found["rows"] = backend_rows(turns, given.device, quick=given.quick, dgl=dgl)
    if "shared" in parts:
        found["shared"] = shared_rows(turns, given.device)
    if "epochs" in parts:
        found["epochs"] = epoch_rows(given.device)
    if "recurrence" in parts:
        found["recurrence"] = recurrence_rows(turns, given.device, quick=given.quick)
    result_files.write(given, machine, found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
