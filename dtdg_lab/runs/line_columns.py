"""LineColumns: record lines of one shape, turned into columns of Python values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dtdg_lab.runs.record_lines import Line

Shape = tuple[str, ...]  # name of a table, then those of its columns
IDENTITY = ("rank", "attempt")


@dataclass(slots=True)
class LineColumns:
    """Lines with the same table and columns, as Python values by column."""

    names: tuple[str, ...]
    values: dict[str, list[Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.values = {name: [] for name in (*IDENTITY, *self.names)}

    def __len__(self) -> int:
        return len(self.values["rank"])

    def add(self, line: Line) -> None:
        """Add the rows of a line."""
        for name in IDENTITY:
            self.values[name] += [line[name]] * len(line["rows"])
        for name, column in zip(self.names, zip(*line["rows"], strict=True), strict=True):
            self.values[name].extend(column)


def add_to_shape(shapes: dict[Shape, LineColumns], line: Line) -> None:
    """Add a line to those of its shape."""
    shape = (line["table"], *line["columns"])
    if shape not in shapes:
        shapes[shape] = LineColumns(shape[1:])
    shapes[shape].add(line)


def by_shape(lines: Iterable[Line]) -> dict[Shape, LineColumns]:
    """Return lines with rows, by their shape."""
    shapes: dict[Shape, LineColumns] = {}
    for line in lines:
        if line["rows"]:
            add_to_shape(shapes, line)
    return shapes
