"""Style sheets of Panel's models as texts in a notebook, whose page would ask the internet for them."""

from __future__ import annotations

from typing import Any

import panel as pn
from bokeh.models.css import ImportedStyleSheet
from bokeh.models.ui import UIElement
from panel.io.notebook import replace_inline_css


def share_inline_stylesheets(root: Any) -> None:
    """Replace every style sheet that has an address by its text, one model for each address."""
    inline: dict[str, Any] = {}
    with root.document.models.freeze():
        for model in root.select({"type": UIElement}):
            for sheet in model.stylesheets:
                if isinstance(sheet, ImportedStyleSheet) and sheet.url not in inline:
                    inline[sheet.url] = replace_inline_css(sheet)
            model.stylesheets = [inline.get(getattr(sheet, "url", ""), sheet) for sheet in model.stylesheets]


class LateColumn(pn.Column):
    """A column that gets its content once it is shown."""

    def _update_model(self, *arguments: Any) -> None:
        super()._update_model(*arguments)
        *_, model, _, comm = arguments
        if comm is not None and pn.config.inline:
            share_inline_stylesheets(model)
