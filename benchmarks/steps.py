"""Seconds of a training step of every system on two ranks, in turn on the same engines.

    python benchmarks/steps.py [--quick] [--json FILE] [--keep] [--only SYSTEM ...] [--ranks R] [--device cuda]

T-GCN, hidden width 32, one thread a rank. A run lasts some epochs, and its first epoch is left out; runs of all systems
take turns. Steps of different systems do different work, so compare a row with its own earlier one only.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import result_files
from peers.lab import as_graph
from peers.workload import make

import dtdg_lab as lab
from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import ConfigError, RunFailedError
from dtdg_lab.reproduction.timing_lock import timing_lock

TURNS, EPOCHS = 3, 4
SETTINGS = {"model": "tgcn", "hidden": 32, "threads": 1, "epochs": EPOCHS, "evaluate_every": EPOCHS}


def configs_of(systems: Sequence[str], dataset: str, ranks: int, device: str) -> dict[str, lab.RunConfig]:
    """The run of each system that takes the model and as many ranks."""
    configs = {}
    for system in systems:
        try:
            configs[system] = lab.RunConfig(system=system, dataset=dataset, ranks=ranks, device=device, **SETTINGS)
        except ConfigError as error:
            print(f"{system:18} left out: {error}")
    return configs


def step_of(run: lab.runs.StoredRun) -> dict[str, float]:
    """Median seconds of the steps after the first epoch, on the slowest rank, and the bytes that a step sends."""
    steps = run.table("steps")
    later = steps[steps["epoch"] > 0]
    by_step = later.groupby("step")
    return {
        "step_s": float(by_step["time_s"].max().median()),
        "sent_bytes": float(by_step["bytes_sent"].sum().median()),
    }


def measure(configs: dict[str, lab.RunConfig], turns: int, folder: Path) -> list[dict[str, Any]]:
    """A row of each system: its step in every turn."""
    turns_of: dict[str, list[dict[str, float]]] = defaultdict(list)
    failed: dict[str, str] = {}
    ranks = next(iter(configs.values())).ranks
    with lab.Session(ranks=ranks, runs_dir=folder) as session:
        for _ in range(turns):
            for system, config in configs.items():
                if system in failed:
                    continue
                run = session.train(config)
                try:
                    run.wait()
                except RunFailedError as error:
                    failed[system] = str(error).splitlines()[0]
                    continue
                turns_of[system].append(step_of(lab.runs.open(run.path)))
    rows = []
    for system, config in configs.items():
        row = {"system": system, "graph": config.dataset, "ranks": ranks}
        if system in failed:
            rows.append({**row, "failed": failed[system]})
        else:
            rows.append({**row, **{name: [turn[name] for turn in turns_of[system]] for name in turns_of[system][0]}})
    return rows


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the small graph S0 and one turn: about a minute")
    result_files.add_arguments(parser)
    parser.add_argument("--only", nargs="+", metavar="SYSTEM", help="systems to run (default: all)")
    parser.add_argument("--ranks", type=int, default=2, help="(default: 2)")
    chosen = parser.parse_args(given)
    chosen.only = [catalogue.system(name).name for name in chosen.only or catalogue.names("systems")]
    result_files.parts_on(parser, chosen.device, on_gpu=("rows",))
    return chosen


def main() -> int:
    given = arguments()
    machine = result_files.machine()
    with tempfile.TemporaryDirectory() as folder, timing_lock(timed=True, waiting=print):
        name = "S0" if given.quick else "W1"
        dataset = as_graph(make(name)).store()
        rows = measure(
            configs_of(given.only, dataset, given.ranks, given.device), 1 if given.quick else TURNS, Path(folder)
        )
    for row in rows:
        row["graph"] = name
        if "failed" in row:
            print(f"{row['system']:18} {row['failed']}")
        else:
            middle = sorted(row["step_s"])[len(row["step_s"]) // 2]
            print(f"{row['system']:18} {1e3 * middle:9.1f} ms a step")
    result_files.write(given, machine, {"rows": [row for row in rows if "failed" not in row]})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
