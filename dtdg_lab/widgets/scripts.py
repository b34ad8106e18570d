"""The JavaScript of the page's components: their own code behind the shared helpers and style sheets."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from dtdg_lab.visualization.style import theme_script

_HERE = Path(__file__).parent


@cache
def component_script(name: str, *before: str) -> str:
    """Return the module of a component: colours of the themes, shared helpers, its style sheet, its code.

    Args:
        name: of its ``.js``, and of its ``.css`` where it has one.
        before: names of scripts that its code needs.
    """
    sheets = [_read("elements.css")]
    if (_HERE / f"{name}.css").is_file():
        sheets.append(_read(f"{name}.css"))
    style = f"const DL_STYLE = {json.dumps(''.join(sheets), ensure_ascii=False)}\n"
    return theme_script() + style + "".join(_read(f"{each}.js") for each in ("elements", *before, name))


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
