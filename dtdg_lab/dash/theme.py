"""The choice of a light or dark theme, and names for controls that Panel leaves without any."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

from panel.custom import JSComponent

from dtdg_lab.views.theme import theme_script

_HERE = Path(__file__).parent


class ThemeSwitch(JSComponent):
    """A menu for the theme: as the page (JupyterLab's, Notebook's, VS Code's, else the system's), light, or dark.

    Part of the page it stands on: everything in the outermost layout around it takes the theme, and what has no name
    for a screen reader or no keys gets some. The browser remembers the choice; the kernel does not know it.
    """

    _esm: ClassVar[str] = theme_script() + "".join(
        (_HERE / name).read_text(encoding="utf-8") for name in ("labels.js", "theme.js")
    )


def labelled(words: str) -> str:
    """A style sheet that names a widget which shows no label of its own, for screen readers."""
    return f":host {{ --dl-label: {json.dumps(words, ensure_ascii=False)}; }}"
