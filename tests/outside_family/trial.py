"""Everything that a family from outside the package must be able to do, on two engines; prints what came of it."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import dtdg_lab as lab
from dtdg_lab.core.errors import ConfigError
from dtdg_lab.dashboard.app import Dashboard
from dtdg_lab.export.export import export

SMALL = {
    "dataset": "growing",
    "generated_nodes": 60,
    "generated_edges": 240,
    "generated_snapshots": 60,
    "hidden": 4,
    "learning_rate": 0.01,
    "threads": 1,
    "ranks": 2,
    "parts": 2,
}


def reach(run: Any, step: int) -> None:
    """Wait until a run has made a step."""
    until_s = time.monotonic() + 60
    while run.live.progress.step < step:
        assert run.status != "failed" and time.monotonic() < until_s, (run.status, run.reason)
        time.sleep(0.05)


def main(folder: Path) -> dict[str, object]:
    family = lab.register("outside_family.striped:FAMILY")
    assert lab.register("outside_family.striped:FAMILY") is family, "a second call changes nothing"
    found: dict[str, object] = {}
    with lab.Session(ranks=2, runs_dir=folder) as session:
        dashboard = Dashboard(session)
        found["cards"] = [card["name"] for card in json.loads(dashboard.navigation.content)["cards"]]
        run = session.train(lab.RunConfig(system="striped", epochs=4000, **SMALL))
        reach(run, 20)
        run.set(stripe_shift=2)
        reach(run, run.live.progress.step + 20)
        try:
            run.set(stripe_shift=9)
            reach(run, run.live.progress.step + 20)
            found["refused"] = run.reason
        except ConfigError as error:
            found["refused"] = str(error)
        reach(run, run.live.progress.step + 40)
        found["caption"] = run.captions()["stripes"]
        found["bars"] = len(run.figures()["stripes"]["data"][0]["x"])
        run.stop()
        run.wait()
        found["stopped_at"] = stopped = run.live.progress.step
        run = run.resume()
        reach(run, stopped + 20)
        run.stop()
        run.wait()
        found["resumed_to"] = run.live.progress.step
        dashboard.watch.look()
        dashboard.tick()
        charts = dashboard.live.charts
        found["pictures"], found["charts"] = list(charts.picture.specs), list(charts.others.specs)
        dashboard.close()
        raced = lab.race(
            {name: lab.RunConfig(system=name, epochs=4, **SMALL) for name in ("striped", "psg")},
            seeds=(0,),
            session=session,
            runs_dir=folder,
            progress=False,
        )
        found["raced"] = {of.label: of.open().summary["epochs"] for of in raced.runs}
    stored = lab.runs.open(run.path)
    found["events"] = sorted({event["data"]["shift"] for event in stored.events if event["kind"] == "stripes"})
    found["columns"] = list(stored.table("stripe_times").columns)
    report = export(stored, folder / "report.html")
    found["report"] = "Stripes" in Path(report).read_text() and "shifted by 2" in Path(report).read_text()
    lab.plot(stored)
    found["described"] = lab.describe("striped")
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
