"""The tiles of a run, and the suggestions below its picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar

from dtdg_lab.visualization.tiles import Suggestion, Tile
from dtdg_lab.widgets.component import Defer, Message, TextComponent, component_script


class Tiles(TextComponent):
    """Up to five tiles in a row."""

    _esm: ClassVar[str] = component_script("tiles")

    def draw(self, tiles: Sequence[Tile]) -> None:
        """Show tiles."""
        self.set_content([asdict(tile) for tile in tiles])


TRY, TRY_LATER = "Try", "After you press Run, try"


class TryChips(TextComponent):
    """Suggestions as buttons.

    Args:
        on_choose: function called with the changes of a suggestion that was clicked.
        defer: lets the event loop make a call.
    """

    _esm: ClassVar[str] = component_script("try_chips")

    def __init__(
        self, on_choose: Callable[[Mapping[str, Any]], None], *, defer: Defer = lambda call: call(), **params: Any
    ) -> None:
        super().__init__(self._clicked, defer=defer, **params)
        self._on_choose = on_choose
        self._shown: dict[str, Suggestion] = {}

    def draw(self, suggestions: Sequence[Suggestion], *, is_running: bool) -> None:
        """Show suggestions; without a run they cannot be clicked."""
        self._shown = {suggestion.text: suggestion for suggestion in suggestions}
        self.set_content(
            {"words": TRY if is_running else TRY_LATER, "chips": list(self._shown), "disabled": not is_running}
        )

    def _clicked(self, message: Message) -> None:
        suggestion = self._shown.get(message["text"])
        if suggestion is not None:  # otherwise it is no longer offered
            self._on_choose(suggestion.changes)
