"""The dashboard with a keyboard, through a screen reader's eyes, and in both themes; a report in both themes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.dashboard.app import Dashboard
from dtdg_lab.studies.run_study import run_study
from dtdg_lab.studies.sweep import Sweep
from dtdg_lab.visualization.palette import DARK_COLOURS, PAGE_COLOURS
from tests.browser.jupyterlab import MARKS, chromium, served
from tests.following import until
from tests.pretend_features import SYSTEM, FeatureSession
from tests.pretend_studies import BASE, pretend_training

CLICKED = {"button", "checkbox", "combobox", "link", "listbox", "radio", "slider", "spinbutton", "switch"}
CONTROLS = CLICKED | {"image", "searchbox", "tab", "tablist", "tabpanel", "textbox"}

pytestmark = MARKS

# every chart that is drawn: its colours, and the words under it
LOOK = """() => { const found = {}; const walk = root => root.querySelectorAll('*').forEach(e => {
  if (e.classList && e.classList.contains('dl-chart') && e.data) found[e.dataset.chart] = {
    paper: e._fullLayout.paper_bgcolor, font: e._fullLayout.font.color, lines: e.data.map(t => (t.line || {}).color),
    caption: getComputedStyle(e.closest('figure').querySelector('figcaption')).color,
    card: getComputedStyle(e.closest('figure')).backgroundColor,
    spoken: e.getAttribute('aria-label'), role: e.getAttribute('role')};
  if (e.shadowRoot) walk(e.shadowRoot); }); walk(document); return found; }"""

# foreground and background of every text of the page's own (charts are drawn by Plotly), and of hints in empty fields
TEXTS = """() => { const found = [];
  const behind = e => { for (let at = e; at; at = at.parentElement || at.getRootNode().host) {
    const colour = getComputedStyle(at).backgroundColor; if (!/, 0\\)$/.test(colour)) return colour; }
    return 'rgb(255, 255, 255)'; };
  const walk = root => root.querySelectorAll('*').forEach(e => { if (e.closest('svg, .dl-chart, style, option')) return;
  const own = [...e.childNodes].filter(n => n.nodeType === 3 && n.data.trim()); const style = getComputedStyle(e);
  if (own.length && e.offsetWidth && style.visibility === 'visible' && !e.disabled && !e.ariaHidden)
    found.push([own[0].data.trim().slice(0, 30), style.color, behind(e)]);
  if (e.placeholder && !e.value && e.offsetWidth && !e.disabled)
    found.push([e.placeholder, getComputedStyle(e, '::placeholder').color, behind(e)]);
  if (e.shadowRoot) walk(e.shadowRoot); }); walk(document); return found; }"""

# texts of a card that are wider than their place, lines of code aside
CUT = """() => { const found = []; const walk = root => root.querySelectorAll('*').forEach(e => {
  if (e.matches('.dtdg-card, .dtdg-card p, .dtdg-card li') && e.getBoundingClientRect().right > window.innerWidth)
    found.push(e.textContent.slice(0, 40));
  if (e.shadowRoot) walk(e.shadowRoot); }); walk(document); return found; }"""


WIDER = "() => document.documentElement.scrollWidth - window.innerWidth"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[Dashboard]]]:
    """Address of a dashboard whose session trains greendygnn and has a study, and the dashboards that were opened."""
    session, made = FeatureSession(), []
    session.runs_dir = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        pretend_training(patch)
        sweep = Sweep(BASE, {"full_snapshots": (1, 2), "alpha": (0.1, 0.6)}, seeds=(0,))
        run_study(sweep, name="mine", runs_dir=session.runs_dir, progress=False)

    session.train(RunConfig(**SYSTEM)).advance(30)
    with served(made, lambda: Dashboard(session, RunConfig(**SYSTEM))) as address:
        yield address, made


@pytest.fixture(scope="module")
def page(shown: tuple[str, list[Dashboard]]) -> Iterator[Any]:
    errors: list[str] = []
    with chromium() as found:
        found.on("pageerror", lambda error: errors.append(str(error)))
        found.goto(shown[0])
        until(lambda: len(_charts(found)) >= 3, timeout_s=60, what="the live charts are drawn")
        yield found
    assert errors == []


def _charts(page: Any) -> dict[str, Any]:
    charts: dict[str, Any] = page.evaluate(LOOK)
    return charts


def _tree(page: Any) -> list[tuple[str, str, dict[str, Any]]]:
    """Role, name and properties of everything that a screen reader is told about."""
    client = page.context.new_cdp_session(page)
    nodes = [node for node in client.send("Accessibility.getFullAXTree")["nodes"] if not node.get("ignored")]
    client.detach()
    return [
        (
            node["role"]["value"],
            node.get("name", {}).get("value", ""),
            {each["name"]: each["value"].get("value") for each in node.get("properties", [])},
        )
        for node in nodes
    ]


def _open(page: Any, name: str) -> None:
    """Open a page with the keyboard alone: arrows go from the tab that has the focus to its neighbours."""
    tab = page.get_by_role("tab", name=name, exact=True)
    for _ in range(20):
        if tab.get_attribute("aria-selected") == "true":
            return
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(60)
    raise AssertionError(f"no way to the page {name} by arrows")


@pytest.mark.slow
def test_every_control_has_a_name_and_tabs_open_with_the_keyboard(page: Any) -> None:
    tabs = [name for role, name, _ in _tree(page) if role == "tab"]
    assert tabs == ["Live", "Data", "Partition", "Compare", "Papers", "Code"]
    page.get_by_role("button", name="More settings").click()
    _refuse_a_contestant(page)
    page.get_by_role("tab", name="Live", exact=True).click()
    page.get_by_role("tab", name="Live", exact=True).focus()
    seen: set[tuple[str, str]] = set()
    for tab in tabs:
        _open(page, tab)
        page.wait_for_timeout(500)
        tree = _tree(page)
        assert [role for role, name, _ in tree if role in CONTROLS and not name.strip()] == [], f"unnamed on {tab}"
        assert [name for role, name, said in tree if role == "tab" and said.get("selected")] == [tab]
        seen |= {(role, name) for role, name, _ in tree if role in CONTROLS}
    page.get_by_role("tab", name="Compare", exact=True).click()
    for part in ("Study", "Race"):
        page.get_by_role("button", name=part, exact=True).click()
        page.wait_for_timeout(500)
        seen |= {(role, name) for role, name, _ in _tree(page) if role in CONTROLS}
    page.get_by_role("tab", name="Live", exact=True).click()
    page.get_by_role("button", name="Edit links").click()
    page.wait_for_timeout(500)
    seen |= {(role, name) for role, name, _ in _tree(page) if role in CONTROLS}
    expected = {
        ("slider", "Learning rate"),
        ("slider", "Slow down rank by (ms)"),
        ("button", "More"),
        ("textbox", "Delay added (ms) from part 0 to part 1"),
        ("checkbox", "metis"),
        ("combobox", "Cache policy"),
        ("button", "Rename this run"),
        ("button", "Options of Loss"),
        ("button", "Epochs: more"),
        ("tablist", "Views"),
        ("listbox", "Contestants"),
        ("combobox", "Coloured by"),
        ("combobox", "Selected run (or click on a cell)"),
        ("combobox", "System"),
    }
    assert expected <= seen, expected - seen
    captions = {name: chart["spoken"] for name, chart in _charts(page).items()}
    assert captions and all(len(spoken) > 25 for spoken in captions.values()), captions


def _refuse_a_contestant(page: Any) -> None:
    """A race gets one, and says why it does not get it twice: there is a list and an alert to be looked at."""
    page.get_by_role("tab", name="Compare", exact=True).click()
    page.get_by_role("button", name="Race", exact=True).click()
    add = page.get_by_role("button", name="Add the settings shown")
    add.click()
    until(lambda: page.get_by_role("listbox").locator("option").count() == 1, what="one contestant is listed")
    add.click()
    page.get_by_role("alert").filter(has_text="already a contestant").wait_for(timeout=20_000)
    arrow = page.get_by_role("listbox").evaluate("e => getComputedStyle(e).backgroundImage")
    assert arrow == "none", "a list that does not drop down has no arrow"


@pytest.mark.slow
def test_a_control_shows_that_it_has_the_focus(page: Any) -> None:
    handle = page.locator(".noUi-handle:visible").first
    assert handle.evaluate("e => getComputedStyle(e).outlineStyle") == "none"
    page.get_by_role("button", name="More", exact=True).focus()
    page.keyboard.press("Shift+Tab")
    rings = page.evaluate(
        "() => { let e = document.activeElement; while (e.shadowRoot?.activeElement) e = e.shadowRoot.activeElement; "
        "const s = getComputedStyle(e); return [e.tagName, s.outlineStyle, s.outlineColor, s.outlineWidth] }"
    )
    assert rings[1:] == ["solid", "rgb(11, 87, 208)", "2px"], rings


@pytest.mark.slow
def test_escape_takes_a_drag_back_and_keys_move_a_slider(page: Any, shown: tuple[str, list[Dashboard]]) -> None:
    run = shown[1][-1].session.current
    assert run is not None
    before, asked = run.config["learning_rate"], len(run.requests)
    handle = page.get_by_role("slider", name="Learning rate").first
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + 5, steps=4)
    text = handle.get_attribute("aria-valuetext")
    page.keyboard.press("Escape")
    until(lambda: handle.get_attribute("aria-valuetext") != text, what="the slider goes back")
    page.mouse.move(box["x"] + 90, box["y"] + 5)
    page.mouse.up()
    page.wait_for_timeout(700)
    assert len(run.requests) == asked
    handle.focus()
    page.keyboard.press("ArrowRight")
    until(lambda: len(run.requests) > asked, what="an arrow key requests the next step")
    assert run.requests[-1]["learning_rate"] == pytest.approx(1.12 * before, rel=0.01)


def _contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        shares = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in shares]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    dim, bright = sorted((light(one), light(other)))
    return (bright + 0.05) / (dim + 0.05)


def _rgb(colour: str) -> str:
    return "rgb({}, {}, {})".format(*(int(colour[at : at + 2], 16) for at in (1, 3, 5)))


def _looks(page: Any, theme: str) -> bool:
    colours = PAGE_COLOURS[theme]
    drawn = _charts(page)
    return bool(drawn) and all(
        chart["paper"].upper() in (colours["page"], {"light": "WHITE"}.get(theme))
        and chart["font"].upper() == colours["text"]
        and chart["caption"] == _rgb(colours["text"])
        and chart["card"] == _rgb(colours["page"])
        for chart in drawn.values()
    )


@pytest.mark.slow
def test_the_theme_follows_the_system_until_one_is_chosen_and_is_remembered(page: Any) -> None:
    until(lambda: _looks(page, "light"), what="light, as the system is")
    light = _charts(page)["loss"]["lines"]
    page.emulate_media(color_scheme="dark")
    until(lambda: _looks(page, "dark"), what="dark, as the system became")
    dark = [colour.upper() for colour in _charts(page)["loss"]["lines"] if colour]
    assert dark == [DARK_COLOURS.get(colour.upper(), "") for colour in light if colour]
    for tab in ("Partition", "Code", "Compare", "Race", "Study", "Papers", "Live"):
        role = "button" if tab in ("Race", "Study") else "tab"  # parts of Compare
        page.get_by_role(role, name=tab, exact=True).click()
        page.wait_for_timeout(700)
        _all_text_stands_out(page, f"{tab}, dark")
        page.set_viewport_size({"width": 1100, "height": 800})
        until(lambda: page.evaluate(WIDER) <= 0, timeout_s=5, what="a page of 1100 pixels does not scroll sideways")
        page.set_viewport_size({"width": 1300, "height": 900})
    assert page.evaluate(CUT) == [], "text of a card goes beyond its page"
    _choose_theme(page, "light")
    until(lambda: _looks(page, "light"), what="light, as was chosen")
    _all_text_stands_out(page, "light")
    _choose_theme(page, "dark")
    page.emulate_media(color_scheme="light")
    page.reload()
    until(lambda: len(_charts(page)) >= 3 and _looks(page, "dark"), what="dark, chosen before the reload")


def _choose_theme(page: Any, theme: str) -> None:
    page.get_by_role("button", name="More", exact=True).click()
    page.get_by_role("menuitem", name=f"Theme: {theme}").click()


def _all_text_stands_out(page: Any, where: str) -> None:
    texts = page.evaluate(TEXTS)
    assert len(texts) > 25
    faint = {(text, colour, behind) for text, colour, behind in texts if _contrast(colour, behind) < 4.5}
    assert faint == set(), f"{where}: hard to read"


@pytest.mark.slow
def test_a_report_is_dark_on_a_dark_screen_and_light_on_paper(page: Any, tmp_path: Path) -> None:
    from dtdg_lab.runs import html as pages
    from dtdg_lab.visualization.chart import card

    figure = card([{"x": [0, 1], "y": [0, 1], "line": {"color": "#0072B2"}}], "Loss")
    plotly = """window.Plotly = {Plots: {resize: () => {}}, react: (id, data, layout) => {
      window.drawn = [id, data[0].line.color, layout.paper_bgcolor] }};"""
    file = tmp_path / "report.html"
    made = pages.render(
        "runs/templates/page.html", title="Run", body="<p>Words</p>", figures={"a": figure}, library=plotly
    )
    file.write_text(made, encoding="utf-8")
    said = "() => [...window.drawn, getComputedStyle(document.body).color]"
    sheet = page.context.new_page()
    sheet.emulate_media(color_scheme="dark")
    sheet.goto(file.as_uri())
    assert sheet.evaluate(said) == ["plot-a", "#4F8CC4", "#1B1F24", _rgb(PAGE_COLOURS["dark"]["text"])]
    sheet.emulate_media(media="print", color_scheme="dark")
    sheet.evaluate("() => window.dispatchEvent(new Event('beforeprint'))")
    assert sheet.evaluate(said) == ["plot-a", "#0072B2", "white", _rgb(PAGE_COLOURS["light"]["text"])]
    sheet.close()
