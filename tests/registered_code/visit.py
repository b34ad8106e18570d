"""What another kernel, in which nothing is registered, does with runs of registered code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dtdg_lab as lab
from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import LabError


def refusal(action: Callable[[], Any]) -> str:
    """Return the message of the error that an action raises; empty without one."""
    try:
        action()
    except LabError as error:
        return str(error)
    return ""


def main(made: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Look at every run, and try to train on with it."""
    found: dict[str, Any] = {}
    paths = {kind: made[kind] for kind in ("model", "scheduler", "partitioner", "task", "data", "family")}
    for kind, path in paths.items():
        run = lab.runs.open(path)
        lab.plot(run)
        assert run.captions()
        page = run.report().read_text()
        exported = lab.runs.open(lab.runs.export(run, folder / f"{kind}.html"))
        found[kind] = {
            "status": run.status,
            "same": exported.summary == run.summary and exported.config == run.config,
            "settings": lab.runs.open(lab.runs.export(run, folder / f"{kind}.py", kind="script")).config == run.config,
            "noted": "is registered code" in page and "lab.register(" in page,
            "checkpoints": len(run.checkpoints),
            "train": refusal(lambda run=run: lab.train(run.config.replace(ranks=1), runs_dir=folder, progress=False)),
            "fork": refusal(lambda path=path: lab.runs.fork(path, ranks=1, epochs=9, runs_dir=folder)),
        }
    comparison = lab.runs.compare(list(paths.values()))
    found["compared"] = list(comparison.table["status"])
    race, study = lab.races.open(made["race"]), lab.studies.open(made["study"])
    page = lab.races.open(lab.runs.export(race, folder / "race.html"))
    found["race"], found["study"] = sorted(page.configs), [trial.status for trial in study.trials]
    found["race script"] = "class Paced" in lab.runs.export(race, folder / "race.py", kind="script").read_text()
    with lab.Session(ranks=2, runs_dir=folder) as session:
        more = {"session": session, "runs_dir": folder, "progress": False}
        found["repeat"] = refusal(lambda: lab.race(race.configs, seeds=(5,), **more))
        found["again"] = refusal(lambda: lab.run_study(study.sweep, name="models", **more))
        found["resume"] = refusal(lambda: session.resume(made["model"]))
        found["replay"] = refusal(lambda: lab.runs.replay(made["model"], session=session))
    found["listed"] = [name for kind in ("models", "scheduling", "systems") for name in catalogue.names(kind)]
    return found


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]), Path(sys.argv[2]))))
