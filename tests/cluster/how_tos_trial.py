"""Import every file of docs/extending.md in a folder, and look at the dashboard of a session; print what was seen."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import dtdg_lab as lab
from dtdg_lab.dashboard.app import Dashboard

RUNS: dict[str, dict[str, Any]] = {
    "at once": {
        "system": "psg",
        "dataset": "ring",
        "model": "smoothed",
        "task": "absolute",
        "scheduler": "shortest_first",
    },
    "partitioner": {"system": "adgnn-t", "dataset": "growing", "partitioner": "ranges"},
    "system": {"system": "stretches", "dataset": "growing"},
}


def shown(dashboard: Dashboard, run: Any) -> dict[str, Any]:
    """Return what the live page shows of a run, and the added chart."""
    dashboard.watch.look()
    dashboard.tick()
    charts = dashboard.live.charts
    return {
        "charts": [*charts.picture.specs, *charts.others.specs],
        "bars": len(run.figures()["longest_step"]["data"][0]["x"]),
        "caption": run.captions()["longest_step"],
    }


def main(folder: Path) -> dict[str, Any]:
    """Import the files, open the dashboard, train on two ranks."""
    sys.path.insert(0, str(folder))
    for file in sorted(folder.glob("my_*.py")):
        importlib.import_module(file.stem)
    seen: dict[str, Any] = {}
    with lab.Session(ranks=2, runs_dir=folder / "runs") as session:
        dashboard = Dashboard(session)
        controls = dashboard.settings.controls
        names = ("model", "task", "scheduler", "partitioner", "dataset")
        seen["offered"] = {name: list(controls[name].widget.values) for name in names}
        seen["cards"] = [card["name"] for card in json.loads(dashboard.navigation.content)["cards"]]
        for name, settings in RUNS.items():
            run = session.train(lab.RunConfig(ranks=2, epochs=3, generated_nodes=200, **settings)).wait()
            seen[name] = {"loss": run.summary["train_loss"], **shown(dashboard, run)}
        dashboard.close()
    return seen


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
