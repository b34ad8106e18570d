"""Paper cards: every system has one, what it says can be checked, and its page needs nothing but itself."""

from __future__ import annotations

import ast
import dataclasses
import re
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dtdg_lab.cards.card import (
    MAIN,
    TEXTS,
    card,
    card_config,
    card_html,
    card_markdown,
    code_places,
    differences,
    drawn_pictures,
    run_cell,
)
from dtdg_lab.config import catalogue
from dtdg_lab.core.errors import ConfigError, RunStoreError, UnknownNameError
from dtdg_lab.runs.stored_run import open_run
from dtdg_lab.visualization.chart import title_of
from tests.stored_runs import finished_run
from tests.thinning import thinned

ROOT = Path(__file__).resolve().parents[3]
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?")
SYSTEMS = catalogue.names("systems")
VOID = {"br", "meta", "hr", "img"}
IDEA, FORMULAS, OURS = "The idea in five sentences", "In formulas", "Our measurements"
# commands that MathJax and KaTeX both have
KNOWN = re.compile(
    "alpha|approx|bar|beta|bigcup|cdot|cup|Delta|delta|ell|frac|gamma|ge|hat|in|lambda|ldots|le|lfloor|lt|max|min|ne|"
    "notin|operatorname|pi|quad|rfloor|rho|sum|text|theta"
)

each_card = pytest.mark.parametrize("name", SYSTEMS)


class _Page(HTMLParser):
    """Checks that tags are closed in order, and keeps what a page would load or link."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "a":
            self.links.append(found["href"] or "")
        self.loads += [found[key] or "" for key in ("src", "srcset", "data", "action") if key in found]
        self.loads += [tag] if tag in ("script", "link", "iframe") else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID and (not self.open or self.open.pop() != tag):
            self.wrong.append(tag)


def _read(page: str) -> _Page:
    parser = _Page()
    parser.feed(page)
    return parser


def test_every_system_has_a_card_and_no_card_is_left_over() -> None:
    assert set(TEXTS) == set(SYSTEMS)


def rows(text: str) -> list[list[str]]:
    """The cells of a table in Markdown, without its head."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]


@each_card
def test_five_sentences_and_formulas_that_can_be_read(name: str) -> None:
    sections = TEXTS[name].sections
    idea = [re.fullmatch(r"(\d)\. (.+)", line) for line in sections[IDEA].splitlines()]
    assert [found and found[1] for found in idea] == list("12345")
    for found in idea:
        caption = found[2] if found else ""
        assert caption.endswith(".") and not re.search(r"[.!?:;]\s+[A-Z]", caption), caption
    parts = sections[FORMULAS].split("\n\n")
    assert parts and len(parts) % 2 == 0
    for formula, meaning in zip(parts[::2], parts[1::2], strict=True):
        tex = re.fullmatch(r"\$\$([^$<>&]+)\$\$", formula)
        assert tex is not None and meaning.endswith("."), (formula, meaning)
        assert all(KNOWN.fullmatch(name) for name in re.findall(r"\\([A-Za-z]+)", tex[1])), formula
        plain = re.sub(r"\\.", "", tex[1])
        while "{" in plain:
            plain, before = re.sub(r"\{[^{}]*\}", "", plain), plain
            assert plain != before, f"braces do not match: {formula}"
        assert "}" not in plain, formula


@each_card
def test_every_code_link_points_at_its_line(name: str) -> None:
    places = code_places(catalogue.system(name), TEXTS[name].code)
    assert len(places) >= len(catalogue.system(name).parts)
    targets = [catalogue.entry(*part).target for part in catalogue.system(name).parts.items()]
    for place, target in zip(places, [*targets, *TEXTS[name].code], strict=True):
        line = (ROOT / place.file).read_text().splitlines()[place.line - 1]
        wanted = target.partition(":")[2]
        assert not wanted or re.match(rf"(?:class|def) {wanted}\b", line), (target, line)
        assert place.link == f"{place.file}#L{place.line}" and place.summary


@cache
def published() -> dict[str, set[float]]:
    """What the documentation's tables show of each command, and the numbers of a page for what it quotes."""
    sys.path.insert(0, str(ROOT / "docs"))
    import measured

    found: dict[str, set[float]] = {}
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = measured.placed(page.read_text())
        tables = re.findall(r"((?:^\|.*\n)+)\n\*`([^`]+)`", text, flags=re.M)
        shown = {float(each.replace(",", "")) for drawn, _ in tables for each in NUMBER.findall(drawn)}
        for quoted in re.findall(r"`(lab\.[^`]+)`", text):
            found.setdefault(quoted, set()).update(shown)
        for drawn, command in tables:
            found.setdefault(command, set()).update(float(each.replace(",", "")) for each in NUMBER.findall(drawn))
    return found


@each_card
def test_measured_numbers_are_those_of_the_docs_with_their_command(name: str) -> None:
    known = published()
    for what, value, shown in rows(TEXTS[name].sections.get(OURS, "")):
        numbers = {float(each.replace(",", "")) for each in NUMBER.findall(value)}
        assert numbers and numbers <= known[shown.strip("`")], what


@each_card
def test_the_cell_is_code_whose_settings_are_allowed(name: str) -> None:
    ast.parse(run_cell(TEXTS[name]))
    assert card_config(TEXTS[name]).system == name
    assert f"system={name!r}" in run_cell(TEXTS[name])


@each_card
def test_the_cell_offers_two_processes_where_a_system_can_use_them(name: str) -> None:
    assert ("ranks=2" in run_cell(TEXTS[name])) == (name not in ("single", "pipad"))


@pytest.mark.parametrize("name", thinned(sorted(TEXTS), keep=6))
def test_the_page_is_whole_and_asks_for_nothing(name: str) -> None:
    shown = card(name)
    html = shown.html()
    page = _read(html)
    assert page.open == page.wrong == page.loads == []
    assert {place.link for place in shown.code} <= set(page.links)
    assert all(link.startswith("dtdg_lab/") for link in page.links)
    assert html.count('class="math block"') == len(TEXTS[name].sections[FORMULAS].split("\n\n")) / 2
    for heading in (
        IDEA,
        FORMULAS,
        "Code",
        "Results in the paper",
        OURS,
        "Differences from the paper",
        "How to run it",
    ):
        assert f"<h2>{heading}</h2>" in html
    assert len(shown.pictures) >= 1
    for figure, words in shown.pictures:
        assert words.endswith(".") and figure["data"] and title_of(figure)
    assert repr(shown).startswith(f"# {name}\n") and "](" not in repr(shown)


def test_papers_give_their_main_system_and_strangers_the_closest() -> None:
    assert {name: card(name).system.name for name in ("ESDG", "dynahb", "DyGNeX", "flare", "greendygnn")} == {
        "ESDG": "esdg",
        "dynahb": "dynahb",
        "DyGNeX": "dygnex-g",
        "flare": "flaredtdg",
        "greendygnn": "greendygnn",
    }
    assert set(MAIN.values()) <= set(SYSTEMS)
    with pytest.raises(UnknownNameError, match="Did you mean 'dynahb'"):
        card("dynahp")
    with pytest.raises(UnknownNameError):
        card(3)  # type: ignore[arg-type]


def test_docstrings_tell_where_we_differ() -> None:
    found = {each.text: each for each in differences(code_places(catalogue.system("dygnex-g")))}
    (described,) = [text for text in found if text.startswith("The paper's listing neither removes chosen groups")]
    assert found[described].file == "dtdg_lab/systems/snapshot_groups/schedulers/dygnex.py" and described.endswith(
        "only some are tried."
    )
    assert described in repr(card("dygnex-g")).replace("\\", "")


def test_links_of_a_notebook_begin_in_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for folder, begin in ((ROOT / "notebooks", "../dtdg_lab/"), (ROOT, "dtdg_lab/")):
        monkeypatch.chdir(folder)
        links = re.findall(r"\]\(([^)]*)\)", card("single")._repr_markdown_())
        assert links and all(link.startswith(begin) for link in links)
    monkeypatch.chdir(tmp_path)
    text = card("single")._repr_markdown_()
    assert "](" not in text and "dtdg_lab/systems/single/strategy.py:" in text, "no link that leads nowhere"


def test_a_place_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="does not define 'Nobody'"):
        code_places(catalogue.system("single"), ("dtdg_lab.systems.single.strategy:Nobody",))
    with pytest.raises(ConfigError, match=r"nowhere\.py is missing"):
        code_places(catalogue.system("single"), ("dtdg_lab.engine.nowhere",))


def test_a_notebook_shows_the_text_with_its_formulas_and_then_the_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr("IPython.display.display", lambda given, **_: shown.append(given))
    made = card("psg")
    made._ipython_display_()
    text, figure = shown
    assert "$$T = " in text["text/markdown"] and made.note.split(",")[0] in text["text/markdown"]
    assert text["text/plain"] == repr(made)
    assert len(figure.data) == sum(len(picture["data"]) for picture, _ in made.pictures)


def test_what_is_not_ours_stays_text_in_markdown() -> None:
    evil = "<script>alert(1)</script> [a](http://evil) |*b*| $x$ __c__"
    html = card_html(card_markdown(dataclasses.replace(catalogue.system("single"), summary=evil), TEXTS["single"]))
    assert "<script" not in html and 'http://evil"' not in html and "<em>" not in html and "<strong>" not in html
    assert "[a](http://evil) |*b*| $x$ __c__" in html


@pytest.mark.slow
def test_the_picture_shows_what_the_system_does() -> None:
    """The Gantt chart has every group once, whole windows keep all rows, and nobody beats the clairvoyant."""
    (gantt, _), _ = drawn_pictures(catalogue.system("dygnex-g"))
    groups = [
        number
        for trace in gantt["data"]
        if "group" in trace["name"] or "pace" in trace["name"]
        for number, *_ in trace["customdata"]
    ]
    assert sorted(groups) == list(range(len(groups))) and len(groups) > 8
    (shape, words), _ = drawn_pictures(catalogue.system("full-history"))
    assert [trace["name"] for trace in shape["data"]] == ["full"] and "100% of the rows" in words
    for name in ("greendygnn", "rapidgnn", "fixed-window"):
        _, (joules, _) = drawn_pictures(catalogue.system(name))
        (bars,) = joules["data"]
        spent = dict(zip(bars["y"], bars["x"], strict=True))
        assert min(spent, key=spent.get) == "clairvoyant" and name in spent


def test_a_run_of_the_system_takes_the_place_of_the_small_graph(tmp_path: Path) -> None:
    run = open_run(finished_run(tmp_path, system="psg").path)
    shown = card("psg", run=run)
    assert shown.note == f"Pictures of run {run.id}." and shown.pictures
    assert card("psg", run=str(run.path)).note == shown.note
    with pytest.raises(ConfigError, match="is the card of 'esdg'"):
        card("esdg", run=run)
    with pytest.raises(ConfigError, match="Give a run or its folder"):
        card("psg", run=7)


def test_a_saved_page_shows_offline_and_is_not_overwritten(tmp_path: Path) -> None:
    file = card("psg").save(tmp_path / "psg.html")
    text = file.read_text()
    page = _read(text)
    assert page.open == page.wrong == [] and set(page.loads) == {"script"} and "default-src 'none'" in text
    assert "katex.render(" in text and "Plotly.react(" in text
    assert text.count("role='img'") == len(card("psg").pictures)
    before = file.read_bytes()
    with pytest.raises(RunStoreError, match="overwrite=True"):
        card("psg").save(file)
    assert file.read_bytes() == before and card("psg").save(file, overwrite=True) == file
