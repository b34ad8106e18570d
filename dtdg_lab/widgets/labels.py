"""Names and tooltips for controls that Panel leaves without."""

from __future__ import annotations

import json


def labelled(label: str) -> str:
    """Return a style sheet that names an unlabelled widget, for screen readers."""
    return f":host {{ --dl-label: {json.dumps(label, ensure_ascii=False)}; }}"


def tipped(tooltip: str) -> str:
    """Return a style sheet with the tooltip of a widget, which is also its description for screen readers."""
    return f":host {{ --dl-tip: {json.dumps(tooltip, ensure_ascii=False)}; }}"
