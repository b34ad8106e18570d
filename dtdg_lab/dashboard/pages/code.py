"""Page Code: the present settings as a Python cell and as JSON."""

from __future__ import annotations

import html

import panel as pn

from dtdg_lab.core.errors import LabError
from dtdg_lab.dashboard.config_code import as_cell, as_json
from dtdg_lab.dashboard.settings import Settings
from dtdg_lab.visualization.theme import coloured
from dtdg_lab.widgets.run_page import Page


class CodePage(Page):
    """The present settings as a Python cell and as JSON."""

    title = "Code"

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self.cell = pn.widgets.StaticText(value="", sizing_mode="stretch_width")
        self.json = pn.widgets.StaticText(value="", sizing_mode="stretch_width")
        self.panel = pn.Row(
            pn.Column("#### As a cell", self.cell, sizing_mode="stretch_width"),
            pn.Column("#### As JSON, for `python -m dtdg_lab run CONFIG.json`", self.json, sizing_mode="stretch_width"),
            sizing_mode="stretch_width",
        )
        settings.watch(self._write)
        self._write()

    def _write(self) -> None:
        """Write the settings of the controls, or why they are not valid."""
        try:
            config = self._settings.config()
        except LabError as error:
            self.cell.value, self.json.value = _block(str(error)), ""
            return
        self.cell.value, self.json.value = _block(as_cell(config)), _block(as_json(config))


def _block(text: str) -> str:
    edge, back = coloured("line"), coloured("back")
    style = f"font-size:12px;background:{back};border:1px solid {edge};padding:10px;white-space:pre-wrap"
    return f'<pre class="dl-code" style="{style}">{html.escape(text)}</pre>'
