"""Train with one registration of every kind, on one rank or two; print what came of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dtdg_lab as lab
from outside_family.all_kinds import RUNS, config_of, register_all


def train_here(folder: Path) -> dict[str, Any]:
    """Return the training loss of each run in this process, and what studies and a race of them did."""
    losses = {name: lab.train(config_of(name), runs_dir=folder, progress=False).summary["train_loss"] for name in RUNS}
    return {"losses": losses, **study_and_race(folder)}


def study_and_race(folder: Path) -> Mapping[str, Any]:
    """Return the states of two runs of a study of each kind, and the labels of a race."""
    base = config_of("smoothed").replace(model="wdgcn")
    axes = {
        "scheduler": (base, ("fold", "latest_first")),
        "task": (base, ("regression", "huber")),
        "model": (base, ("wdgcn", "smoothed")),
        "partitioner": (base.replace(system="adgnn-t"), ("hash", "ribbons")),
    }
    states: dict[str, list[str]] = {}
    for axis, (config, values) in axes.items():
        sweep = lab.Sweep(config, over={axis: values}, seeds=(0,))
        study = lab.run_study(sweep, name=axis, runs_dir=folder, progress=False)
        states[axis] = [trial.status for trial in study.trials]
    contenders = {"round_robin": base, "latest": base.replace(scheduler="latest_first")}
    race = lab.race(contenders, seeds=(0,), runs_dir=folder, progress=False)
    return {"studies": states, "raced": [run.label for run in race.runs]}


def train_on_engines(folder: Path, ranks: int) -> dict[str, Any]:
    """Return the training loss of each run on engines."""
    with lab.Session(ranks=ranks, runs_dir=folder) as session:
        runs = {name: session.train(config_of(name, ranks)).wait() for name in RUNS}
        return {"losses": {name: run.summary["train_loss"] for name, run in runs.items()}}


def main(folder: Path, ranks: int) -> dict[str, Any]:
    """Register all kinds, and train."""
    register_all()
    return train_here(folder) if ranks == 1 else train_on_engines(folder, ranks)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
