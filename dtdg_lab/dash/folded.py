"""A part of the controls that is folded away until it is wanted."""

from __future__ import annotations

from typing import Any

import panel as pn

from dtdg_lab.views.theme import coloured


def folded(title: str, *content: Any, most_px: int = 0) -> pn.Card:
    """The content under a title that opens it; what is higher than ``most_px``, where given, scrolls."""
    scrolling = {"max-height": f"{most_px}px", "overflow-y": "auto"} if most_px else {}
    return pn.Card(
        pn.Column(*content, sizing_mode="stretch_width", margin=0, styles=scrolling),
        title=title, collapsed=True, sizing_mode="stretch_width", margin=(6, 8),
        styles={"border": f"1px solid {coloured('line')}", "box-shadow": "none"}, header_background="#f6f8fa",
    )  # fmt: skip
