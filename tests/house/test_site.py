"""The documentation site: everything public is in its reference, and it builds without a warning."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

import dtdg_lab as lab
from dtdg_lab.__main__ import main
from dtdg_lab.core import errors as errors_module
from dtdg_lab.core.errors import LabError
from dtdg_lab.core.events import SettingsChanged
from dtdg_lab.core.options import OPTIONS
from dtdg_lab.core.records import TABLES

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("mkdocs", reason="mkdocs is not installed: make env")


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
