"""A component of the page that shows JSON as text nodes and tells what a person did."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import param
from panel.custom import JSComponent

Defer = Callable[[Callable[[], None]], None]  # has a call made by the event loop
Message = Mapping[str, Any]


class TextComponent(JSComponent):
    """A component without state of its own: every display shows ``content``, however late it appears.

    Args:
        on_message: gets each message of a display; called by the event loop.
        defer: has a call made by the event loop: in a notebook messages come on another thread.
    """

    content = param.String(default="null", doc="What is shown, as JSON: a dict would arrive as a JavaScript Map.")

    def __init__(
        self, on_message: Callable[[Message], None], *, defer: Defer = lambda call: call(), **params: Any
    ) -> None:
        super().__init__(**params)
        self._on_message, self._defer = on_message, defer

    def set_content(self, content: Any) -> None:
        """Show this, which JSON can hold."""
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        if text != self.content:
            self.content = text

    def _handle_msg(self, data: Any) -> None:
        message = json.loads(data)
        self._defer(lambda: self._on_message(message))
