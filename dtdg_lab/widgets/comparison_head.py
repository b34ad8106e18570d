"""The head of a comparison of runs: the choice of axis, the headline, and how the runs differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from dtdg_lab.widgets.component import TextComponent
from dtdg_lab.widgets.scripts import component_script


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
