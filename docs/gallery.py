"""The gallery of charts: what the live page and `lab.plot` draw, of short real runs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from digest import digest
from pictures import PAGES

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "gallery"
COMMON = "psg"  # its run shows the charts that every run has
# a run for each family with charts of its own; the other settings are those of the system's card
RUNS: Mapping[str, Mapping[str, Any]] = {
    "psg": {"epochs": 4, "slow_rank": 1, "slow_ms": 30.0},
    "pipad": {"ranks": 1, "epochs": 4},
    "adgnn-t": {"epochs": 20},
    "esdg": {"epochs": 20, "blocks": 4},
    "dynahb": {"epochs": 60},
    "dygnex-g": {"epochs": 6},
    "flaredtdg": {"epochs": 4},
    "greendygnn": {"epochs": 6, "congestion": "oscillating"},
}


def kept() -> Path:
    """Return the file of the cards, by the contents of the package and the runs."""
    runs = json.dumps({name: dict(settings) for name, settings in RUNS.items()})
    return KEPT / f"cards-{digest(runs.encode())}.json"


def make() -> None:
    """Train the runs and keep their cards, unless those are kept."""
    from plotly.utils import PlotlyJSONEncoder

    import dtdg_lab as lab
    from dtdg_lab.cards.card import TEXTS, card_config

    if kept().exists():
        return
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, lab.Session(ranks=2, runs_dir=folder) as session:
        for system, settings in RUNS.items():
            print(f"Running {system} for the gallery", flush=True)
            config = card_config(TEXTS[system]).replace(**{"ranks": 2, "threads": 1, **settings})
            found[system] = cards(lab.runs.open(session.train(config).wait(300).path))
    KEPT.mkdir(parents=True, exist_ok=True)
    for old in KEPT.glob("*.json"):
        old.unlink()
    kept().write_text(json.dumps(found, cls=PlotlyJSONEncoder))


def cards(run: Any) -> dict[str, Any]:
    """Return the charts of a finished run by name, each with its caption."""
    from dtdg_lab.runs.charts import drawn_charts
    from dtdg_lab.visualization.chart import ChartOptions

    drawn = drawn_charts(run.live, ChartOptions(whole_run=True))
    return {
        chart.name: {"is_picture": chart.section == "picture", "figure": figure, "caption": caption}
        for chart, (figure, caption) in drawn.items()
        if figure["data"]
    }


def figure_html(figure: Any) -> str:
    """Return a place for a figure of Plotly, drawn by site.js when it is scrolled to."""
    text = json.dumps({"data": figure["data"], "layout": figure.get("layout", {})}).replace("</", "<\\/")
    return f'<div class="lab-figure" role="img"></div>\n<script type="application/json">{text}</script>'


def page() -> str:
    """Return the page."""
    from dtdg_lab.config import catalogue

    text = (
        "Charts of the live page, of `lab.plot(run)` and of a run's report, here of short runs. The sentence under a "
        "chart is its own: it says what is seen in this run. Point at a chart for its numbers."
    )
    sections = [f"---\nhide: [toc]\n---\n\n# Chart gallery\n\n{text}\n", dashboard()]
    if not kept().exists():
        return "\n".join(sections) + "\nThe charts are drawn by `make docs`, which makes the runs first.\n"
    found = json.loads(kept().read_text())
    common = {name: card for name, card in found[COMMON].items() if all(name in found[system] for system in RUNS)}
    sections.append(section("Every run", COMMON, "Every system has these.", common))
    for system in RUNS:
        if system == COMMON:
            continue
        family = catalogue.family(catalogue.system(system).family)
        users = [f"[`{each.name}`](papers/{each.name}.md)" for each in catalogue.SYSTEMS if each.family == family.name]
        own = {name: card for name, card in found[system].items() if name not in common}
        title = family.card or family.name.replace("_", " ").capitalize()
        sections.append(section(title, system, f"Systems: {', '.join(users)}.", own))
    return "\n".join(sections)


def dashboard() -> str:
    """Return the pictures of the dashboard."""
    pictures = [f"![{words}](assets/page-{name}.webp)\n\n{words}\n" for name, (*_, words) in PAGES.items()]
    begin = "## The dashboard\n\nIts pages while four processes train (`python docs/pictures.py` takes the pictures).\n"
    return "\n".join([begin, *pictures])


def section(title: str, system: str, where: str, cards: Mapping[str, Any]) -> str:
    """Return the charts of a run, two beside each other; pictures have a row to themselves."""
    from dtdg_lab.visualization.chart import title_of

    parts = []
    for card in cards.values():
        begin = '<div class="wide" markdown>' if card["is_picture"] else "<div markdown>"
        figure = card["figure"]
        lines = [begin, f"### {title_of(figure)}", keys(figure), figure_html(figure), card["caption"], "</div>\n"]
        parts.append("\n\n".join(lines))
    head = f"## {title}\n\n{where} The run: {described(system)}.\n\n"
    return "\n".join([head + '<div class="lab-gallery" markdown>\n', *parts, "</div>\n"])


def described(system: str) -> str:
    """Return a run's settings."""
    settings = ", ".join(f"`{name}={value!r}`" for name, value in {"ranks": 2, **RUNS[system]}.items())
    return f"`{system}` with {settings}"


def keys(figure: Mapping[str, Any]) -> str:
    """Return the unit and the colour keys of a chart as a line."""
    card = figure["layout"]["meta"]["card"]
    marks = (f'<span style="color:{colour}">■</span> {label}' for label, colour, _ in card["keys"])
    return " &nbsp; ".join([*([card["unit"]] if card["unit"] else []), *marks])
