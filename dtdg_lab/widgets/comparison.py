"""A comparison of runs: its head, the list of runs, and the table of arrivals at a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import ClassVar, Literal

from dtdg_lab.visualization.studies.comparison import COLUMNS, Arrival
from dtdg_lab.widgets.component import TextComponent, component_script


class ArrivalTable(TextComponent):
    """A row for each run, with bars behind the numbers that say what it needed to reach the target."""

    _esm: ClassVar[str] = component_script("arrival_table")

    def draw(self, lines: Sequence[Arrival], target: str) -> None:
        """Show rows; without rows, hide the table."""
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
        """Show choices and texts.

        Args:
            choices: name, label, and value -> label of each choice.
            chosen_values: name of a choice -> its value.
            headline: one sentence.
            notice: how the runs differ; an empty text is hidden.
            table: the differences, for a dialog.
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
        id: the run's id, for messages and tooltips.
        name: the name that people see.
        given: the name that a person gave it; empty without one.
        detail: the second line.
        ticked: whether it is compared.
        disabled: whether it cannot be ticked now.
        colour: colour of its line; empty if it has none.
        tone: ``off`` for a run that cannot be compared or is being read, ``bad`` for one that cannot be read.
        tooltip: tooltip, which follows the run's id.
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
    """Runs in groups. A message has ``tick`` (a run's id) with ``on``, or ``rename`` (a run's id) with ``name``."""

    _esm: ClassVar[str] = component_script("run_list")

    def draw(self, groups: Sequence[tuple[str, Sequence[RunRow]]], hint: str) -> None:
        """Show groups of runs, each with its title."""
        rows = [{"title": title, "rows": [asdict(row) for row in of_group]} for title, of_group in groups]
        self.set_content({"groups": rows, "hint": hint})
