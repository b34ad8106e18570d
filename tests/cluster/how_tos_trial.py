"""Import every file of CONTRIBUTING.md in a folder, and look at the dashboard of a session; print what was seen."""

from __future__ import annotations

import importlib
import json
import sys
import time
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


def draw(dashboard: Dashboard, run: Any) -> dict[str, Any]:
    """Return the charts of a run on the live page, once they are drawn."""
    page = dashboard.pages["Charts of my_charts"]
    until_s = time.monotonic() + 30
    while not page.charts.figures() and time.monotonic() < until_s:
        dashboard.watch.look()
        dashboard.tick()
        time.sleep(0.05)
    parts = [title for title, part in dashboard.pages["Live"].parts.items() if part.panel.visible]
    return {
        "parts": parts,
        "bars": [len(figure["data"][0]["x"]) for figure in page.charts.figures().values()],
        "captions": list(page.charts.captions().values()),
        "charts": sorted(run.live.figures()),
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
        seen["cards"] = [card["name"] for card in json.loads(dashboard.settings.cards.cards)]
        for name, settings in RUNS.items():
            run = session.train(lab.RunConfig(ranks=2, epochs=3, generated_nodes=200, **settings)).wait()
            seen[name] = {"loss": run.summary["train_loss"], **draw(dashboard, run)}
        dashboard.close()
    return seen


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
