"""A component of the page: JSON that is shown as text nodes, with its script and its styles."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import panel as pn
import param
from bokeh.models.css import ImportedStyleSheet
from bokeh.models.ui import UIElement
from panel.custom import JSComponent
from panel.io.notebook import replace_inline_css

from dtdg_lab.visualization.palette import theme_script

Defer = Callable[[Callable[[], None]], None]  # lets the event loop make a call
Message = Mapping[str, Any]


class TextComponent(JSComponent):
    """A component without state of its own: every display shows ``content``, however late it appears.

    Args:
        on_message: function that the event loop calls with each message of a display.
        defer: lets the event loop make a call, since in a notebook messages come on another thread.
    """

    content = param.String(default="null", doc="What is shown, as JSON, since a dict would arrive as a JavaScript Map.")

    def __init__(
        self, on_message: Callable[[Message], None], *, defer: Defer = lambda call: call(), **params: Any
    ) -> None:
        super().__init__(**params)
        self._on_message, self._defer = on_message, defer

    def set_content(self, content: Any) -> None:
        """Show content that JSON can hold."""
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        if text != self.content:
            self.content = text

    def _handle_msg(self, data: Any) -> None:
        message = json.loads(data)
        self._defer(lambda: self._on_message(message))


_HERE = Path(__file__).parent
COMPONENTS: Mapping[str, tuple[str, ...]] = MappingProxyType(  # component -> scripts that its code needs
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
CARRIER = "header"  # the component with the library; every page has one
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
    """Return the module of a component; a saved notebook has only one copy of it.

    Args:
        name: a name in ``COMPONENTS``.
    """
    library = _library()
    key = json.dumps(hashlib.sha256(library.encode()).hexdigest()[:12])
    stub = _STUB.replace("KEY", key).replace("NAME", name)
    if name != CARRIER:
        return stub
    return f"{theme_script()}window.dtdgLab ??= {{}}\nwindow.dtdgLab[{key}] ??= {{\n{library}}}\n{stub}"


@cache
def _library() -> str:
    """Return the renderers of all components, each with shared helpers and its style sheets."""
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


def share_inline_stylesheets(root: Any) -> None:
    """Replace every style sheet that has an address by its text, with one model for each address."""
    inline: dict[str, Any] = {}
    with root.document.models.freeze():
        for model in root.select({"type": UIElement}):
            for sheet in model.stylesheets:
                if isinstance(sheet, ImportedStyleSheet) and sheet.url not in inline:
                    inline[sheet.url] = replace_inline_css(sheet)
            model.stylesheets = [inline.get(getattr(sheet, "url", ""), sheet) for sheet in model.stylesheets]


class LateColumn(pn.Column):
    """A column that gets its content only when it is shown."""

    def _update_model(self, *arguments: Any) -> None:
        super()._update_model(*arguments)
        *_, model, _, comm = arguments
        if comm is not None and pn.config.inline:
            share_inline_stylesheets(model)
