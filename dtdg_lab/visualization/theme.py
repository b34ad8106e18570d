"""The light and the dark theme of pages: CSS variables, and the script that draws figures in either."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from dtdg_lab.visualization.palette import DARK_COLOURS, PAGE_COLOURS


@cache
def theme_script() -> str:
    """Return JavaScript functions (``theme.js``) with the colours they need; they stand before other code."""
    dark = {light.upper(): colour for light, colour in DARK_COLOURS.items()}
    page = {theme: dict(colours) for theme, colours in PAGE_COLOURS.items()}
    constants = f"const DL_DARK = {json.dumps(dark)}\nconst DL_PAGE = {json.dumps(page)}\n"
    return constants + (Path(__file__).parent / "theme.js").read_text(encoding="utf-8")


def variables(theme: str) -> str:
    """Return the colours of a page in ``light`` or ``dark`` as CSS variables ``--dl-...``."""
    return " ".join(f"--dl-{name}: {colour};" for name, colour in PAGE_COLOURS[theme].items())


def coloured(name: str) -> str:
    """Return a page colour for a style: the theme's, else that of the light theme."""
    return f"var(--dl-{name}, {PAGE_COLOURS['light'][name]})"
