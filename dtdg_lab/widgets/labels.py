"""Names and tooltips for controls that Panel leaves without."""

from __future__ import annotations

import json


def labelled(words: str) -> str:
    """Return a style sheet that names an unlabelled widget, for screen readers."""
    return f":host {{ --dl-label: {json.dumps(words, ensure_ascii=False)}; }}"


def tipped(words: str) -> str:
    """Return a style sheet with the tooltip of a widget, which is also its description for screen readers."""
    return f":host {{ --dl-tip: {json.dumps(words, ensure_ascii=False)}; }}"
