"""The JavaScript of the page's components: one library in the head of the page, and a few lines in each component."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from dtdg_lab.visualization.theme import theme_script

_HERE = Path(__file__).parent
COMPONENTS: Mapping[str, tuple[str, ...]] = MappingProxyType(  # name -> scripts that its code needs
    {
        "header": ("labels", "theme"),
        "navigation": (),
        "tiles": (),
        "chart_cards": ("handles",),
        "changes": (),
        "effects": (),
        "try_chips": (),
        "run_list": (),
        "comparison_head": (),
        "arrival_table": (),
    }
)
CARRIER = "header"  # the component that brings the library: a page has one
_STUB = """export async function render(view) {
  const end = Date.now() + 60000
  let found
  while (!(found = window.dtdgLab?.[KEY]?.NAME)) { // the head of the page brings it
    if (Date.now() > end) throw new Error("NAME: the head of the page did not bring its scripts. Reload the page.")
    await new Promise((done) => setTimeout(done, 20))
  }
  return found(view)
}
"""


@cache
def component_script(name: str) -> str:
    """Return the module of a component, which a saved notebook holds once for each component.

    Args:
        name: of ``COMPONENTS``.
    """
    library = _library()
    key = json.dumps(hashlib.sha256(library.encode()).hexdigest()[:12])
    stub = _STUB.replace("KEY", key).replace("NAME", name)
    if name != CARRIER:
        return stub
    return f"{theme_script()}window.dtdgLab ??= {{}}\nwindow.dtdgLab[{key}] ??= {{\n{library}}}\n{stub}"


@cache
def _library() -> str:
    """Return the renderers of all components, each behind shared helpers and its style sheets."""
    return "".join(f"{name}: (() => {{\n{_code(name)}\nreturn render\n}})(),\n" for name in COMPONENTS)


def _code(name: str) -> str:
    sheets = [_read("elements.css")]
    if (_HERE / f"{name}.css").is_file():
        sheets.append(_read(f"{name}.css"))
    style = f"const DL_STYLE = {json.dumps(''.join(sheets), ensure_ascii=False)}\n"
    scripts = "".join(_read(f"{script}.js") for script in ("elements", *COMPONENTS[name], name))
    return style + scripts.replace("export function render", "function render")


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
