"""The documentation site: everything public is in its reference, and it builds without a warning."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import markdown
import nbformat
import pytest
from markdown.extensions.toc import slugify

import dtdg_lab as lab
from dtdg_lab.cards.card import TEXTS, card_markdown
from dtdg_lab.cli import main
from dtdg_lab.config import catalogue
from dtdg_lab.config.options import OPTIONS
from dtdg_lab.config.record_tables import TABLES
from dtdg_lab.core import errors as errors_module
from dtdg_lab.core.errors import LabError
from dtdg_lab.records.events import SettingsChanged

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
ADDRESS = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def first_cells(text: str) -> set[str]:
    """What the rows of all tables begin with."""
    return set(re.findall(r"^\| `([^`]+)`", text, flags=re.M))


def test_every_option_is_in_the_reference(hooks: ModuleType) -> None:
    text = hooks.options()
    assert first_cells(text) == set(OPTIONS)
    assert not re.findall(r"^\|.*\| *\|.*$", text, flags=re.M), "an option without a meaning, a range or a system"
    (row,) = (line for line in text.splitlines() if line.startswith("| `alpha`"))
    assert "`flaredtdg`" in row and "`psg`" not in row and "next step" in row


@pytest.mark.parametrize("around", ["{}", '<div class="half" markdown>\n\n### A title\n\n{}\n\nA caption.\n\n</div>'])
def test_markdown_leaves_a_figure_as_it_is(hooks: ModuleType, around: str) -> None:
    figure = {"data": [{"name": "a < b & c"}], "layout": {"annotations": [{"text": "<b>1</b> of *two* _or_ [x](y)"}]}}
    page = markdown.markdown(around.format(hooks.figure_html(figure)), extensions=["md_in_html", "attr_list"])
    (text,) = re.findall(r'json">(.*?)</script>', page, flags=re.S)
    assert json.loads(text) == figure


def test_every_column_is_in_the_reference(hooks: ModuleType) -> None:
    sections = re.split(r"^## ", hooks.records(), flags=re.M)[1:]
    found = {section.split("\n", 1)[0]: first_cells(section) for section in sections}
    assert found == {name: set(columns) for name, columns in TABLES.items()}
    assert not re.findall(r"^\| `[^`]+` \| *\|$", hooks.records(), flags=re.M), "a column without a meaning"


def test_every_event_is_in_the_reference_with_its_data(hooks: ModuleType) -> None:
    text = hooks.events()
    written = {
        kind
        for file in (ROOT / "dtdg_lab").rglob("*.py")
        for kind in re.findall(r'^    kind: ClassVar\[str\] = "([^"]+)"', file.read_text(), flags=re.M)
    }
    assert len(written) > 15 and first_cells(text) == written
    (row,) = (line for line in text.splitlines() if line.startswith("| `settings`"))
    assert all(f"`{field.name}`" in row for field in fields(SettingsChanged))


def test_every_error_is_in_the_reference(hooks: ModuleType) -> None:
    wanted = {name for name, of in vars(errors_module).items() if isinstance(of, type) and issubclass(of, LabError)}
    assert first_cells(hooks.errors()) == wanted


def test_every_command_is_in_the_reference(hooks: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = set(re.findall(r"^    (\S+)\s", capsys.readouterr().out, flags=re.M))
    assert listed and set(re.findall(r"^## (\S+)$", hooks.commands(), flags=re.M)) == listed


def test_every_public_name_is_in_the_reference(hooks: ModuleType) -> None:
    headings = set(re.findall(r"heading: (\S+)", hooks.api()))
    groups = {name: getattr(lab, name) for name in lab.__all__ if isinstance(getattr(lab, name), ModuleType)}
    names = {f"lab.{name}" for name in lab.__all__ if name not in groups}
    assert headings == names | {f"lab.{group}.{name}" for group, of in groups.items() for name in of.__all__}


# Links, without running a lesson


@pytest.fixture(scope="module")
def uris(hooks: ModuleType) -> set[str]:
    """What the site consists of."""
    written = {file.relative_to(ROOT / "docs").as_posix() for file in (ROOT / "docs").rglob("*") if file.is_file()}
    return written | set(hooks.pages()) | {"assets/katex.min.js", "assets/plotly.min.js"}


@pytest.fixture(scope="module")
def texts(hooks: ModuleType) -> dict[str, str]:
    """The pages that are written by hand, lessons without outputs, and cards without pictures, by their address."""
    result = {file.name: file.read_text() for file in (ROOT / "docs").glob("*.md")}
    result |= {page: (ROOT / source).read_text() for source, page in hooks.PAGES.items()}
    result |= {f"lessons/{path.stem}.md": hooks.lesson(path) for path in LESSONS}
    return result | {f"papers/{name}.md": card_markdown(catalogue.system(name), text) for name, text in TEXTS.items()}


def leads_nowhere(markdown: str, uri: str, uris: set[str], anchors: dict[str, set[str]]) -> list[str]:
    """Addresses on a page of the site for which it has no page, or no heading."""
    result = []
    for address in ADDRESS.findall(re.sub(r"^```.*?^```$", "", markdown, flags=re.M | re.S)):
        if re.match(r"[a-z]+:", address):
            continue
        path, _, anchor = address.partition("#")
        target = os.path.normpath(Path(uri).parent / path) if path else uri
        if target not in uris or (anchor and anchor not in anchors.get(target, {anchor})):
            result.append(address)
    return result


def headings(markdown: str) -> set[str]:
    """The anchors of a page."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", markdown, flags=re.M | re.S), flags=re.M)
    return {slugify(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).replace("`", ""), "-") for title in titles}


def test_links_of_the_site_lead_to_its_pages(hooks: ModuleType, uris: set[str], texts: dict[str, str]) -> None:
    anchors = {uri: headings(text) for uri, text in texts.items()}
    found = {uri: leads_nowhere(hooks.linked(text, uri, uris), uri, uris, anchors) for uri, text in texts.items()}
    assert {uri: addresses for uri, addresses in found.items() if addresses} == {}
    linked = hooks.linked(texts["index.md"], "index.md", uris)
    assert "](lessons/index.md)" in linked and "](docs/" not in linked


def test_a_link_that_leads_nowhere_is_refused(hooks: ModuleType, uris: set[str]) -> None:
    for address in ("nowhere.md", "../dtdg_lab/nothing.py#L1"):
        with pytest.raises(hooks.PluginError, match=f"links to {address}"):
            hooks.linked(f"[text]({address})", "quickstart.md", uris)
    assert leads_nowhere("[a](faq.md#none) ![b](none.png)", "x.md", uris, {"faq.md": {"some"}}) == [
        "faq.md#none",
        "none.png",
    ]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_links_in_outputs_of_a_lesson_lead_somewhere(
    hooks: ModuleType, uris: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: Path
) -> None:
    """A card links to the package from the top, from notebooks/, or from the folder that the lesson was run in."""
    monkeypatch.setattr(hooks, "EXECUTED", tmp_path)
    notebook = nbformat.read(path, as_version=4)
    for root in ("", "../", "../../../"):
        card = card_markdown(catalogue.system("psg"), TEXTS["psg"], root=root)
        output = nbformat.v4.new_output("display_data", {"text/markdown": card, "text/plain": "card"})
        notebook.cells.append(nbformat.v4.new_code_cell("card", outputs=[output]))
    nbformat.write(notebook, hooks.executed_lesson(path))
    uri = f"lessons/{path.stem}.md"
    text = hooks.lesson(path)
    assert text.count("](../dtdg_lab/systems/snapshot_groups/strategy.py#L") == 3
    assert leads_nowhere(hooks.linked(text, uri, uris), uri, uris, {}) == []


# Kept lessons


def test_a_lesson_is_kept_until_what_it_depends_on_changes(
    hooks: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    digest = sys.modules["digest"]
    package = tmp_path / "dtdg_lab"
    package.mkdir()
    (tmp_path / "constraints.txt").write_text("torch==1\n")
    (package / "module.py").write_text("pass\n")
    lesson = tmp_path / "01_lesson.ipynb"
    lesson.write_text("{}")
    monkeypatch.setattr(digest, "ROOT", tmp_path)
    names = [hooks.executed_lesson(lesson)]
    for file in (lesson, package / "module.py", tmp_path / "constraints.txt", package / "options.toml"):
        assert hooks.executed_lesson(lesson) == names[-1]
        file.write_text("changed")
        names.append(hooks.executed_lesson(lesson))
    monkeypatch.setattr("dtdg_lab.datasets.names.list_datasets", list)
    names.append(hooks.executed_lesson(lesson))
    assert len(set(names)) == 6 and all(name.name.startswith("01_lesson-") for name in names)


def test_a_lesson_runs_once_with_this_package(
    hooks: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "import os, pathlib, dtdg_lab\nprint(dtdg_lab.__file__, *os.listdir(), 'DTDG_LAB_FAST' in os.environ)"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    nbformat.write(notebook, tmp_path / "01_short.ipynb")
    elsewhere = tmp_path / "elsewhere" / "dtdg_lab"
    elsewhere.mkdir(parents=True)
    (elsewhere / "__init__.py").write_text("raise RuntimeError('another package')\n")
    monkeypatch.setenv("PYTHONPATH", str(elsewhere.parent))
    monkeypatch.setenv("DTDG_LAB_FAST", "1")
    monkeypatch.setattr(hooks, "EXECUTED", tmp_path / "lessons")
    monkeypatch.setattr(hooks, "lessons", lambda: [tmp_path / "00_first.ipynb", tmp_path / "01_short.ipynb"])
    hooks.execute_lessons()
    (kept,) = (tmp_path / "lessons").iterdir()
    assert kept == hooks.executed_lesson(tmp_path / "01_short.ipynb")
    (output,) = nbformat.read(kept, as_version=4).cells[0].outputs
    assert output.text.split() == [str(ROOT / "dtdg_lab" / "__init__.py"), "01_short.ipynb", "False"]
    hooks.execute_lessons()
    assert capsys.readouterr().out.count("Running 01_short") == 1


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_asks_nothing_of_the_internet(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > 70
    for page in pages:
        assert re.findall(r"<(?:script|img|link)[^>]*(?:src|href)=\"https?:[^>]*>", page.read_text()) == [], page
