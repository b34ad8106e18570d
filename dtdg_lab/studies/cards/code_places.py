"""Where a system is in our code: file and line of what the catalogue names, found without importing it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from dtdg_lab.core import catalogue
from dtdg_lab.core.catalogue import System
from dtdg_lab.core.errors import ConfigError

_ROOT = Path(__file__).resolve().parents[3]  # where the package is
_END = r"(?:\n\s*\n|\n\s*(?:Args|Raises|Returns|Attributes):|$)"
_DIFFERS = re.compile(r"Differs from the papers?[:,] ?(.*?)" + _END, re.S)
_BEGINS = (("it ", "The paper "), ("its ", "The paper's "), ("they ", "The papers "))


class CodePlace(NamedTuple):
    """A class or function.

    Attributes:
        role: room of the catalogue, or ``also``.
        name: in the catalogue, or in its module.
        file: from the root of the repository, with ``/``.
        line: from 1, where it begins.
        summary: what it does, in a sentence.
    """

    role: str
    name: str
    file: str
    line: int
    summary: str

    @property
    def link(self) -> str:
        """From the root of the repository, as GitHub has it."""
        return f"{self.file}#L{self.line}"


class Difference(NamedTuple):
    """What a docstring says of how it differs from its paper; ``file`` and ``line`` are of what it describes."""

    file: str
    line: int
    text: str


def code_places(system: System, more: tuple[str, ...] = ()) -> list[CodePlace]:
    """What the catalogue composes the system of, then what else is worth reading.

    Args:
        system: of the catalogue.
        more: targets as text, ``module:name``, or a module alone.

    Raises:
        ConfigError: there is no such file, or nothing of that name in it.
    """
    entries = [catalogue.entry(room, name) for room, name in system.parts.items()]
    found = [_place(entry.target, entry.room, entry.name, entry.summary) for entry in entries]
    return found + [_place(target, "also", "", "") for target in more]


def differences(places: list[CodePlace]) -> list[Difference]:
    """What docstrings of these files say of differences from the papers, each once."""
    found = [each for file in dict.fromkeys(place.file for place in places) for each in _told(file)]
    return list({each.text: each for each in found}.values())


def _place(target: str, role: str, name: str, summary: str) -> CodePlace:
    module, _, attribute = target.partition(":")
    file = module.replace(".", "/") + ".py"
    tree = _tree(file)
    node: ast.AST = tree
    if attribute:
        defined = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef | ast.FunctionDef)}
        if attribute not in defined:
            raise ConfigError(f"{file} defines no {attribute!r}: a card or the catalogue names it. Correct the name.")
        node = defined[attribute]
    line = getattr(node, "lineno", 1)
    return CodePlace(role, name or attribute or Path(file).stem, file, line, summary or _first_sentence(node))


@cache
def _tree(file: str) -> ast.Module:
    path = _ROOT / file
    if not path.is_file():
        raise ConfigError(f"{file} is not there: a card or the catalogue names it. Correct the name.")
    return ast.parse(path.read_text(encoding="utf-8"))


def _first_sentence(node: ast.AST) -> str:
    text = ast.get_docstring(node) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) else ""
    return " ".join((text or "").split("\n\n")[0].replace("``", "").split())


def _told(file: str) -> Iterator[Difference]:
    for node in ast.walk(_tree(file)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        for told in _DIFFERS.findall(ast.get_docstring(node) or ""):
            text = " ".join(told.replace("``", "").split())
            if text and not text.startswith("nothing known"):
                yield Difference(file, getattr(node, "lineno", 1), _as_sentence(text))


def _as_sentence(text: str) -> str:
    """What follows on *Differs from the paper:*, where it stands alone."""
    for word, instead in _BEGINS:
        if text.startswith(word):
            return instead + text[len(word) :]
    return text[0].upper() + text[1:]
