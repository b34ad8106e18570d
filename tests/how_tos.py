"""The how-tos of docs/extending.md: a complete file each, and the commands below it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs/extending.md").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class HowTo:
    """A section of the page.

    Attributes:
        kind: of what is added, such as ``model``.
        file: name of the file.
        code: its content.
        run: the command that trains.
        check: the command that checks.
    """

    kind: str
    file: str
    code: str
    run: str
    check: str

    @property
    def definition(self) -> str:
        """Return the code without its registration."""
        return re.sub(r"^lab\.register\(.*\n", "", self.code, flags=re.M)


def how_tos() -> dict[str, HowTo]:
    """Return the sections that have a file, by kind."""
    sections = re.findall(r"^## An? ([\w ]+)\n(.*?)(?=^## )", TEXT, re.M | re.S)
    return {kind: _how_to(kind, text) for kind, text in sections}


def _how_to(kind: str, text: str) -> HowTo:
    (file,) = re.findall(r"File `(\w+\.py)`:$", text, re.M)
    ((code, commands),) = re.findall(r"^```python\n(.*?)^```\n\n((?:    [^\n]*\n)+)", text, re.M | re.S)
    run, check = (line.strip() for line in commands.splitlines())
    return HowTo(kind, file, code, run, check)
