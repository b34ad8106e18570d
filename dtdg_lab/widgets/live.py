"""Names and tooltips for controls that Panel leaves without."""

from __future__ import annotations

import json
from collections.abc import Callable

Defer = Callable[[Callable[[], None]], None]  # has a call made by the event loop


def labelled(words: str) -> str:
    """A style sheet that names an unlabelled widget, for screen readers."""
    return f":host {{ --dl-label: {json.dumps(words, ensure_ascii=False)}; }}"


def tipped(words: str) -> str:
    """A style sheet with the tooltip of a widget, which is also its description for screen readers."""
    return f":host {{ --dl-tip: {json.dumps(words, ensure_ascii=False)}; }}"
