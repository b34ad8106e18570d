"""The solutions of lessons: answers in the order of the cells that ask for them."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import nbformat

# What a learner may give in place of a function: no function, one of other arguments, one without a result
NO_FUNCTIONS = [None, 12, "text", lambda: 1, lambda *_: None, lambda *_: math.nan, lambda *_: "1", lambda *_: 1 / 0]
NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"


def blocks(lesson: str) -> list[str]:
    """The code of a lesson's solutions; none where it has no exercise."""
    file = NOTEBOOKS / "solutions" / f"{lesson}.md"
    return re.findall(r"^```python\n(.*?)^```$", file.read_text(), re.M | re.S) if file.exists() else []


def answer_cells(notebook: Any) -> list[Any]:
    """The cells that a learner fills in."""

    def asks(cell: Any) -> bool:
        return "answer" in cell.metadata.get("tags", ()) or cell.metadata.get("nbgrader", {}).get("solution", False)

    return [cell for cell in notebook.cells if asks(cell)]


def solved(notebook: Any, lesson: str) -> Any:
    """The notebook with the answers in its cells."""
    for cell, code in zip(answer_cells(notebook), blocks(lesson), strict=True):
        cell.source = code.rstrip()
    return notebook


def answers(lesson: str) -> dict[str, str]:
    """The answers of a graded lesson by the names of its cells."""
    cells = answer_cells(nbformat.read(NOTEBOOKS / f"{lesson}.ipynb", as_version=4))
    return {cell.metadata.nbgrader.grade_id: code for cell, code in zip(cells, blocks(lesson), strict=True)}
