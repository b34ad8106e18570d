"""What is put into a layout that a notebook shows already."""

from __future__ import annotations

import panel as pn
import pytest
from bokeh.document import Document
from bokeh.models.css import ImportedStyleSheet
from bokeh.models.ui import UIElement
from pyviz_comms import Comm

from dtdg_lab.widgets.component import LateColumn


@pytest.mark.parametrize("is_inline", [True, False])
def test_late_content_asks_the_internet_for_no_style_sheets_in_a_notebook(is_inline: bool) -> None:
    late = LateColumn()
    shown = pn.Column(late)
    with pn.config.set(inline=is_inline):
        root = shown._render_model(Document(), Comm())
        late.objects = [pn.widgets.FloatInput(label="a"), pn.GridBox(pn.widgets.FloatInput(label="b"))]
        (column,) = root.children
        sheets = [sheet for model in column.select({"type": UIElement}) for sheet in model.stylesheets]
    imported = [sheet for sheet in sheets if isinstance(sheet, ImportedStyleSheet)]
    assert len(column.children) == 2 and sheets and bool(imported) is not is_inline
