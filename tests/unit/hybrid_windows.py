"""Windows of runs with hybrid batches, filled with what such runs tell, and what every figure of them must be."""

from __future__ import annotations

import json
import re
from typing import Any

import plotly.graph_objects as go
from synthetic_lines import evaluation_row, line, step_row
from targets_synthetic import event, step_lines

from dtdg_lab.core.config import RunConfig
from dtdg_lab.visualization.run_window import RunWindow


def window(data: dict[str, Any] | None = None, steps: int = 0, *, system: str = "dynahb", **more: Any) -> RunWindow:
    shown = RunWindow(RunConfig(system=system, dataset="growing", ranks=2, epochs=20))
    if data is not None:
        shown.add(event(data))
        for each in step_lines(data, range(steps), **more):
            shown.add(each)
    return shown


def evaluated(
    shown: RunWindow, losses: list[float], *, step_ns: int = 20_000_000, split: str = "validation"
) -> RunWindow:
    """Losses after 10, 20, ... steps of 20 ms each."""
    shown.add(line("steps", [step_row(0, 2.0)]))
    rows = [evaluation_row(10 * at, split, loss) for at, loss in enumerate(losses, start=1)]
    shown.add(line("evaluations", rows))
    return shown


def traces(figure: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {trace["name"]: trace for trace in figure["data"]}


def check(figure: dict[str, Any]) -> None:
    go.Figure(figure)  # refuses any attribute plotly does not know
    json.dumps(figure, allow_nan=False)
    assert figure["layout"]["title"]["text"]
    axes = {name for name in figure["layout"] if re.fullmatch(r"[xy]axis\d*", name)}
    assert axes and all("title" in figure["layout"][name] for name in axes)
