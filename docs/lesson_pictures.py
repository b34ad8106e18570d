"""Takes the picture at the top of each lesson from its figures: docs/assets/lessons/<lesson>.webp.

`python docs/lesson_pictures.py` needs Chromium, and lessons that `make docs` has run. A picture is a figure of the
lesson as it was run, without what the lesson asks the reader to predict.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import plotly.graph_objects as go
from hooks import executed_lesson, lessons
from PIL import Image
from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent / "assets" / "lessons"
PLOTLY = "application/vnd.plotly.v1+json"
WIDTH, HEIGHT, LIMIT_BYTES = 800, 320, 60_000
TITLES: Mapping[str, str] = {  # lesson -> words of the title of the figure that is its result
    "01": "Test loss",
    "02": "Nodes affected",
    "03": "Halo rows of all training snapshots",
    "04": "steps by number of time blocks",
    "05": "Cost of a step",
    "06": "Median time of a step",
    "07": "Simulated training",
    "08": "Planned epoch",
    "09": "Test error on the whole sequence",
    "10": "While one link is slow",
    "11": "Joules beyond the best plan",
    "12": "What each contestant spent",
    "13": "Importance belongs to a range",
    "14": "Sent in a step by one of 1,024 ranks",
}

ASKED: Mapping[str, str] = {"05": "rows", "09": "two from zero", "10": "ahead"}  # lesson -> bar that is left out


def result_of(path: Path) -> dict[str, Any]:
    """Return the figure of a lesson that is its result.

    Raises:
        LookupError: the lesson has not been run, or has no such figure.
    """
    executed = executed_lesson(path)
    if not executed.exists():
        raise LookupError(f"{path.name} has not been run as it is. Run `make docs` first, with the same DTDG_LAB_DATA.")
    words = TITLES[path.stem[:2]]
    for cell in nbformat.read(executed, as_version=4).cells:
        for output in cell.get("outputs", ()):
            figure = output.get("data", {}).get(PLOTLY)
            if figure and words.lower() in str(figure["layout"]).lower():
                return _without(dict(figure), ASKED.get(path.stem[:2], ""))
    raise LookupError(f"{path.name} has no figure with the words {words!r}. Change TITLES.")


def _without(figure: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a figure of bars without those of a name, be it in the legend or below the bars."""
    figure["data"] = [trace for trace in figure["data"] if trace.get("name") != name or not name]
    for trace in figure["data"] if name else ():
        places = [place for place, label in enumerate(trace["x"]) if label != name]
        trace |= {axis: [trace[axis][place] for place in places] for axis in ("x", "y")}
    return figure


def main() -> None:
    """Write a picture for each lesson but the first, whose first figure moves."""
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        for path in lessons()[1:]:
            figure = go.Figure(result_of(path))
            figure.update_layout(width=WIDTH, height=max(HEIGHT, min(2 * HEIGHT, figure.layout.height or HEIGHT)))
            page.set_viewport_size({"width": WIDTH, "height": int(figure.layout.height)})
            page.set_content(figure.to_html(config={"displayModeBar": False}, include_plotlyjs=True))
            page.wait_for_selector(".plotly .main-svg")
            page.wait_for_timeout(500)
            image = Image.open(io.BytesIO(page.screenshot()))
            target = FOLDER / f"{path.stem}.webp"
            image.save(target, quality=80, method=6)
            if target.stat().st_size > LIMIT_BYTES:
                raise ValueError(f"{target} has {target.stat().st_size:,} bytes, above {LIMIT_BYTES:,}.")
        browser.close()


if __name__ == "__main__":
    main()
