"""Code that is defined in the script itself, as in a notebook, and all that is done with it on two engines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import dtdg_lab as lab
from dtdg_lab.config.options import Option
from dtdg_lab.core.errors import ClusterError, ConfigError
from dtdg_lab.core.plans import Schedule
from dtdg_lab.datasets.generators.synthetic import Growing
from dtdg_lab.models.tgcn import TGCN
from dtdg_lab.partition.base import Assigned
from dtdg_lab.systems.snapshot_groups.schedulers.base import scheduler
from dtdg_lab.tasks.regression import Regression

SMALL = {
    "generated_nodes": 60,
    "generated_edges": 240,
    "generated_snapshots": 20,
    "hidden": 4,
    "threads": 1,
    "ranks": 2,
    "parts": 2,
    "epochs": 2,
}
HALF = 0.5
PACE = Option(name="pace", owner="models", kind=float, default=1.0, low=0.0, high=2.0, meaning="Scale of inputs.")


def scaled(x: Any, pace: float) -> Any:
    """Return the inputs, scaled."""
    return x * (pace + HALF - 0.5)


class Paced(TGCN):
    """A T-GCN with scaled inputs."""

    def __init__(self, *sizes: int, pace: float = 1.0, **named: Any) -> None:
        super().__init__(*sizes, **named)
        self.pace = pace

    def spatial(self, layer: int, graph: Any, x: Any, state: Any) -> Any:
        """Pull scaled rows."""
        return super().spatial(layer, graph, scaled(x, self.pace), state)


@scheduler
def backwards(problem: Any) -> Schedule:
    """The last groups first."""
    order = list(range(len(problem.times_s)))[::-1]
    rows = [order[first : first + problem.ranks] for first in range(0, len(order), problem.ranks)]
    return Schedule(tuple(tuple((group,) for group in row) + ((),) * (2 - len(row)) for row in rows), len(order))


def stripes(graph: Any, parts: int) -> Assigned:
    """Every other node."""
    return Assigned(np.arange(graph.num_nodes, dtype=np.int64) % parts)


class Squared(Regression):
    """A regression by another name."""


class Ring(Growing):
    """A growing graph by another name."""


RING = Ring(name="ring")


def register_all() -> None:
    """Register everything above; a second call changes nothing."""
    lab.register(Paced, "model", "paced", options=[PACE])
    lab.register(backwards, "scheduler")
    lab.register(stripes, "partitioner")
    lab.register(Squared, "task", "squared")
    lab.register(RING, "data set", "ring")
    lab.register("outside_family.striped:FAMILY")


def refusal(act: Callable[[], Any]) -> str:
    """Return why something is refused; empty if it is not."""
    try:
        act()
    except ConfigError as error:
        return str(error)
    return ""


def main(folder: Path) -> dict[str, Any]:
    """Train, resume, fork, replay, race and study with it; return what came of it."""
    register_all()
    config = lab.RunConfig(system="psg", dataset="growing", model="paced", pace=0.5, **SMALL)
    here = lab.train(config.replace(ranks=1), runs_dir=folder / "here", progress=False)
    found: dict[str, Any] = {"here": here.summary["train_loss"]}
    with lab.Session(ranks=2, runs_dir=folder) as session:
        run = session.train(config).wait()
        found["model"], found["loss"] = str(run.path), run.summary["train_loss"]
        others = {
            "scheduler": lab.RunConfig(system="psg", dataset="growing", scheduler="backwards", **SMALL),
            "partitioner": lab.RunConfig(system="adgnn-t", dataset="growing", partitioner="stripes", **SMALL),
            "task": lab.RunConfig(system="psg", dataset="growing", task="squared", **SMALL),
            "family": lab.RunConfig(system="striped", dataset="growing", stripe_width=2, **SMALL),
            "data": lab.RunConfig(system="psg", dataset="ring", **SMALL),
        }
        found |= {name: str(session.train(other).wait().path) for name, other in others.items()}
        long = session.train(config.replace(epochs=400))
        lab.register(backwards, "scheduler", "late")
        try:
            long.set(scheduler="late")
        except ConfigError as error:
            found["late"] = str(error)
        long.stop()
        long.wait()
        resumed = session.resume(long, scheduler="late")
        resumed.stop()
        found["resumed"] = resumed.wait().status
        described = json.loads((long.path / "extensions.json").read_text())["extensions"]
        found["described"] = [extension["name"] for extension in described]
        fork = lab.runs.fork(run, session=session, epochs=3).wait()
        found["forked"] = fork.status
        found["replayed"] = bool(lab.runs.verify_replay(lab.runs.replay(run, session=session)))
        contestants = {"mine": config, "plain": config.replace(model="tgcn")}
        quiet = {"session": session, "runs_dir": folder, "progress": False}
        found["race"] = str(lab.race(contestants, name="both", seeds=(0,), **quiet).folder)
        over = {"model": ["tgcn", "paced"]}
        sweep = lab.Sweep(config, over=over, seeds=(0,))
        study = lab.run_study(sweep, name="models", **quiet)
        found["study"], found["trials"] = str(study.path), [trial.status for trial in study.trials]

        class Locked(Paced):
            """Refers to something that cannot be sent."""

            session_of_kernel = session

        lab.register(Locked, "model", "locked")
        found["beside"] = session.train(config).wait().status
        try:
            session.train(config.replace(model="locked"))
        except ClusterError as error:
            found["refused"] = str(error)

        class Changed(Paced):
            """The model, after its cell was changed."""

        lab.register(Changed, "model", "paced", options=[PACE])
        found["changed"] = [
            refusal(lambda: session.resume(run)),
            refusal(lambda: lab.race(contestants, name="both", seeds=(0,), **quiet)),
            refusal(lambda: lab.run_study(sweep, name="models", **quiet)),
        ]
    found["script"] = str(lab.runs.export(run.path, folder / "again.py", kind="script"))
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
