"""A comparison of runs: its head, the list of runs, and the table of who got there first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar, Literal

from dtdg_lab.visualization.studies.comparison import COLUMNS, Arrival
from dtdg_lab.widgets.component import TextComponent, component_script


class ArrivalTable(TextComponent):
    """A line for each run, with bars behind the numbers that say what it took."""

    _esm: ClassVar[str] = component_script("arrival_table")

    def draw(self, lines: Sequence[Arrival], target: str) -> None:
        """Show these lines; none hides the table."""
        self.set_content({"columns": COLUMNS, "lines": [asdict(line) for line in lines], "target": target})


class ComparisonHead(TextComponent):
    """Two choices, a headline and a notice. A message has the name of a choice, and the value that was clicked."""

    _esm: ClassVar[str] = component_script("comparison_head")

    def draw(
        self,
        choices: Sequence[tuple[str, str, Mapping[str, str]]],
        chosen_values: Mapping[str, str],
        *,
        headline: str,
        notice: str,
        table: Sequence[Sequence[str]],
    ) -> None:
        """Show these words.

        Args:
            choices: name, label, and value -> its label, of each choice.
            chosen_values: name -> value.
            headline: one sentence.
            notice: in what the runs differ; hidden where empty.
            table: what differs, for a dialog.
        """
        bar = [
            {"name": name, "label": label, "values": list(values.items()), "chosen": chosen_values[name]}
            for name, label, values in choices
        ]
        first, colon, rest = notice.partition(":")
        self.set_content(
            {
                "bar": bar,
                "headline": headline,
                "first": first + colon,
                "rest": rest,
                "table": [list(row) for row in table],
            }
        )


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
