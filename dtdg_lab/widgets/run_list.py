"""The list of runs beside a comparison: tick boxes, colours, names that can be changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar, Literal

from dtdg_lab.widgets.component import TextComponent
from dtdg_lab.widgets.scripts import component_script


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run in the list.

    Attributes:
        id: of the run, for messages and tooltips.
        name: for people.
        given: the name that a person gave it; empty where none did.
        detail: the second line.
        ticked: whether it is compared.
        disabled: whether it cannot be ticked now.
        colour: of its line; empty where it has none.
        tone: ``off`` for a run that cannot be compared or is being read, ``bad`` for one that cannot be read.
        tooltip: beside the run's id.
    """

    id: str
    name: str
    given: str
    detail: str
    ticked: bool
    disabled: bool = False
    colour: str = ""
    tone: Literal["", "off", "bad"] = ""
    tooltip: str = ""


class RunList(TextComponent):
    """Runs by group. A message has ``tick``, the id of a run, with ``on``; or ``rename``, an id, with ``name``."""

    _esm: ClassVar[str] = component_script("run_list")

    def draw(self, groups: Sequence[tuple[str, Sequence[RunRow]]], hint: str) -> None:
        """Show these groups of runs, each with its title."""
        rows = [{"title": title, "rows": [asdict(row) for row in of_group]} for title, of_group in groups]
        self.set_content({"groups": rows, "hint": hint})
