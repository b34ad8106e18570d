"""The table "Who got there first": runs in order of their arrival at a target, with what it cost them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import ClassVar

from dtdg_lab.visualization.studies.comparison import COLUMNS, Arrival
from dtdg_lab.widgets.component import TextComponent
from dtdg_lab.widgets.scripts import component_script


class ArrivalTable(TextComponent):
    """A line for each run, with bars behind the numbers that say what it took."""

    _esm: ClassVar[str] = component_script("arrival_table")

    def draw(self, lines: Sequence[Arrival], target: str) -> None:
        """Show these lines; none hides the table."""
        self.set_content({"columns": COLUMNS, "lines": [asdict(line) for line in lines], "target": target})
