"""Words of the dialect that this project once had: no page, lesson, docstring, comment or message has them.

Names in code, text between backticks and strings of one word (keys of records) are not prose and are left alone.
"""

from __future__ import annotations

import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INSTEAD = {
    "told": "reported, logged, specified",
    "heard": "received",
    "anew": "again, re-",
    "whoever": "the rank that, the one that",
    "nobody": "no rank, no one",
    "by hand": "manually",
    "goes on": "continues, resumes",
    "of which": "whose, or a second sentence",
}
BANNED = re.compile(r"\b(" + "|".join(word.replace(" ", r"\s+(?:#\s*)?") for word in INSTEAD) + r")\b", re.I)
CODE = re.compile(r"```.*?```|(`+)[^`]*\1", re.S)
PAGES = [
    *sorted(ROOT.glob("*.md")),
    ROOT / "data" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "notebooks").rglob("*.md")),
    *sorted((ROOT / "dtdg_lab" / "cards").rglob("*.md")),
    ROOT / "dtdg_lab" / "cards" / "papers.toml",
    *sorted((ROOT / "dtdg_lab").rglob("templates/*")),
]
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PACKAGES = sorted({path.relative_to(ROOT / "dtdg_lab").parts[0] for path in (ROOT / "dtdg_lab").rglob("*.py")})


def banned(text: str, first_line: int = 1) -> Iterator[tuple[int, str]]:
    """Line and word of every banned word in prose; code between backticks does not count."""
    prose = CODE.sub(lambda code: re.sub(r"[^\n]", ".", code[0]), text)
    for found in BANNED.finditer(prose):
        word = re.sub(r"[\s#]+", " ", found[0]).lower()
        yield first_line + prose.count("\n", 0, found.start()), f"{word!r} (say: {INSTEAD[word]})"


def banned_in_code(source: str) -> Iterator[tuple[int, str]]:
    """The same for comments, docstrings and strings of Python source."""
    if not BANNED.search(source):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = token.string
        if token.type == tokenize.STRING:
            if re.fullmatch(r"\w*(['\"]+)[\w.]*\1", text):
                continue
            text = re.sub(r"\{[^{}]*\}", "", text) if "f" in text[:2].lower() else text
        elif token.type != tokenize.COMMENT:
            continue
        yield from banned(text, token.start[0])


def _report(file: Path, found: Iterator[tuple[int, str]], cell: str = "") -> list[str]:
    return [f"{file.relative_to(ROOT)}:{cell}{line}: {word}" for line, word in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_in_plain_words(page: Path) -> None:
    wrong = _report(page, banned(page.read_text()))
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_a_lesson_is_in_plain_words(lesson: Path) -> None:
    wrong = []
    for number, cell in enumerate(json.loads(lesson.read_text())["cells"]):
        text = "".join(cell["source"])
        wrong += _report(
            lesson, banned(text) if cell["cell_type"] == "markdown" else banned_in_code(text), f"[{number}]:"
        )
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_in_plain_words(package: str) -> None:
    path = ROOT / "dtdg_lab" / package
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    wrong = [line for file in files for line in _report(file, banned_in_code(file.read_text()))]
    assert not wrong, "\n" + "\n".join(wrong)


def test_words_are_found_in_prose_and_names_are_not() -> None:
    source = 'told = f"{heard} ok"\nkey = "told"\n# made by\n# hand, of which `told`\n"""Nobody\nanew."""\n'
    assert [line for line, _ in banned_in_code(source)] == [4, 5, 6]
    assert [line for line, _ in banned("is `told`\nis set by\nhand\n```\nanew\n```\nToldo whoever")] == [2, 7]
