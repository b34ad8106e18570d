"""Pages beside the code: every lesson has its place in them, and what they point to exists."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from types import FrameType, ModuleType

import pytest

import dtdg_lab as lab

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "data/README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "notebooks").rglob("*.md")),
]
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
NAME = re.compile(r"(?<![\w./-])lab\.([A-Za-z_]\w*)(?:\.([A-Za-z_]\w*))?")

each_lesson = pytest.mark.parametrize("lesson", LESSONS)
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def missing(text: str, folder: Path) -> list[str]:
    """Relative links of a page's prose that lead nowhere; those into the internet are not followed."""
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    found = (link.split("#")[0] for link in LINK.findall(prose) if not re.match(r"[a-z]+:", link))
    return [link for link in found if link and not (folder / link).exists()]


def unknown(text: str) -> list[str]:
    """Names of the package, as ``lab.NAME`` or ``lab.GROUP.NAME``, that it does not have."""
    return sorted({f"{name}.{inner}".rstrip(".") for name, inner in NAME.findall(text) if not _known(name, inner)})


def _known(name: str, inner: str) -> bool:
    of = getattr(lab, name, None)
    return name in dir(lab) and (not inner or inner in dir(of) or not isinstance(of, ModuleType))


@each_lesson
def test_a_lesson_has_a_section_for_teachers(lesson: str) -> None:
    text = (ROOT / "docs" / "instructor.md").read_text()
    sections = re.split(r"^#+ ", text, flags=re.M)
    (section,) = (each for each in sections if each.startswith(lesson))
    assert "**Removes:** " in section and "**Goes wrong:** " in section
    assert len(re.findall(r"^[123]\. \*.+\?\* .+\.$", section, re.M)) == 3, "three exam questions with answers"


@each_lesson
def test_a_lesson_has_a_row_in_the_list(lesson: str) -> None:
    rows = [line for line in (ROOT / "notebooks/README.md").read_text().splitlines() if line.startswith("| ")]
    assert any(f"[{lesson}]({lesson}.ipynb)" in row for row in rows)


@each_page
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert missing(page.read_text(), page.parent) == []


@each_page
def test_names_on_a_page_are_the_package_s(page: Path) -> None:
    assert unknown(page.read_text()) == []


@each_lesson
def test_names_in_a_lesson_are_the_package_s(lesson: str) -> None:
    assert unknown((ROOT / "notebooks" / f"{lesson}.ipynb").read_text()) == []


def test_what_leads_nowhere_is_found() -> None:
    text = "[a](README.md#part) [b](https://x.org/y) [c](nowhere.md) ![d](docs/none.png 't')"
    assert missing(text, ROOT) == ["nowhere.md", "docs/none.png"]
    said = "lab.race(lab.rase) lab.races.x lab.runs.open lab.runs. dtdg_lab.nothing live-lab.png `lab.gone`"
    assert unknown(said) == ["gone", "races.x", "rase"]


# docs/architecture.md


def files_of(heading: str) -> tuple[int, dict[int, str]]:
    """How many files a section of docs/architecture.md names, and those that it numbers."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    (section,) = (part for part in re.split(r"^## ", text, flags=re.M) if part.startswith(heading))
    (count,) = re.findall(r"(\d+) files\b", section)
    return int(count), {int(number): file for file, number in re.findall(r"`([\w/]+\.py)` \((\d+)\)", section)}


@pytest.mark.parametrize("heading", ["From a config to the loss", "From `run.set(learning_rate=...)`"])
def test_numbered_files_are_counted_and_exist(heading: str) -> None:
    count, files = files_of(heading)
    assert sorted(files) == list(range(1, count + 1))
    assert [file for file in files.values() if not (ROOT / "dtdg_lab" / file).is_file()] == []


def test_a_run_passes_the_files_that_are_named(tmp_path: Path) -> None:
    passed: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        passed.add(frame.f_code.co_filename)

    config = lab.RunConfig(
        system="psg",
        model="tgcn",
        dataset="growing",
        epochs=1,
        generated_nodes=50,
        generated_edges=200,
        generated_snapshots=24,
        threads=1,
    )
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        lab.train(config, runs_dir=tmp_path)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    _, files = files_of("From a config to the loss")
    assert [file for file in files.values() if str(ROOT / "dtdg_lab" / file) not in passed] == []
