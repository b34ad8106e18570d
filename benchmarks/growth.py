"""How time and memory grow: partitioning, scheduling, planning and the live layer, over one size at a time.

    python benchmarks/growth.py [PART ...] [--quick] [--json FILE] [--keep]

Parts: partitions (over nodes), schedules (over snapshot groups, and over ranks with 16 groups each), plans (the work
of each rank, by a forecast, over snapshots, and over ranks), live (an update of a run's page, over its steps, and over
its ranks).

Each size runs in a process of its own. A row has the seconds and the additional peak memory at the largest size, and
exponents: e, where ten times the size takes 10^e times the time, between the last two sizes; n log n is 1.07 to 1.16.
Sizes end where the next one would take more than two minutes if time grew with the size.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import record_tables
import result_files

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.core.units import format_bytes, format_seconds
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.snapshot import Snapshot
from dtdg_lab.partition.base import make_partition, reads_file
from dtdg_lab.systems.snapshot_groups.schedulers.base import solve
from dtdg_lab.systems.workload import count_work

PARTS = ("partitions", "schedules", "plans", "live")
MOST_S = 120.0
LEAST_S, LEAST_BYTES = 0.005, 16e6  # below them, calls and the allocator decide, and there is no exponent
SEED = 20261130
GROUPS_OF_A_RANK = 16
EDGES_OF_A_NODE = 4
# one of each family, with its settings
SYSTEMS: dict[str, dict[str, Any]] = {
    "single": {},
    "esdg": {},
    "dygnex-g": {},
    "adgnn-t": {"partitioner": "hash"},
    "dynahb": {"partitioner": "hash"},
    "flaredtdg": {"partitioner": "hash"},
    "greendygnn": {"partitioner": "hash"},
}
Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured over growing sizes.

    Attributes:
        part: of the table.
        name: of the row.
        over: what grows.
        sizes: ascending.
        prepare: returns for a size what is timed.
    """

    part: str
    name: str
    over: str
    sizes: tuple[int, ...]
    prepare: Callable[[int], Work]


def random_graph(nodes: int, snapshots: int) -> DynamicGraph:
    """Return a graph with ``EDGES_OF_A_NODE`` random edges of each node in each snapshot, and one feature."""
    draw = np.random.default_rng(SEED)
    indptr = np.arange(0, EDGES_OF_A_NODE * nodes + 1, EDGES_OF_A_NODE, dtype=np.int64)
    offsets = np.arange(EDGES_OF_A_NODE, dtype=np.int64) * (nodes // EDGES_OF_A_NODE)
    found = []
    for _ in range(snapshots):
        # distinct and ascending in every row: one node from each quarter
        step = draw.integers(0, nodes // EDGES_OF_A_NODE, (nodes, EDGES_OF_A_NODE))
        found.append(Snapshot(indptr, (step + offsets).astype(np.int32).ravel()))
    features = np.ones((snapshots, nodes, 1), np.float32)
    targets = np.zeros((snapshots, nodes), np.float32)
    return DynamicGraph(
        name="random",
        snapshots=tuple(found),
        features=features,
        targets=targets,
        persistence=targets,
        source="benchmarks",
        edge_life=1,
    )


def partitioning(name: str, nodes: int) -> Work:
    graph = random_graph(nodes, 2)
    return lambda: make_partition(name, graph, 4)


def scheduling(name: str, groups: int, ranks: int) -> Work:
    draw = np.random.default_rng(SEED)
    solve(name, draw.random(101), 2, per_rank=2, time_limit_s=1.0)  # imports and compiles what it needs
    times_s = draw.lognormal(0.0, 0.5, groups)
    return lambda: solve(name, times_s, ranks, per_rank=2, time_limit_s=10.0)


def scheduling_of_ranks(name: str, ranks: int) -> Work:
    return scheduling(name, GROUPS_OF_A_RANK * ranks, ranks)


def planning(system: str, snapshots: int, ranks: int) -> Work:
    graph = random_graph(2_000, snapshots)
    config = RunConfig(system=system, dataset="uniform", ranks=ranks, parts=ranks, **SYSTEMS[system])
    return lambda: count_work(config, graph)


def updating(short: Path, steps: int, ranks: int) -> Work:
    tables, sources = record_tables.filled(short, ranks, steps)
    lines = record_tables.next_lines(tables, sources)

    def update() -> None:
        tables.add_lines(lines)
        record_tables.draw(charts, tables)

    charts = record_tables.charts_of_update(tables)
    record_tables.draw(charts, tables)  # the first one imports what they need
    return update


def subjects(short: Path, *, quick: bool) -> Iterator[Subject]:
    """Yield all subjects; ``short`` is a short run."""
    tens = [10**power for power in range(1, 8)]

    def sizes(first: int, last: int) -> tuple[int, ...]:
        return tuple(size for size in tens if first <= size <= (min(last, 10 * first) if quick else last))

    for name in catalogue.names("partition"):
        if not reads_file(name):
            yield Subject("partitions", name, "nodes", sizes(10_000, 10_000_000), partial(partitioning, name))
    for name in catalogue.names("scheduling"):
        yield Subject("schedules", name, "groups", sizes(10, 10_000), partial(scheduling, name, ranks=4))
        yield Subject(
            "schedules", name, "ranks", (1, 16) if quick else (1, 16, 256, 1024), partial(scheduling_of_ranks, name)
        )
    for name in SYSTEMS:
        yield Subject(
            "plans", name, "snapshots", sizes(100, 10_000), partial(planning, name, ranks=1 if name == "single" else 2)
        )
        if name != "single":
            yield Subject(
                "plans", name, "ranks", (2, 16) if quick else (2, 16, 256, 1024), partial(planning, name, 2_000)
            )
    yield Subject("live", "update", "steps", sizes(1_000, 100_000), partial(updating, short, ranks=2))
    yield Subject("live", "update", "ranks", (2, 4) if quick else (2, 4, 16), partial(updating, short, 10_000))


def measured(subject: Subject, size: int) -> tuple[float, float] | str:
    """Return seconds and additional bytes at a size, or why there are none; runs in a process of its own."""
    try:
        work = subject.prepare(size)
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak to what is held now
        held = _peak_bytes()
        began = time.perf_counter()
        work()
        seconds = time.perf_counter() - began
    except LabError as error:
        return str(error)
    of_children = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return seconds, float(max(_peak_bytes() - held, of_children))


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def row_of(subject: Subject) -> dict[str, Any]:
    """Return the row of a subject: its largest size, what it takes, and exponents between the last two sizes."""
    found: list[tuple[int, float, float]] = []
    note = ""
    for size, next_size in zip(subject.sizes, (*subject.sizes[1:], math.inf), strict=True):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            try:
                result = pool.submit(measured, subject, size).result()
            except BrokenProcessPool:
                result = "killed, most likely for want of memory"
        if isinstance(result, str):
            note = f"{size}: {result}"
            continue
        found.append((size, *result))
        if result[0] * next_size / size > MOST_S:
            break
    row: dict[str, Any] = {"subject": subject.name, "over": subject.over}
    if found:
        size, seconds, taken = found[-1]
        row |= {"size": size, "taken_s": seconds, "taken_bytes": taken}
    if len(found) > 1:
        row |= {"exponent": _exponent(found, 1, LEAST_S), "exponent_of_memory": _exponent(found, 2, LEAST_BYTES)}
    return {**row, "note": note} if note else row


def _line(row: dict[str, Any]) -> str:
    """Return a row as a line of a terminal."""
    parts = [f"{row['subject']} over {row['over']}"]
    if "size" in row:
        parts.append(
            f"{row['size']:,}: {format_seconds(row['taken_s'])}, {format_bytes(row['taken_bytes'])} more memory"
        )
    exponents = [row.get("exponent"), row.get("exponent_of_memory")]
    texts = ["too small to tell" if exponent is None else f"{exponent:.2f}" for exponent in exponents]
    parts += [f"exponents: time {texts[0]}, memory {texts[1]}"] * ("exponent" in row)
    return "; ".join([*parts, *filter(None, [row.get("note")])])


def _exponent(found: Sequence[tuple[int, float, float]], column: int, least: float) -> float | None:
    (small, *_), (large, *_) = found[-2:]
    less, more = found[-2][column], found[-1][column]
    return math.log(more / less) / math.log(large / small) if min(less, more) >= least else None


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="the two smallest sizes")
    result_files.add_arguments(parser)
    chosen = parser.parse_args(given)
    if unknown := set(chosen.parts) - {*PARTS}:
        parser.error(f"no part is called {', '.join(sorted(unknown))}; parts: {', '.join(PARTS)}.")
    result_files.parts_on(parser, chosen.device)
    return chosen


def main() -> None:
    """Measure, and print each row."""
    given = arguments()
    rows: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        short = record_tables.train(Path(folder)) if not given.parts or "live" in given.parts else Path(folder)
        for subject in subjects(short, quick=given.quick):
            if not given.parts or subject.part in given.parts:
                row = row_of(subject)
                print(f"{subject.part}: {_line(row)}", flush=True)
                rows.setdefault(subject.part, []).append(row)
    result_files.write(given, result_files.machine(), rows)


if __name__ == "__main__":
    main()
