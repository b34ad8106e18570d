"""Page Code: the current settings as a Python cell and as JSON."""

from __future__ import annotations

import html

import panel as pn

from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import LabError
from dtdg_lab.dashboard.settings import Settings
from dtdg_lab.visualization.palette import coloured
from dtdg_lab.widgets.run_page import Page

_ALWAYS = ("system", "dataset", "model", "ranks", "epochs", "seed", "learning_rate")


def as_arguments(config: RunConfig) -> dict[str, object]:
    """Return the settings that differ from the defaults of ``RunConfig``, and the main settings."""
    names = {name: getattr(config, name) for name in ("system", "dataset", "model", "ranks", "protocol")}
    plain = RunConfig(**names)
    always_shown = _ALWAYS if config.protocol == RunConfig.model_fields["protocol"].default else (*_ALWAYS, "protocol")
    values = {name: value for name, value in config.flat.items() if name in always_shown or value != plain[name]}
    fields = RunConfig.model_fields
    return {name: values[name] for name in (*fields, *sorted(values.keys() - fields.keys())) if name in values}


def as_cell(config: RunConfig) -> str:
    """Return a Python cell that trains with these settings and shows the run."""
    arguments = "".join(f"    {name}={value!r},\n" for name, value in as_arguments(config).items())
    return (
        "import dtdg_lab as lab\n\n"
        f"config = lab.RunConfig(\n{arguments})\n"
        f"session = lab.Session(ranks={config.ranks})\n"
        "run = session.train(config)\n"
        "lab.Dashboard(session)\n"
    )


def as_json(config: RunConfig) -> str:
    """Return the settings as JSON for ``python -m dtdg_lab run CONFIG.json`` and ``RunConfig.from_json``."""
    return config.to_json()


class CodePage(Page):
    """The current settings as a Python cell and as JSON."""

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
        """Write the settings of the controls, or why they are invalid."""
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
