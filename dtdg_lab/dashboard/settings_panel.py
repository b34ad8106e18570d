"""SettingsPanel: where the controls of settings are on the page, by when their changes take effect."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import panel as pn

from dtdg_lab.config import catalogue
from dtdg_lab.visualization.palette import coloured
from dtdg_lab.widgets.controls import SettingControl, folded

_DECLARED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
HALF = ("decay", "slow_rank", "partitioner", "overlap", "ranks", "parts", "protocol", "chunker")
HALF_LETTERS = 16  # of a label that half a row has room for
LIVE_GROUPS = ("step", "epoch")
HEADINGS = {"step": "Applied at the next step", "epoch": "Applied at the next epoch"}
NEXT_RUN = "Used by the next run"
FIXED, NEXT = "Fixed during a run", "Next run"
WIDE: Mapping[str, Any] = {"sizing_mode": "stretch_width"}
_WHOLE_ROW, _HALF_ROW = (
    f":host {{ flex: 1 1 {basis} !important; min-width: 0 !important; width: auto !important; }}"
    for basis in ("100%", "40%")
)
_SHRINKS = ":host { min-width: 0 !important; }"
_WRAPPED = ":host { display: flex; flex-flow: row wrap !important; align-items: flex-end; min-width: 0 !important; }"
_HEADING = {"font-size": "11px", "color": coloured("soft"), "border-top": f"1px solid {coloured('line')}"}
_BOX = {
    "border": f"1px solid {coloured('line')}",
    "border-radius": "8px",
    "padding": "7px 2px 4px",
    "background": coloured("page"),
}


def _main_names() -> list[str]:
    """Return the names of the settings that are not folded: those of families first."""
    of_families = [name for family in catalogue.families() for row in family.setting_rows for name in row]
    shared = [name for group in ("training", "exchange", "system", "data") for name in _DECLARED[group]]
    return list(dict.fromkeys([*of_families, *shared]))


class SettingsPanel:
    """Controls and texts in groups, with headings.

    Args:
        controls: of every setting.
        notes: texts under some of them.

    Attributes:
        groups: group -> names of its settings, in order.
        box: settings of the chosen system and of training that can change while a run trains, by when they do.
        fixed: those that cannot, folded while a run trains.
        more: all others, folded.
        headings: above live settings.
    """

    def __init__(self, controls: Mapping[str, SettingControl], notes: Mapping[str, Any]) -> None:
        self._controls, self._notes = controls, notes
        self.headings = {
            group: pn.widgets.StaticText(value=HEADINGS[group], styles=_HEADING, margin=(6, 8, 0, 8), **WIDE)
            for group in LIVE_GROUPS
        }
        for name, control in controls.items():
            is_number = isinstance(control.widget, pn.widgets.IntInput | pn.widgets.FloatInput)
            is_half = name in HALF or (is_number and len(control.label) <= HALF_LETTERS)
            control.widget.stylesheets = [*control.widget.stylesheets, _HALF_ROW if is_half else _WHOLE_ROW]
        for note in notes.values():
            note.stylesheets = [_WHOLE_ROW]
        self.groups = self._grouped()
        self._rows = {group: self._row(names) for group, names in self.groups.items()}
        title = pn.widgets.StaticText(value="<b>Settings</b>", margin=(0, 8, 2, 8), **WIDE)
        live_rows = [part for group in LIVE_GROUPS for part in (self.headings[group], self._rows[group])]
        self.box = pn.Column(
            title,
            self._rows["system"],
            *live_rows,
            margin=0,
            styles=_BOX,
            stylesheets=[_SHRINKS],
            css_classes=["dl-settings"],
            **WIDE,
        )
        self.fixed, self.more = (
            folded(FIXED, self._rows["no"]),
            folded("More settings", self._rows["more"], most_px=270),
        )
        self.fixed.collapsed = False

    def _grouped(self) -> dict[str, list[str]]:
        """Return the names of the settings of each group, in order."""
        main = _main_names()
        grouped = {"system": ["system"], "more": [name for name in self._controls if name not in (*main, "system")]}
        for live in (*LIVE_GROUPS, "no"):
            grouped[live] = [name for name in main if name != "system" and self._controls[name].option.live == live]
        return grouped

    def _row(self, names: Sequence[str]) -> pn.Row:
        """Return controls side by side where they fit, with the texts under them.

        All stay in it, shown or not: what is put into a layout later asks a notebook's page for the internet.
        """
        parts: list[Any] = []
        for name in names:
            parts += [self._controls[name].widget, *([self._notes[name]] if name in self._notes else [])]
        return pn.Row(*parts, margin=0, stylesheets=[_WRAPPED], **WIDE)

    def put_under_dataset(self, widget: Any) -> None:
        """Insert another widget under the text of the data set."""
        widget.stylesheets = [*widget.stylesheets, _WHOLE_ROW]
        row = self._rows["no"]
        row.insert(1 + row.index(self._notes["dataset"]), widget)

    def fold_fixed(self, is_running: bool) -> None:
        """Fold the settings that cannot change while a run trains, as those of the next run."""
        self.fixed.header.value = NEXT if is_running else FIXED
        self.fixed.collapsed = is_running

    def show_headings(self) -> None:
        """Show the headings of groups in which a control is visible."""
        for group, heading in self.headings.items():
            heading.visible = any(self._controls[name].widget.visible for name in self.groups[group])

    def say_next_run(self, is_next: bool) -> None:
        """Say above live settings that only the next run uses them: after the end of one."""
        for group, heading in self.headings.items():
            text = NEXT_RUN if is_next else HEADINGS[group]
            if heading.value != text:
                heading.value = text
